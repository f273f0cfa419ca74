//! Moments of a device gathered to scenes, of which each is a step of a ladder.
//!
//! In: moments in order. Out: scenes: a call, a packet or a timer that ran out, with everything that came of it. Completions and
//! events are looked for when a burst is over; here each is given to the scene of the same instant that it came of.

use xroce_script::history::{Deed, Moment};
use xroce_script::model::CqSide;
use xroce_transport::QpCounters;
use xroce_transport::qp::QpSnapshot;
use xroce_transport::wr::WrId;

use crate::outcome;

/// Something to draw.
pub(super) struct Scene<'a> {
    pub(super) at_ns: u64,
    pub(super) deed: &'a Deed,
    /// Which timer ran out, where the deed is that one did.
    pub(super) expired: Option<String>,
    /// The queue pair when it was over.
    pub(super) qp: &'a QpSnapshot,
    pub(super) counters: &'a QpCounters,
    /// Completions and events that came of it.
    pub(super) outcomes: Vec<&'a Deed>,
}

/// All scenes, in order.
pub(super) fn scenes(moments: &[Moment]) -> Vec<Scene<'_>> {
    let mut scenes: Vec<Scene<'_>> = Vec::new();
    for (i, moment) in moments.iter().enumerate() {
        let before = &moments[i.saturating_sub(1)];
        let expired = match moment.deed {
            Deed::Timers => outcome::expired((&before.qp, &before.counters), (&moment.qp, &moment.counters)),
            _ => None,
        };
        let Moment { at_ns, deed, qp, counters } = moment;
        if expired.is_some() || matches!(deed, Deed::Step(..) | Deed::Received(..) | Deed::Sent(_)) {
            scenes.push(Scene { at_ns: *at_ns, deed, expired, qp, counters, outcomes: Vec::new() });
        } else if let Some(scene) = scenes.last_mut().filter(|scene| scene.at_ns == *at_ns) {
            (scene.qp, scene.counters) = (qp, counters);
        }
        if matches!(deed, Deed::Completed(..) | Deed::Event(_))
            && let Some(cause) = cause(&scenes, moment)
        {
            scenes[cause].outcomes.push(deed);
        }
    }
    scenes
}

/// The scene, of those of the same instant so far, that a completion or an event came of.
fn cause(scenes: &[Scene<'_>], moment: &Moment) -> Option<usize> {
    let begin = scenes.iter().rposition(|scene| scene.at_ns != moment.at_ns).map_or(0, |before| before + 1);
    let burst = || begin..scenes.len();
    let pair = |i: usize| i.checked_sub(1).map(|before| (scenes[before].qp, scenes[i].qp));
    let started = |qp: &QpSnapshot, id: WrId| qp.started.iter().any(|request| request.wr_id == id);
    let own = match &moment.deed {
        Deed::Completed(CqSide::Send, wc) => {
            burst().find(|i| pair(*i).is_some_and(|(a, b)| started(a, wc.wr_id) && !started(b, wc.wr_id)))
        }
        Deed::Completed(CqSide::Recv, _) => burst().find(|i| {
            let given = scenes[*i].outcomes.iter().filter(|d| matches!(d, Deed::Completed(CqSide::Recv, _))).count();
            pair(*i).is_some_and(|(a, b)| a.recvs.saturating_sub(b.recvs) as usize > given)
        }),
        _ => None,
    };
    let changed = || burst().find(|i| pair(*i).is_some_and(|(a, b)| a.state != b.state));
    // What sends does not complete, nor raise events.
    let other = || burst().rfind(|i| !matches!(scenes[*i].deed, Deed::Sent(_))).or_else(|| burst().next_back());
    own.or_else(changed).or_else(other).or_else(|| scenes.len().checked_sub(1))
}
