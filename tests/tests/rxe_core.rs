//! xroce against the kernel's rdma_rxe, the core run: one guest and one agent for all tests of this file, which run one
//! after the other. Machines that cannot have a guest skip; `make interop` has the whole matrix.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use xroce_tests::interop::exchange::{self, Operation, exchange};
use xroce_tests::interop::{Family, Link, LinkSpec, Side, Station, station_or_skip};
use xroce_tests::rxe::{Kernel, QpKind, in_namespace};

/// Runs `test` on the station, inside the network namespace of our netdev.
fn on_station(name: &str, test: impl FnOnce(&mut Station) + Send) {
    static STATION: OnceLock<Option<Mutex<Station>>> = OnceLock::new();
    let booted = || station_or_skip(name, Kernel::chosen()).map(Mutex::new);
    let Some(station) = STATION.get_or_init(booted) else { return };
    let mut station: MutexGuard<'_, Station> = station.lock().unwrap_or_else(PoisonError::into_inner);
    let station: &mut Station = &mut station;
    let namespace = station.guest.namespace().to_owned();
    let from = std::time::Instant::now();
    in_namespace(&namespace, || test(station)).expect("the guest's namespace");
    println!("{name}: {:.1} s", from.elapsed().as_secs_f64());
}

#[test]
fn one_send_each_way() {
    on_station("one_send_each_way", |station| {
        let mut link = Link::new(station, LinkSpec::new(QpKind::Rc, Family::V4, 1024));
        for side in Side::BOTH {
            exchange(&mut link, side, Operation::Send, 64, 1);
        }
        exchange::assert_quiet(&mut link);
    });
}
