//! After set-up the data path allocates nothing: SEND, RECV, WRITE, READ and atomics, between two devices and over the inner
//! wire, and polling.

mod common;

use common::{Side, connect, connected, options};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xroce::{Progress, QpType, RecvWr, SendFlags, SendOp, SendWr, Wc, WcStatus, WrId};

/// Counts what is allocated by any thread while it is told to.
struct Counting;

static COUNT: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNT.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as demanded of our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as demanded of our caller.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LEN: usize = 5000;

fn post(side: &Side, id: u64, op: SendOp, len: usize) {
    let sges = [side.sge(0, len)];
    let wr = SendWr { wr_id: WrId(id), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
    side.qp.post_send(&wr).unwrap();
}

fn collect(side: &Side, peer: &Side, mut want: usize) {
    let mut wcs = [Wc::default(); 16];
    while want > 0 {
        let n = side.cq.poll(&mut wcs).unwrap();
        assert!(wcs[..n].iter().all(|wc| wc.status == WcStatus::Success));
        want -= n;
        peer.context.drive();
    }
}

/// A round of every operation.
fn round(a: &Side, b: &Side) {
    let sges = [b.sge(0, LEN)];
    for id in 0..8 {
        b.qp.post_recv(&RecvWr { wr_id: WrId(id), sges: &sges }).unwrap();
        post(a, id, SendOp::Send, LEN);
    }
    collect(a, b, 8);
    let (va, rkey) = (b.mr.addr(), b.mr.rkey());
    for id in 0..8 {
        post(a, id, SendOp::Write { va, rkey }, LEN);
        post(a, id, SendOp::Read { va, rkey }, LEN);
        post(a, id, SendOp::FetchAdd { va, rkey, add: 1 }, 8);
    }
    collect(a, b, 24);
}

fn count(a: &Side, b: &Side, receives: &Side) -> u64 {
    let rounds = |n: usize| {
        (0..n).for_each(|_| {
            round(a, b);
            if !std::ptr::eq(a, receives) {
                collect(receives, a, 8);
            }
        });
    };
    // Whatever grows once, grows now.
    rounds(50);
    ALLOCATIONS.store(0, Ordering::SeqCst);
    COUNT.store(true, Ordering::SeqCst);
    rounds(200);
    COUNT.store(false, Ordering::SeqCst);
    ALLOCATIONS.load(Ordering::SeqCst)
}

// One test: the counter is the process's.
#[test]
fn the_data_path_allocates_nothing() {
    for mode in [Progress::Inline { helper: false }, Progress::Inline { helper: true }, Progress::Event] {
        let (a, b) = connected(mode, QpType::Rc, 8192);
        assert_eq!(count(&a, &b, &b), 0, "{mode:?}, over the wire");
    }
    let (context, _peer) = common::devices(Progress::Inline { helper: true });
    let (a, b) = (Side::new(&context, QpType::Rc, 8192), Side::new(&context, QpType::Rc, 8192));
    connect(&a, &b);
    assert_eq!(count(&a, &b, &b), 0, "over the inner wire");

    let channel = context.create_comp_channel().unwrap();
    let cq = context.create_cq_on(64, &channel).unwrap();
    let c = Side::with_cq(&context, QpType::Rc, 8192, cq);
    let opts = options(0);
    c.qp.connect(&c.qp.endpoint(&opts).unwrap(), &opts).unwrap();
    let event = |id: u64| {
        c.cq.req_notify(false).unwrap();
        let va = c.mr.addr();
        post(&c, id, SendOp::Write { va, rkey: c.mr.rkey() }, 8);
        assert!(channel.get_cq_event(Some(common::PATIENCE)).unwrap().is_some());
        assert_eq!(c.cq.poll_one().unwrap().unwrap().status, WcStatus::Success);
    };
    (0..20).for_each(event);
    ALLOCATIONS.store(0, Ordering::SeqCst);
    COUNT.store(true, Ordering::SeqCst);
    (0..100).for_each(event);
    COUNT.store(false, Ordering::SeqCst);
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0, "through a completion channel");
}
