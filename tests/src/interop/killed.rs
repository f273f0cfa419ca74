//! A process is killed (SIGKILL) that holds one end of a connection. Enters: a station, who survives, over which IP. Leaves:
//! nothing; a survivor that does not learn of it, or others that are harmed by it, are a panic.
//!
//! The survivor's oldest request ends with WC 12 in bounded time, what is behind it with 5, and so do its RECVs. In the guest it
//! is the process of an agent that is killed; on our side one of `xroce-victim`, which has a device of its own.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use super::errors::{Case, assert_flushes};
use super::exchange::{Operation, exchange};
use super::victim::{Orders, Victim};
use super::{Family, Link, LinkSpec, Pair, Side, Station};
use crate::rxe::{Op, QpKind, RecvWr, SendWr, status};

/// What is going on when the process dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// Nothing: it is what is posted afterwards that fails.
    Nothing,
    /// The survivor sends to it.
    SendTo,
    /// The survivor reads from it.
    ReadFrom,
    /// It sends to the survivor, and waits for a RECV.
    SendFrom,
    /// It reads from the survivor.
    ReadBy,
}

/// All of them.
pub const CASES: &[Case] = &[
    Case::rc("peer's process killed, idle", |s, side, f| killed(s, side, f, Doing::Nothing)),
    Case::rc("peer's process killed, we send to it", |s, side, f| killed(s, side, f, Doing::SendTo)),
    Case::rc("peer's process killed, we read from it", |s, side, f| killed(s, side, f, Doing::ReadFrom)),
    Case::rc("peer's process killed, it sends to us", |s, side, f| killed(s, side, f, Doing::SendFrom)),
    Case::rc("peer's process killed, it reads from us", |s, side, f| killed(s, side, f, Doing::ReadBy)),
];

/// Bytes of a request, of either side: with [`WINDOW`] of them it is in the middle of things for longer than killing takes.
pub(super) const LEN: u32 = 1 << 20;
/// RECVs of a victim, and requests of its own: all that its queues take with room for what else is posted there.
pub(super) const MANY: u32 = 100;
/// Where in the survivor's memory its requests and the victim's work: what still arrives must not meet the bystander's bytes.
const AT: usize = 32 << 10;
/// Requests that the survivor has under way; with those before and after, no more than a victim has RECVs.
const WINDOW: u64 = 64;
/// RECVs that a victim finds which sends.
const FEW: u32 = 8;
/// RECVs of the survivor that nothing uses.
const UNUSED: [u64; 2] = [1000, 1001];
/// How soon the survivor has given up: it is silent for [`GIVES_UP`], but on a machine that may be busy.
const BOUND: Duration = Duration::from_secs(20);
/// Four times the ACK timeout, but for what passes between the last sign of life and the end.
const GIVES_UP: Duration = Duration::from_millis(4 * 268 - 150);

/// ACK timeout 268 ms, which a busy guest keeps while it lives, and 3 retries. A RECV that is missing is waited for, 41 ms
/// each time: a whole window is sent again after each, which an emulated guest has to take.
pub(super) fn spec(family: Family) -> LinkSpec {
    LinkSpec { timeout: 16, retry_cnt: 3, rnr_retry: 7, min_rnr_timer: 24, ..LinkSpec::new(QpKind::Rc, family, 1024) }
}

fn killed(station: &mut Station, survivor: Side, family: Family, doing: Doing) {
    match survivor {
        Side::Ours => peer_killed(station, family, doing),
        Side::Peer => our_process_killed(station, family, doing),
    }
}

/// Another connection of ours, with another process of the guest, goes on meanwhile and afterwards.
fn peer_killed(station: &mut Station, family: Family, doing: Doing) {
    let bystander = Link::new(station, LinkSpec::new(QpKind::Rc, family, 1024)).park();
    let bystander = goes_on(station, bystander, 1);

    let mut other = station.another_peer();
    let (pair, mut work) = station.with_peer(&mut other, |station, usual| {
        let pid = station.peer.agent.pid().expect("it says");
        let mut link = Link::new(station, spec(family));
        link.post_recv(Side::Peer, &RecvWr { count: MANY, ..RecvWr::new(0, &[link.sge(Side::Peer, 0, LEN)]) });
        let (target, source) = (link.remote(Side::Peer, 0), link.remote(Side::Ours, 0));
        let mut work = Work::begin(&mut link, Side::Ours, doing, target);
        if let Some(op) = doing.of_the_victim(source) {
            let sge = link.sge(Side::Peer, 0, LEN);
            link.post_send(Side::Peer, &SendWr { count: MANY, ..SendWr::new(0, op, &[sge]) });
        }
        work.go_on_for_a_while(&mut link);
        let before = Instant::now();
        usual.agent.kill(pid).expect("it is there");
        work.died(&mut link, before);
        (link.park(), work)
    });
    let bystander = goes_on(station, bystander, 2);
    station.with_peer(&mut other, |station, _| work.assert_given_up(&mut Link::resume(station, pair)));
    let bystander = goes_on(station, bystander, 3);
    drop(Link::resume(station, bystander));
}

/// What still comes for the dead process's QP meets the next process, which has the netdev at once, and does it no harm.
fn our_process_killed(station: &mut Station, family: Family, doing: Doing) {
    let mut left = None;
    station.without_device(|station| {
        let (interface, gid_index) = (station.guest.interface(), station.our_gid(family));
        let source = (station.peer.mr.va, station.peer.mr.rkey);
        let mut victim = None;
        let mut link = Link::half(station, spec(family), |there| {
            let orders = Orders { interface, gid_index, family, there, doing, source };
            victim.insert(Victim::start(&orders)).endpoint
        });
        let victim = victim.expect("just started");
        let mut work = Work::begin(&mut link, Side::Peer, doing, victim.memory);
        work.go_on_for_a_while(&mut link);
        let before = Instant::now();
        victim.kill();
        work.died(&mut link, before);
        left = Some((link.park(), work));
    });
    let (pair, mut work) = left.expect("just parked");
    let next = Link::new(station, LinkSpec::new(QpKind::Rc, family, 1024)).park();
    let next = goes_on(station, next, 2);
    work.assert_given_up(&mut Link::resume(station, pair));
    let next = goes_on(station, next, 3);
    drop(Link::resume(station, next));
}

/// A connection that has nothing to do with the dead.
fn goes_on(station: &mut Station, pair: Pair, seed: u64) -> Pair {
    let mut link = Link::resume(station, pair);
    for (side, operation) in
        [(Side::Ours, Operation::Write), (Side::Peer, Operation::Send), (Side::Ours, Operation::Read)]
    {
        exchange(&mut link, side, operation, 10_000, seed);
    }
    link.park()
}

impl Doing {
    /// What the victim posts; `va` and `rkey` are of the survivor's memory.
    pub(super) fn of_the_victim(self, (va, rkey): (u64, u32)) -> Option<Op> {
        match self {
            Self::SendFrom => Some(Op::Send),
            Self::ReadBy => Some(Op::Read { va, rkey }),
            Self::Nothing | Self::SendTo | Self::ReadFrom => None,
        }
    }
}

/// The survivor's requests.
struct Work {
    survivor: Side,
    doing: Doing,
    op: Op,
    /// Ids of what is posted and has not completed.
    open: Range<u64>,
    /// When the victim was about to be killed.
    died: Option<Instant>,
}

impl Work {
    /// The connection is seen to work, then there is as much under way as shall be. `va` and `rkey` are of the victim's memory.
    fn begin(link: &mut Link<'_>, survivor: Side, doing: Doing, (va, rkey): (u64, u32)) -> Self {
        let op = if doing == Doing::ReadFrom { Op::Read { va, rkey } } else { Op::Send };
        let mut work = Self { survivor, doing, op, open: 0..0, died: None };
        work.post(link);
        work.assert_next_succeeds(link);
        if work.keeps_asking() {
            (0..WINDOW).for_each(|_| work.post(link));
        }
        match doing {
            Doing::SendFrom => {
                let sge = link.sge(survivor, AT, LEN);
                link.post_recv(survivor, &RecvWr { count: FEW, ..RecvWr::new(0, &[sge]) });
            }
            _ => work.post_unused(link),
        }
        work
    }

    fn keeps_asking(&self) -> bool {
        matches!(self.doing, Doing::SendTo | Doing::ReadFrom)
    }

    fn post(&mut self, link: &mut Link<'_>) {
        let sge = link.sge(self.survivor, AT, LEN);
        link.post_send(self.survivor, &SendWr::new(self.open.end, self.op, &[sge]));
        self.open.end += 1;
    }

    fn post_unused(&self, link: &mut Link<'_>) {
        UNUSED.iter().for_each(|&id| link.post_recv(self.survivor, &RecvWr::new(id, &[])));
    }

    #[track_caller]
    fn assert_next_succeeds(&mut self, link: &mut Link<'_>) {
        let wc = link.sent(self.survivor);
        assert_eq!((wc.wr_id, wc.status), (self.open.start, status::SUCCESS), "while the victim lives: {wc:?}");
        self.open.start += 1;
    }

    /// Until it is in the middle of things.
    fn go_on_for_a_while(&mut self, link: &mut Link<'_>) {
        match self.doing {
            Doing::Nothing => {}
            Doing::SendTo | Doing::ReadFrom => {
                for _ in 0..WINDOW / 8 {
                    self.assert_next_succeeds(link);
                    self.post(link);
                }
            }
            Doing::SendFrom => {
                for id in 0..u64::from(FEW) {
                    let wc = link.received(self.survivor);
                    assert_eq!((wc.wr_id, wc.status, wc.byte_len), (id, status::SUCCESS, LEN), "{wc:?}");
                }
            }
            Doing::ReadBy => thread::sleep(Duration::from_millis(20)),
        }
    }

    /// The victim has just died; it lived at `before`. A survivor that does nothing would never know.
    fn died(&mut self, link: &mut Link<'_>, before: Instant) {
        self.died = Some(before);
        (0..3).for_each(|_| self.post(link));
    }

    /// What the victim still did succeeds; then one 12, then 5 only.
    #[track_caller]
    fn assert_given_up(&mut self, link: &mut Link<'_>) {
        let died = self.died.expect("called after `died`");
        let ids = self.open.clone();
        let count = ids.clone().count();
        let done = link.send_done(self.survivor, count, BOUND);
        let took = died.elapsed();
        let successes = done.iter().take_while(|wc| wc.ok()).count();
        assert!(successes < count, "all {count} requests succeed without a peer");
        let mut wanted = vec![status::SUCCESS; successes];
        wanted.push(status::RETRY_EXC_ERR);
        wanted.resize(count, status::WR_FLUSH_ERR);
        let said: Vec<_> = done.iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(said, ids.zip(wanted).collect::<Vec<_>>(), "{took:?} after its death");
        // That it comes at all within BOUND has been seen.
        assert!(took > GIVES_UP, "gave up after {took:?}");
        match (self.doing, self.survivor) {
            // A RECV before would have taken what the victim had still on the way; rxe does not flush one that comes now.
            (Doing::SendFrom, Side::Peer) => assert_flushes(link, self.survivor, &[]),
            (Doing::SendFrom, Side::Ours) => {
                self.post_unused(link);
                assert_flushes(link, self.survivor, &UNUSED);
            }
            _ => assert_flushes(link, self.survivor, &UNUSED),
        }
    }
}
