//! xroce against the kernel's rdma_rxe, the core run: one guest and one agent for all tests of this file, which run one
//! after the other. Machines that cannot have a guest skip; `make interop` has the whole matrix.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use xroce_tests::interop::errors::{self, Case};
use xroce_tests::interop::exchange::{self, Operation, exchange, lengths};
use xroce_tests::interop::table::{self, Delivery, Outcome};
use xroce_tests::interop::{Family, Link, LinkSpec, Side, Station, pingpong, scripts, streams};
use xroce_tests::rxe::{Kernel, QpKind, in_namespace, skip_test};

/// The station that all tests of this file use, or `None` after the line that says why this one is skipped.
fn station() -> Option<&'static Mutex<Station>> {
    static STATION: OnceLock<Result<Mutex<Station>, String>> = OnceLock::new();
    let booted = || Station::boot(Kernel::chosen()).map(Mutex::new);
    STATION.get_or_init(booted).as_ref().inspect_err(skip_test).ok()
}

/// Runs one case on it, inside the network namespace of our netdev.
#[track_caller]
fn on(station: &Mutex<Station>, name: &str, delivery: Delivery, case: impl FnMut(&mut Station) + Send) {
    let mut station: MutexGuard<'_, Station> = station.lock().unwrap_or_else(PoisonError::into_inner);
    let station: &mut Station = &mut station;
    let namespace = station.guest.namespace().to_owned();
    // A case that failed may have left them.
    station.faults.clear();
    let from = Instant::now();
    let (outcome, lost) =
        in_namespace(&namespace, || table::outcome(station, delivery, case)).expect("the guest's namespace");
    for lost in lost {
        println!("{name}: begun again: frames lost: {lost}");
    }
    let known = match outcome {
        Outcome::Pass => String::new(),
        Outcome::Tolerated(known) => known.iter().map(|known| format!(" [tolerated: {known}]")).collect(),
        Outcome::Fail(why) => panic!("{name}: {why}"),
    };
    println!("{name}: {:.1} s{known}", from.elapsed().as_secs_f64());
}

const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Every operation of `kind`, both ways: every length at path MTU 1024 with both families; the edges of a packet and 64 KiB
/// at the others, with IPv4 and IPv6 in turn.
fn operations(kind: QpKind) {
    let Some(station) = station() else { return };
    let delivery = Delivery::of(kind);
    for (i, mtu) in MTUS.into_iter().enumerate() {
        for (k, family) in Family::BOTH.into_iter().enumerate() {
            let name = format!("{kind:?} {family:?} {mtu}");
            if mtu == 1024 {
                on(station, &name, delivery, |s| on_link(s, kind, family, mtu, &lengths(mtu)));
            } else if k == i % 2 {
                let some = [mtu - 1, mtu, mtu + 1, 64 << 10];
                on(station, &name, delivery, |s| on_link(s, kind, family, mtu, &some));
            }
        }
    }
}

fn on_link(station: &mut Station, kind: QpKind, family: Family, mtu: u32, lengths: &[u32]) {
    let mut link = Link::new(station, LinkSpec::new(kind, family, mtu));
    let mut seed = u64::from(mtu);
    for side in Side::BOTH {
        for &operation in Operation::of(kind) {
            let lengths = if operation.is_atomic() { &[8] } else { lengths };
            for &len in lengths {
                seed += 1;
                // Seen when it fails.
                println!("{} {} of {len} bytes", side.arrow(), operation.name());
                exchange(&mut link, side, operation, len, seed);
            }
        }
    }
    exchange::assert_quiet(&mut link);
}

/// Reports H13, H39.
#[test]
fn rc_operations() {
    operations(QpKind::Rc);
}

/// Payloads of every length modulo four, where only those of whole words used to agree: pad bytes are in the ICRC at both
/// ends, and in nobody's memory.
#[test]
fn h13_payloads_of_one_to_eight_bytes() {
    let Some(station) = station() else { return };
    let lengths: Vec<u32> = (1..=8).collect();
    for kind in [QpKind::Rc, QpKind::Uc] {
        for family in Family::BOTH {
            on(station, &format!("{kind:?} {family:?}, 1 to 8 bytes"), Delivery::of(kind), |s| {
                on_link(s, kind, family, 1024, &lengths)
            });
        }
    }
}

#[test]
fn uc_operations() {
    operations(QpKind::Uc);
}

/// Each case both ways over both families.
fn all_cases(cases: &[Case]) {
    let Some(station) = station() else { return };
    for family in Family::BOTH {
        for side in Side::BOTH {
            for case in cases {
                let name = format!("{} {family:?}, {}", case.name, side.arrow());
                on(station, &name, case.delivery, |station| (case.run)(station, side, family));
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
    let Some(station) = station() else { return };
    let xroce = pingpong::command();
    for family in Family::BOTH {
        for server in Side::BOTH {
            for (kind, options, delivery) in [
                ("rc", "-n 40 -c", Delivery::Reliable),
                ("uc", "-n 40", Delivery::Unreliable),
                ("rc", "-n 3 -s 1048576 -m 4096 -c", Delivery::Reliable),
            ] {
                on(station, &format!("{kind} {family:?}, {server:?} is the server, {options}"), delivery, |station| {
                    station.without_device(|s| pingpong::play(s, &xroce, kind, server, family, options));
                });
            }
        }
    }
}

/// No rights at either the socket or the process. rxe sends IPv6 without UDP checksums, which a plain socket would not take.
#[test]
fn pingpong_over_udp_sockets_as_nobody() {
    let Some(station) = station() else { return };
    let xroce = pingpong::command();
    for family in Family::BOTH {
        for server in Side::BOTH {
            on(station, &format!("UDP {family:?}, {server:?} is the server"), Delivery::Reliable, |station| {
                station.without_device(|s| pingpong::play_as_nobody(s, &xroce, "rc", server, family, "-n 40 -c"));
            });
        }
    }
}

/// Some of the packet scripts, with their own PSNs, ICRCs and times: `make conformance` plays all.
#[test]
fn packet_scripts() {
    let Some(station) = station() else { return };
    let Some(known) = scripts::known(Kernel::chosen()) else {
        return skip_test(&"nobody has looked yet what this kernel does otherwise than the scripts ask for");
    };
    let xroce = pingpong::command();
    on(station, "packet scripts", Delivery::Reliable, |station| {
        station.without_device(|s| scripts::play(s, &xroce, &known, scripts::SOME));
    });
}
