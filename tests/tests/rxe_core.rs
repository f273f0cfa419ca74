//! xroce against the kernel's rdma_rxe, the core run: one guest and one agent for all tests of this file, which run one
//! after the other. Machines that cannot have a guest skip; `make interop` has the whole matrix.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use xroce_tests::interop::errors::{self, Case};
use xroce_tests::interop::exchange::{self, Operation, exchange, lengths};
use xroce_tests::interop::{Family, Link, LinkSpec, Side, Station, station_or_skip, streams};
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

/// Every operation of `kind`, both ways, with the lengths that `wanted` picks.
fn every_operation(kind: QpKind, family: Family, mtu: u32, wanted: fn(u32) -> bool) {
    let name = format!("{kind:?} {family:?} {mtu}");
    on_station(&name, |station| {
        let mut link = Link::new(station, LinkSpec::new(kind, family, mtu));
        let mut seed = u64::from(mtu);
        for side in Side::BOTH {
            for &operation in Operation::of(kind) {
                for len in lengths(mtu).into_iter().filter(|&len| wanted(len)) {
                    seed += 1;
                    let at = std::time::Instant::now();
                    exchange(&mut link, side, operation, len, seed);
                    println!("{name} {} {} {len}: {:.3}", side.arrow(), operation.name(), at.elapsed().as_secs_f64());
                }
            }
        }
        exchange::assert_quiet(&mut link);
    });
}

#[test]
fn rc_operations() {
    for family in Family::BOTH {
        every_operation(QpKind::Rc, family, 1024, |_| true);
    }
}

#[test]
fn uc_operations() {
    for family in Family::BOTH {
        every_operation(QpKind::Uc, family, 1024, |_| true);
    }
}

/// Each case both ways over both families.
fn all_cases(cases: &[Case]) {
    for family in Family::BOTH {
        for side in Side::BOTH {
            for case in cases {
                let name = format!("{} {family:?}, {}", case.name, side.arrow());
                on_station(&name, |station| (case.run)(station, side, family));
            }
        }
    }
}

#[test]
fn errors_have_their_status() {
    all_cases(errors::CASES);
}

#[test]
fn many_requests_at_once() {
    all_cases(streams::CASES);
}

#[test]
fn nothing_is_lost_under_loss() {
    all_cases(streams::LOSS_CASES);
}
