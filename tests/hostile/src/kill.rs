//! kill -9 under load, again and again. In: two ends and a number of rounds. Out: figures, or the first thing that is not as it
//! must be.
//!
//! Each round kills one of two connected peers, in turn at either end and with work outstanding both ways on RC and UC. Then:
//! the survivor's RC requests end with status 12 and the rest flushed, in bounded time, and its UC ones go on as if nothing were; the
//! kernel's own traffic passes at once; nothing of the dead is left in the kernel; and the survivor, in the same process and on
//! the same queue pairs, goes on with a new peer.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::field::Field;
use crate::leftovers::{Held, xdp_sockets};
use crate::peer::{Peer, PeerOptions, UC_MORE, introduce};

/// What the rounds came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Killed {
    /// Rounds.
    pub rounds: u32,
    /// The longest time from the kill to status 12 at the survivor.
    pub told_within: Duration,
    /// The longest time from the kill until nothing of the dead was left in the kernel.
    pub gone_within: Duration,
    /// BPF objects that were looked for, in all.
    pub objects: usize,
}

/// What a peer says whose own peer is dead: transport retry counter exceeded, and no request left without its completion.
const TOLD: &str = "12 0";
/// With ACK timeout code 13 and 7 retries, backed off to 4T: 33.6 ms · (1 + 2 + 6 · 4), and half as much again for a machine
/// that is busy, and the time to notice.
const TOLD_LIMIT: Duration = Duration::from_secs(5);
/// Sockets, maps and programs are freed after grace periods of the kernel.
const GONE_LIMIT: Duration = Duration::from_secs(10);

/// Runs `rounds` rounds with peers of the program `peer`, telling `tell` about each.
///
/// # Errors
/// What is not as it must be, with the round.
pub fn run(field: &Field, peer: &Path, rounds: u32, mut tell: impl FnMut(&str)) -> Result<Killed, String> {
    let start =
        |which: usize| Peer::start(peer, &field.ends[which], which, &PeerOptions::default()).map_err(|e| e.to_string());
    let sockets = [0, 1].map(|i| xdp_sockets(&field.ends[i]));
    let mut peers = [Some(start(0)?), Some(start(1)?)];
    let mut killed = Killed::default();
    for round in 0..rounds {
        let victim = (round % 2) as usize;
        let at = |what: String| format!("round {round}, end {victim} killed: {what}");
        for (which, place) in peers.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
            *place = Some(start(which).map_err(at)?);
        }
        let [Some(a), Some(b)] = &mut peers else { return Err(at("a peer is missing".into())) };
        introduce(a, b).map_err(|e| at(e.to_string()))?;
        for peer in [&mut *a, &mut *b] {
            // How far it gets differs from round to round, and so does what the kill cuts through.
            peer.moves(20 + u64::from(round * 7 % 64)).map_err(|e| at(e.to_string()))?;
        }
        let dead = peers[victim].take().ok_or_else(|| at("the victim is missing".into()))?;
        let held = Held::by(dead.pid()).map_err(|e| at(e.to_string()))?;
        killed.objects += held.objects.len();
        let moment = Instant::now();
        dead.kill();
        field.assert_pings();
        let survivor = peers[1 - victim].as_mut().ok_or_else(|| at("the survivor is missing".into()))?;
        held.gone(&field.ends[victim], sockets[victim], GONE_LIMIT).map_err(|e| at(e.to_string()))?;
        let gone = moment.elapsed();
        let told = survivor.hear("failed").map_err(|e| at(e.to_string()))?;
        let told_after = moment.elapsed();
        check_status(&told, told_after).map_err(at)?;
        let more = survivor.ask("uc", "uc").map_err(|e| at(e.to_string()))?;
        if more.parse::<u64>().map_or(true, |more| more < UC_MORE) {
            return Err(at(format!("UC, which has no acknowledgements to miss, went on for {more:?} requests only")));
        }
        killed.told_within = killed.told_within.max(told_after);
        killed.gone_within = killed.gone_within.max(gone);
        killed.rounds += 1;
        tell(&format!("round {round}: end {victim} killed; 12 after {told_after:?}, nothing left after {gone:?}"));
    }
    let held: Vec<(usize, Held)> = peers
        .iter()
        .enumerate()
        .filter_map(|(which, peer)| Some((which, Held::by(peer.as_ref()?.pid()).ok()?)))
        .collect();
    drop(peers);
    for (which, held) in held {
        held.gone(&field.ends[which], sockets[which], GONE_LIMIT).map_err(|e| format!("at the end: {e}"))?;
    }
    field.assert_pings();
    Ok(killed)
}

/// `STATUS MISSING`, within its time.
fn check_status(told: &str, after: Duration) -> Result<(), String> {
    if told != TOLD {
        return Err(format!("the survivor was told {told:?}, not {TOLD:?}: status 12, and all the rest flushed"));
    }
    if after > TOLD_LIMIT {
        return Err(format!("the survivor was told after {after:?}; {TOLD_LIMIT:?} is the limit"));
    }
    Ok(())
}
