//! The soak: RC and UC flows of all operations over AF_XDP on a veth that loses, corrupts and reorders, for as long as wanted.
//!
//! In: how long, how many queue pairs, how bad the wire. Out: a [`Report`], or the first thing that is not as it must be: a byte,
//! a count, a status, a flow that stands still, memory that grows.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xroce::{ConnectOptions, Context, DropReason, PathMtu, Progress, Psn, QpCounters, QpType};
use xroce_port::fault::{Action, Fault, Rule};
use xroce_port::xdp::Faults;

use crate::attack::Seen;
use crate::field::{Field, IPV4, gid_of};
use crate::flow::{End, Failure, Shape, join};

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How long.
    pub time: Duration,
    /// RC queue pairs at each end.
    pub rc: usize,
    /// UC queue pairs at each end.
    pub uc: usize,
    /// The share of frames lost on receive, in the XDP program, in 1/65536.
    pub drop_per_64k: u16,
    /// The share of frames with a flipped bit, in 1/65536.
    pub corrupt_per_64k: u16,
    /// The probability that a frame is sent behind later ones.
    pub reorder: f64,
}

impl Default for Plan {
    /// 1 % loss, 0.1 % corruption, 1 % reorder, on six queue pairs of each service.
    fn default() -> Plan {
        Plan { time: Duration::from_secs(60), rc: 6, uc: 6, drop_per_64k: 655, corrupt_per_64k: 66, reorder: 0.01 }
    }
}

/// What it came to, both ends together.
#[derive(Debug, Clone)]
pub struct Report {
    /// How long it ran.
    pub time: Duration,
    /// RC requests completed, and UC messages that arrived.
    pub messages: [u64; 2],
    /// Bytes of requests that completed.
    pub bytes: u64,
    /// UC messages that were lost, as their numbers tell.
    pub uc_lost: u64,
    /// The transport's counters.
    pub qp: QpCounters,
    /// Dropped packets by reason, where there were any.
    pub drops: Vec<(DropReason, u64)>,
    /// Frames lost, and corrupted, by the XDP program on purpose.
    pub faults: [u64; 2],
    /// Frames kept back on purpose.
    pub kept_back: u64,
    /// Resident memory in KiB: after the first tenth, at the end, and the most in between.
    pub rss_kib: [u64; 3],
    /// The longest time that no flow of a kind moved: RC, UC.
    pub longest_pause: [Duration; 2],
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QpCounters { resent_pkts, local_ack_timeout_err, rcvd_seq_err, implied_nak_seq_err, rcvd_rnr_err, .. } =
            self.qp;
        let seconds = self.time.as_secs_f64();
        writeln!(f, "time            {seconds:.1} s")?;
        let [rc, uc] = self.messages;
        writeln!(f, "messages        {rc} RC completed, {uc} UC arrived, {} UC lost", self.uc_lost)?;
        writeln!(f, "bytes           {} ({:.1} MB/s)", self.bytes, self.bytes as f64 / seconds / 1e6)?;
        writeln!(f, "packets         {} sent, {resent_pkts} of them again", self.qp.sent_pkts)?;
        writeln!(
            f,
            "retries         {local_ack_timeout_err} timeouts, {rcvd_seq_err} sequence NAKs, {implied_nak_seq_err} implied, \
             {rcvd_rnr_err} RNR"
        )?;
        let [lost, corrupted] = self.faults;
        writeln!(f, "on purpose      {lost} lost, {corrupted} corrupted, {} kept back", self.kept_back)?;
        for (reason, count) in &self.drops {
            writeln!(f, "dropped         {count} {}", reason.name())?;
        }
        let [rc, uc] = self.longest_pause;
        writeln!(f, "longest pause   {} ms RC, {} ms UC", rc.as_millis(), uc.as_millis())?;
        let [first, last, most] = self.rss_kib;
        write!(f, "memory (RSS)    {first} KiB first, {last} KiB last, {most} KiB most")
    }
}

/// A flow that does not move for this long is standing still: all retries with the timer below take 15 s.
const STALL: Duration = Duration::from_secs(40);
/// How much resident memory may grow: what the allocator keeps of the copies that checking makes.
const GROWTH_KIB: u64 = 1024;
/// ACK timeout code: 0.54 s, so that a machine which is busy with other things for some seconds does not look like a dead peer.
const TIMEOUT: u8 = 17;
/// Room for what arrives while the receiver has no CPU.
const RX_RING: u32 = 8192;

/// Runs the plan on a field whose MTU is at least 4300, and says a line now and then.
///
/// # Errors
/// The first thing that is not as it must be.
pub fn run(field: &Field, plan: &Plan, mut tell: impl FnMut(&str)) -> Result<Report, String> {
    let faults = Faults { drop_per_64k: plan.drop_per_64k, corrupt_per_64k: plan.corrupt_per_64k, drop_nth: 0 };
    let (controls, inbox) = std::sync::mpsc::channel();
    let controls = std::sync::Mutex::new(controls);
    let contexts = field.open(|which, builder| {
        let controls = controls.lock().expect("no end panics").clone();
        let reorder = plan.reorder;
        let change = |config: &mut xroce::xdp::XdpConfig| (config.faults, config.rx_ring) = (faults, RX_RING);
        builder.progress(Progress::Inline { helper: true }).xdp(change).wrap(move |port| {
            let fault = Fault::new(port, which as u64 + 1);
            for by in 1..=4 {
                let rule = Rule::tx(Action::HoldFrames(by)).chance(reorder / 4.0);
                fault.faults().add(rule).expect("a probability, and at least one frame");
            }
            controls.send(fault.faults()).expect("who runs the soak listens");
            Box::new(fault)
        })
    });
    let mut ends = connect(&contexts, plan).map_err(|e| e.to_string())?;
    let watch = Watch::default();
    let start = Instant::now();
    let mut memory = Memory::default();
    let failures: Vec<String> = thread::scope(|scope| {
        let [of_a, of_b] = &mut ends;
        let workers = [of_a, of_b].map(|ends| scope.spawn(|| work(ends, &watch)));
        while start.elapsed() < plan.time && !watch.stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(200).min(plan.time / 10));
            memory.sample(start.elapsed() >= plan.time / 10);
            watch.look(start.elapsed(), &mut tell);
        }
        watch.stop.store(true, Ordering::Relaxed);
        workers.into_iter().filter_map(|worker| worker.join().expect("no worker panics").err()).collect()
    });
    if let Some(first) = failures.first() {
        return Err(format!("after {:?}: {first}", start.elapsed()));
    }
    let time = start.elapsed();
    let kept_back = inbox.try_iter().map(|faults| faults.counters().tx.held).sum();
    let report = report(&contexts, &ends, time, kept_back, memory, &watch);
    memory.check()?;
    Ok(report)
}

fn connect(contexts: &[Context; 2], plan: &Plan) -> Result<[Vec<End>; 2], Failure> {
    let mut ends = [Vec::new(), Vec::new()];
    for i in 0..plan.rc + plan.uc {
        let kind = if i < plan.rc { QpType::Rc } else { QpType::Uc };
        // Short and long messages, and both kinds of frames: in one piece and in two. On UC nothing but the loss of what did not
        // fit holds a sender back, so that its messages are shorter.
        let max_len = if kind == QpType::Rc { [4096, 16 << 10, 64 << 10][i % 3] } else { 8192 };
        let path_mtu = [PathMtu::Mtu1024, PathMtu::Mtu4096, PathMtu::Mtu2048, PathMtu::Mtu256][i % 4];
        let shape = Shape { kind, max_len, depth: 8 + 8 * (i % 3) };
        let [a, b] = [0, 1].map(|which: usize| {
            let gid = gid_of(&contexts[which], IPV4[which].into());
            let gid_index = gid.map(|entry| entry.index).unwrap_or_default();
            // Near the end of the numbers, so that they come round.
            let psn = Psn::new(0xff_f000 + (i as u32) * 7);
            let options =
                ConnectOptions { gid_index, path_mtu: Some(path_mtu), timeout: TIMEOUT, psn, ..Default::default() };
            End::new(&contexts[which], shape, options)
        });
        let (mut a, mut b) = (a?, b?);
        join(&mut a, &mut b)?;
        ends[0].push(a);
        ends[1].push(b);
    }
    Ok(ends)
}

/// What the workers and the watchdog share.
#[derive(Debug, Default)]
struct Watch {
    stop: AtomicBool,
    /// Completions and arrivals: RC, UC.
    moved: [AtomicU64; 2],
    longest_ms: [AtomicU64; 2],
}

impl Watch {
    fn look(&self, elapsed: Duration, tell: &mut impl FnMut(&str)) {
        const EVERY: u64 = 10;
        let second = elapsed.as_secs();
        if second.is_multiple_of(EVERY) && elapsed.subsec_millis() < 200 && second > 0 {
            let [rc, uc] = [0, 1].map(|i| self.moved[i].load(Ordering::Relaxed));
            tell(&format!("{second} s: {rc} RC and {uc} UC completions and arrivals"));
        }
    }
}

/// All ends of one device: until it is time to stop, and then until nothing of RC is outstanding.
fn work(ends: &mut [End], watch: &Watch) -> Result<(), String> {
    let stopped = |why: String| {
        watch.stop.store(true, Ordering::Relaxed);
        why
    };
    let mut last = vec![Instant::now(); ends.len()];
    let mut stopping = false;
    loop {
        if watch.stop.load(Ordering::Relaxed) && !stopping {
            stopping = true;
            ends.iter_mut().for_each(|end| end.sender.stop_after(0));
            last.fill(Instant::now());
        }
        let mut moved = 0;
        for (i, end) in ends.iter_mut().enumerate() {
            let kind = usize::from(end.shape().kind == QpType::Uc);
            let now = end.step().map_err(|e| stopped(format!("flow {i}: {e}")))?;
            if now > 0 {
                watch.moved[kind].fetch_add(now, Ordering::Relaxed);
                watch.longest_ms[kind].fetch_max(last[i].elapsed().as_millis() as u64, Ordering::Relaxed);
                last[i] = Instant::now();
            } else if last[i].elapsed() > STALL && !end.sender.is_done() {
                return Err(stopped(format!("flow {i} stands still for {STALL:?}: {:?}", end.sender)));
            }
            moved += now;
        }
        if stopping && moved == 0 && last.iter().all(|last| last.elapsed() > Duration::from_secs(2)) {
            // Nothing has come for longer than all retries of the other end take, and all of ours has been answered.
            if ends.iter().all(|end| end.sender.is_done()) {
                return Ok(());
            }
        }
        if moved == 0 {
            // The other end may be waiting for this very CPU.
            thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Resident memory over time.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    first: Option<u64>,
    last: u64,
    most: u64,
}

impl Memory {
    fn sample(&mut self, warm: bool) {
        self.last = rss_kib();
        self.most = self.most.max(self.last);
        if warm && self.first.is_none() {
            self.first = Some(self.last);
        }
    }

    fn check(&self) -> Result<(), String> {
        match self.first {
            Some(first) if self.last > first + GROWTH_KIB => {
                Err(format!("memory grows: {first} KiB after the first tenth, {} KiB at the end", self.last))
            }
            Some(_) => Ok(()),
            None => Err("memory was never sampled".into()),
        }
    }
}

/// Resident memory of this process (proc_pid_status(5)).
fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn report(
    contexts: &[Context; 2],
    ends: &[Vec<End>; 2],
    time: Duration,
    kept_back: u64,
    memory: Memory,
    watch: &Watch,
) -> Report {
    let seen = [Seen::by(&contexts[0]), Seen::by(&contexts[1])];
    let mut qp = QpCounters::default();
    seen.iter().for_each(|seen| qp.add(&seen.transport.qp));
    let sum = |of: &dyn Fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    let all = || ends.iter().flatten();
    let of_kind = |kind: QpType| all().filter(move |end| end.shape().kind == kind);
    let drops = DropReason::ALL.iter().map(|&reason| (reason, sum(&|seen| seen.transport.drops.get(reason))));
    Report {
        time,
        messages: [
            of_kind(QpType::Rc).map(|end| end.sender.completed).sum(),
            of_kind(QpType::Uc).map(|end| end.receiver.arrived).sum(),
        ],
        bytes: all().map(|end| end.sender.bytes).sum(),
        uc_lost: of_kind(QpType::Uc).map(|end| end.receiver.lost).sum(),
        qp,
        drops: drops.filter(|(_, count)| *count > 0).collect(),
        faults: [sum(&|seen| seen.port.rx_faults_dropped), sum(&|seen| seen.port.rx_faults_corrupted)],
        kept_back,
        rss_kib: [memory.first.unwrap_or(0), memory.last, memory.most],
        longest_pause: [0, 1].map(|i| Duration::from_millis(watch.longest_ms[i].load(Ordering::Relaxed))),
    }
}
