//! Completion channels: arm, poll once more, wait. No wake-up is lost, none comes for nothing.

mod common;

use common::{MODES, PATIENCE, Side, connect, devices};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use xroce::{CompChannel, Context, Overrun, Progress, QpType, RecvWr, SendFlags, SendOp, SendWr, Wc, WcStatus, WrId};

fn with_channel(context: &Context) -> (CompChannel, Side) {
    let channel = context.create_comp_channel().unwrap();
    let cq = context.create_cq_on(1024, &channel).unwrap();
    (channel, Side::with_cq(context, QpType::Rc, 4096, cq))
}

/// Takes completions until `want` have come, sleeping on the channel in between; a sleep of 5 s is a lost wake-up.
fn take(channel: &CompChannel, side: &Side, want: usize, mut each: impl FnMut(Wc)) {
    let mut wcs = [Wc::default(); 32];
    let mut seen = 0;
    while seen < want {
        match side.cq.poll(&mut wcs).unwrap() {
            0 if side.cq.req_notify(false).unwrap() => {}
            0 => {
                // Between arming and here a completion may have come: its event is in the channel already.
                let event = channel.get_cq_event(Some(Duration::from_secs(5))).unwrap();
                assert_eq!(event, Some(side.cq.id()), "a wake-up was lost after {seen} of {want} completions");
            }
            n => {
                wcs[..n].iter().for_each(|wc| each(*wc));
                seen += n;
            }
        }
    }
}

fn exchange(mode: Progress, messages: usize) {
    const DEPTH: usize = 64;
    let (ca, cb) = devices(mode);
    let ((channel_a, a), (channel_b, b)) = (with_channel(&ca), with_channel(&cb));
    connect(&a, &b);
    let recv = |b: &Side| b.qp.post_recv(&RecvWr { wr_id: WrId(0), sges: &[b.sge(0, 8)] }).unwrap();
    (0..2 * DEPTH).for_each(|_| recv(&b));
    let receiver = std::thread::spawn(move || {
        take(&channel_b, &b, messages, |wc| {
            assert_eq!(wc.status, WcStatus::Success);
            recv(&b);
        });
        b
    });
    let sge = [a.sge(0, 8)];
    let send = |id: u64| {
        let flags = SendFlags::SIGNALED;
        a.qp.post_send(&SendWr { wr_id: WrId(id), op: SendOp::Send, flags, sges: &sge, inline: &[] }).unwrap();
    };
    let mut posted = DEPTH.min(messages);
    (0..posted).for_each(|i| send(i as u64));
    let mut next = 0;
    take(&channel_a, &a, messages, |wc| {
        assert_eq!((wc.wr_id.0, wc.status), (next, WcStatus::Success));
        next += 1;
        if posted < messages {
            send(posted as u64);
            posted += 1;
        }
    });
    // The receiver's last acknowledgements have left: its completions are there or on their way.
    let b = receiver.join().unwrap();
    drop((a, b));
}

#[test]
fn h27_no_wake_up_is_lost_in_a_million_messages() {
    exchange(Progress::Event, 1_000_000);
}

#[test]
fn no_wake_up_is_lost_in_any_mode() {
    for mode in MODES.into_iter().filter(|mode| *mode != Progress::Inline { helper: false }) {
        exchange(mode, 5_000);
    }
}

#[test]
fn without_a_helper_the_wait_itself_drives() {
    exchange(Progress::Inline { helper: false }, 5_000);
}

fn readable(channel: &CompChannel) -> bool {
    channel.try_get_cq_event().is_some()
}

#[test]
fn one_event_for_each_arming_and_none_for_what_was_there() {
    let (ca, cb) = devices(Progress::Event);
    let ((channel, a), b) = (with_channel(&ca), Side::new(&cb, QpType::Rc, 64));
    connect(&a, &b);
    assert!(channel.as_raw_fd() >= 0);
    (0..4).for_each(|i| b.recv(i, &[]));
    a.send(1, SendOp::Send, &[]);
    a.success(&b, 1);
    assert!(!readable(&channel), "not armed");
    assert!(!a.cq.req_notify(false).unwrap(), "empty");
    a.send(2, SendOp::Send, &[]);
    assert_eq!(channel.get_cq_event(Some(PATIENCE)).unwrap(), Some(a.cq.id()));
    a.success(&b, 2);
    a.send(3, SendOp::Send, &[]);
    a.success(&b, 3);
    assert!(!readable(&channel), "armed once, notified once");
    a.send(4, SendOp::Send, &[]);
    while b.cq.poll_one().unwrap().is_none_or(|wc| wc.wr_id.0 != 3) {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(a.cq.req_notify(false).unwrap(), "something is there: poll again");
    assert!(!readable(&channel));
}

#[test]
fn h27_solicited_only_sleeps_through_the_others() {
    let (ca, cb) = devices(Progress::Event);
    let (a, (channel, b)) = (Side::new(&ca, QpType::Rc, 64), with_channel(&cb));
    connect(&a, &b);
    (0..2).for_each(|i| b.recv(i, &[]));
    b.cq.req_notify(true).unwrap();
    a.send(1, SendOp::Send, &[]);
    a.success(&b, 1);
    assert_eq!(channel.get_cq_event(Some(Duration::from_millis(50))).unwrap(), None);
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    a.qp.post_send(&SendWr { wr_id: WrId(2), op: SendOp::Send, flags, sges: &[], inline: &[] }).unwrap();
    assert_eq!(channel.get_cq_event(Some(PATIENCE)).unwrap(), Some(b.cq.id()));
    assert_eq!(b.cq.drain().count(), 2);
}

/// Report H29.
#[test]
fn a_wait_ends_at_its_deadline_in_every_mode() {
    for mode in MODES {
        let (context, _peer) = devices(mode);
        let (channel, a) = with_channel(&context);
        a.cq.req_notify(false).unwrap();
        let start = Instant::now();
        assert_eq!(channel.get_cq_event(Some(Duration::from_millis(30))).unwrap(), None);
        assert!(start.elapsed() >= Duration::from_millis(30), "{mode:?}");
        assert!(context.get_async_event(Some(Duration::from_millis(1))).unwrap().is_none());
    }
}

#[test]
fn arming_needs_a_channel() {
    let (context, _peer) = devices(Progress::Event);
    let cq = context.create_cq(1).unwrap();
    assert!(cq.req_notify(false).is_err());
}

/// Report H26.
#[test]
fn an_overrun_is_an_event_and_an_error_of_poll() {
    let (ca, cb) = devices(Progress::Event);
    let a = Side::with_cq(&ca, QpType::Rc, 64, ca.create_cq(4).unwrap());
    let b = Side::new(&cb, QpType::Rc, 64);
    connect(&a, &b);
    let capacity = a.cq.capacity();
    let (va, rkey) = (b.mr.addr(), b.mr.rkey());
    (0..=u64::from(capacity)).for_each(|i| a.send(i, SendOp::Write { va, rkey }, &[a.sge(0, 8)]));
    let event = ca.get_async_event(Some(PATIENCE)).unwrap().unwrap();
    assert_eq!(event.kind, xroce::AsyncEventKind::CqErr);
    assert_eq!(event.cq, Some(a.cq.id().0));
    let mut wcs = [Wc::default(); 64];
    assert_eq!(a.cq.poll(&mut wcs).unwrap(), capacity as usize, "what fitted is kept");
    assert_eq!(a.cq.poll(&mut wcs), Err(Overrun { capacity }));
    assert_eq!(a.qp.state(), xroce::QpState::Err);
}

#[test]
fn an_exactly_full_queue_is_fine() {
    let (ca, cb) = devices(Progress::Event);
    let a = Side::with_cq(&ca, QpType::Rc, 64, ca.create_cq(4).unwrap());
    let b = Side::new(&cb, QpType::Rc, 64);
    connect(&a, &b);
    let capacity = u64::from(a.cq.capacity());
    let (va, rkey) = (b.mr.addr(), b.mr.rkey());
    (0..capacity).for_each(|i| a.send(i, SendOp::Write { va, rkey }, &[a.sge(0, 8)]));
    std::thread::sleep(Duration::from_millis(50));
    (0..capacity).for_each(|i| {
        a.success(&b, i);
    });
    assert_eq!(a.qp.state(), xroce::QpState::Rts);
}
