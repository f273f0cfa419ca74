//! xroce against the kernel's rdma_rxe, the core run: one guest and one agent for all tests of this file, which run one
//! after the other. Machines that cannot have a guest skip; `make interop` has the whole matrix.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use xroce_tests::interop::errors::{self, Case};
use xroce_tests::interop::exchange::{self, Operation, exchange, lengths};
use xroce_tests::interop::{Family, Link, LinkSpec, Side, Station, pingpong, station_or_skip, streams};
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
                    println!("{name} {} {} {len}", side.arrow(), operation.name());
                    let at = std::time::Instant::now();
                    exchange(&mut link, side, operation, len, seed);
                    let t = at.elapsed().as_secs_f64();
                    if t > 1.0 {
                        println!("SLOW {name} {} {} {len} {t:.3}", side.arrow(), operation.name());
                    }
                }
            }
        }
        exchange::assert_quiet(&mut link);
    });
}

const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Every length at 1024; the edges of a packet and 64 KiB at the others, with IPv4 and IPv6 in turn.
fn every_mtu(kind: QpKind) {
    for (i, mtu) in MTUS.into_iter().enumerate() {
        if mtu == 1024 {
            for family in Family::BOTH {
                every_operation(kind, family, mtu, |_| true);
            }
        } else {
            every_operation(kind, Family::BOTH[i % 2], mtu, |len| (255..1 << 20).contains(&len));
        }
    }
}

#[test]
fn rc_operations() {
    every_mtu(QpKind::Rc);
}

#[test]
fn uc_operations() {
    every_mtu(QpKind::Uc);
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

#[test]
fn pingpong_of_rdma_core_is_client_and_server() {
    on_station("pingpong", |station| {
        let xroce = pingpong::command();
        station.without_device(|station| {
            for family in Family::BOTH {
                for server in Side::BOTH {
                    for (kind, options) in
                        [("rc", "-n 200 -c"), ("uc", "-n 100"), ("rc", "-n 20 -s 1048576 -m 4096 -c")]
                    {
                        println!("{kind} {family:?}, {server:?} is the server, {options}");
                        pingpong::play(station, &xroce, kind, server, family, options);
                    }
                }
            }
        });
    });
}
