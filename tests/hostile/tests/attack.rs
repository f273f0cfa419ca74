//! An attacker on the link, who writes raw frames: what they cost, who counts them, what they change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use xroce::{ConnectOptions, Context, Progress, Psn, QpType};
use xroce_hostile::attack::{Answers, Attack, DRAWING, HARMLESS, Seen, Target, mixture};
use xroce_hostile::field::{Field, IPV4, NETDEV, eventually, gid_of};
use xroce_hostile::flow::{End, Shape, exchange, join};
use xroce_hostile::sys::RawSocket;

const PATIENCE: Duration = Duration::from_secs(30);
/// Frames of a kind, in slices that fit the veth's ring.
const FRAMES: u64 = 1280;
const SLICE: u64 = 64;

fn options(context: &Context, which: usize) -> ConnectOptions {
    let gid_index = gid_of(context, IPV4[which].into()).expect("the field's address").index;
    // Half a second: the machine may be busy, and a timer that fires is no attack.
    ConnectOptions { gid_index, timeout: 17, psn: Psn::new(0x10_0000 << which), ..ConnectOptions::default() }
}

fn connected(contexts: &[Context; 2], kind: QpType, max_len: usize) -> [End; 2] {
    let shape = Shape { kind, max_len, depth: 16 };
    let mut ends: [End; 2] =
        std::array::from_fn(|i| End::new(&contexts[i], shape, options(&contexts[i], i)).expect("an end"));
    let [a, b] = &mut ends;
    join(a, b).expect("a way");
    ends
}

#[test]
fn each_kind_of_frame_is_counted_draws_little_and_changes_nothing() {
    let Some(field) = Field::new("each_kind_of_frame_is_counted_draws_little_and_changes_nothing", 1500) else {
        return;
    };
    let contexts = field.open(|_, builder| builder.progress(Progress::Event));
    let [mut a, mut b] = connected(&contexts, QpType::Rc, 4096);
    let raw = field.ends[0].run(|| RawSocket::open(NETDEV)).expect("a raw socket");
    exchange(&mut a, &mut b, 50, PATIENCE).expect("the flow");
    for attack in HARMLESS.iter().chain(DRAWING) {
        quiet_attack(&contexts[1], &b, &raw, attack);
        // And the connection is as good as before.
        exchange(&mut a, &mut b, 20, PATIENCE).unwrap_or_else(|e| panic!("after {}: {e}", attack.name));
    }
    let timeouts = Seen::by(&contexts[1]).transport.qp.local_ack_timeout_err;
    assert_eq!(timeouts, 0, "an attack made the victim wait");
}

/// On a connection where nothing is under way: every frame is counted, and nothing else has moved.
fn quiet_attack(victim: &Context, b: &End, raw: &RawSocket, attack: &Attack) {
    let target = Target::of(&b.qp);
    let state = |end: &End| {
        let info = end.qp.query().expect("the device runs");
        (info.attr.qp_state, info.attr.sq_psn, info.attr.rq_psn)
    };
    let memory = b.receiver.memory();
    let (bytes, state_before) = (memory.to_vec(0..memory.len()).expect("its own length"), state(b));
    let before = Seen::by(victim);
    for slice in 0..FRAMES / SLICE {
        let frames: Vec<_> = (0..SLICE).map(|i| attack.frame(&target, slice * SLICE + i)).collect();
        assert_eq!(raw.send(&frames).expect("the raw socket"), frames.len());
        let due = before.of(attack.counted) + (slice + 1) * SLICE;
        let counted = || Seen::by(victim).of(attack.counted);
        eventually(&format!("{} counted", attack.name), PATIENCE, || counted() >= due);
    }
    let after = Seen::by(victim);
    let counted = after.of(attack.counted) - before.of(attack.counted);
    // The kernel's own neighbour discovery may come between where frames are left to it.
    assert!((FRAMES..FRAMES + 8).contains(&counted), "{}: {counted} of {FRAMES} counted", attack.name);
    let answers = after.transport.packets_out - before.transport.packets_out;
    let most = match attack.answers {
        Answers::None => 0,
        Answers::AtMost(most) => most,
        Answers::OneEach => FRAMES,
    };
    assert!(answers <= most, "{} drew {answers} answers to {FRAMES} frames", attack.name);
    assert_eq!(state(b), state_before, "{}", attack.name);
    assert!(memory.to_vec(0..memory.len()).expect("its own length") == bytes, "{} changed memory", attack.name);
}

#[test]
fn a_good_flow_goes_on_beside_a_flood_of_everything() {
    let Some(field) = Field::new("a_good_flow_goes_on_beside_a_flood_of_everything", 1500) else { return };
    for progress in [Progress::Inline { helper: true }, Progress::Event] {
        let contexts = field.open(|_, builder| builder.progress(progress));
        let [mut a, mut b] = connected(&contexts, QpType::Rc, 4096);
        let [mut ua, mut ub] = connected(&contexts, QpType::Uc, 4096);
        let raw = field.ends[0].run(|| RawSocket::open(NETDEV)).expect("a raw socket");
        let frames = mixture(&Target::of(&b.qp), &[HARMLESS, DRAWING], 4096, 7);
        let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        let before = Seen::by(&contexts[1]);
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for frames in frames.chunks(64) {
                        sent.fetch_add(raw.send(frames).expect("the raw socket") as u64, Ordering::Relaxed);
                    }
                }
            });
            let ended = exchange(&mut a, &mut b, 500, PATIENCE).and_then(|()| {
                // What a flood crowds out of the ring is lost for UC: the flow goes on, with gaps.
                exchange(&mut ua, &mut ub, 200, PATIENCE)
            });
            stop.store(true, Ordering::Relaxed);
            flood.join().expect("the flood does not panic");
            ended.unwrap_or_else(|e| panic!("{progress:?}, beside {} frames: {e}", sent.load(Ordering::Relaxed)));
        });
        let after = Seen::by(&contexts[1]);
        let dropped: u64 = after.transport.drops.iter().map(|(_, n)| n).sum();
        assert!(
            dropped > 1000,
            "the flood of {} frames did not arrive: {dropped} dropped",
            sent.load(Ordering::Relaxed)
        );
        assert!(ub.receiver.arrived > 0, "no UC message passed");
        for attack in HARMLESS {
            assert!(after.of(attack.counted) > before.of(attack.counted), "{} was not in the flood", attack.name);
        }
    }
}

#[test]
fn a_peer_that_asks_for_much_does_not_starve_another() {
    use xroce::{Access, QpInitAttr, SendFlags, SendOp, SendWr, WrId};
    const READ_LEN: usize = 4 << 20;
    let Some(field) = Field::new("a_peer_that_asks_for_much_does_not_starve_another", 1500) else { return };
    let contexts = field.open(|_, builder| builder.progress(Progress::Event));
    let [mut a, mut b] = connected(&contexts, QpType::Rc, 1024);
    // The greedy one: as many READs of 4 MiB as it may have under way, each a packet of 68 bytes.
    let pd = contexts[0].alloc_pd().expect("a domain");
    let cq = contexts[0].create_cq(64).expect("a queue");
    let into = pd.reg_mr(vec![0u8; READ_LEN], Access::LOCAL_WRITE).expect("memory");
    let greedy = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).expect("a queue pair");
    let far_pd = contexts[1].alloc_pd().expect("a domain");
    let far_cq = contexts[1].create_cq(64).expect("a queue");
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let from = far_pd.reg_mr(vec![5u8; READ_LEN], rights).expect("memory");
    let served = far_pd.create_qp(&QpInitAttr::new(QpType::Rc, &far_cq)).expect("a queue pair");
    let of = [options(&contexts[0], 0), options(&contexts[1], 1)];
    let at = [greedy.endpoint(&of[0]).expect("an address"), served.endpoint(&of[1]).expect("an address")];
    greedy.connect(&at[1], &of[0]).expect("a way");
    served.connect(&at[0], &of[1]).expect("a way");
    let ask = |id: u64| {
        let sges = [into.sge(0..READ_LEN).expect("its own length")];
        let op = SendOp::Read { va: from.addr(), rkey: from.rkey() };
        let wr = SendWr { wr_id: WrId(id), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
        greedy.post_send(&wr).expect("room");
    };
    (0..64).for_each(ask);
    let response_packets = || served.counters().expect("the device runs").sent_pkts;
    eventually("the responses flow", PATIENCE, || response_packets() > 1000);
    let before = response_packets();
    exchange(&mut a, &mut b, 100, PATIENCE).expect("the modest flow");
    let meanwhile = response_packets() - before;
    let exchanged = a.qp.counters().expect("the device runs").sent_pkts + b.qp.counters().expect("it runs").sent_pkts;
    // Turns are of 16 packets: whoever is served beside it waits that long for each of its own, and for a window of the port.
    assert!(meanwhile < 400 * exchanged, "{meanwhile} packets of READs while {exchanged} of the others passed");
    assert_eq!(served.state(), xroce::QpState::Rts);
    drop(greedy);
}
