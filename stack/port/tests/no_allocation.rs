//! Once warm, a frame over a perfect network or a pipe costs no allocation, also through wrappers that are quiet.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{A, B};
use xroce_port::fault::Fault;
use xroce_port::sim::{LinkModel, PipeConfig, loop_pair, pair};
use xroce_port::trace::{Trace, ethernet_summary};
use xroce_port::{Port, TxClass};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system's allocator as it came; counting touches a thread-local cell that needs
// neither initialisation nor drop, so it allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A burst one way.
fn one_way(from: &mut impl Port, to: &mut impl Port, dst: [u8; 6], clock: &impl Fn()) {
    for _ in 0..32 {
        let frame = from.tx_reserve(1500, TxClass::Request).expect("room");
        frame.head[..6].copy_from_slice(&dst);
        from.tx_commit(1500);
    }
    from.tx_flush();
    clock();
    assert_eq!(to.rx_burst(64), 32);
    assert_eq!(to.rx_frame(31).head[..6], dst);
    to.rx_release();
    from.tx_flush();
    assert_eq!(to.link(), None);
}

fn allocations_when_warm(mut a: impl Port, mut b: impl Port, clock: impl Fn()) -> u64 {
    for _ in 0..8 {
        one_way(&mut a, &mut b, B, &clock);
        one_way(&mut b, &mut a, A, &clock);
    }
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..100 {
        one_way(&mut a, &mut b, B, &clock);
        one_way(&mut b, &mut a, A, &clock);
    }
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn a_warm_data_path_allocates_nothing() {
    let warm_up = ALLOCATIONS.with(Cell::get);
    drop(Box::new(7));
    assert!(ALLOCATIONS.with(Cell::get) > warm_up, "the counter counts");

    let (_net, a, b) = pair(1);
    assert_eq!(allocations_when_warm(a, b, || ()), 0, "perfect network");

    let (a, b) = loop_pair(&PipeConfig::default()).expect("descriptors");
    assert_eq!(allocations_when_warm(a, b, || ()), 0, "pipe");

    let wrap = |port| Trace::new(Fault::new(port, 1), "x", ethernet_summary);
    let (_net, a, b) = pair(1);
    assert_eq!(allocations_when_warm(wrap(a), wrap(b), || ()), 0, "quiet wrappers");

    let (net, a, b) = pair(1);
    let model = LinkModel { delay_min_ns: 10, delay_max_ns: 90, rate_bps: Some(1 << 40), ..LinkModel::default() };
    net.set_every_link(&model).expect("sound");
    assert_eq!(allocations_when_warm(a, b, || net.advance_to(net.now() + 10_000)), 0, "delay and rate");
}
