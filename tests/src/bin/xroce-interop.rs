//! The whole matrix of xroce against the kernel's rdma_rxe in one kernel (`make interop` runs it for each): every operation
//! both ways, IPv4 and IPv6, every path MTU, every length; errors; many requests at once; loss; pingpong. A row a line as
//! it goes, then a table. Exit status 0: nothing failed; 1: something did; 77: this machine can have no such guest.
//!
//! Usage: xroce-interop 6.1|6.12|bpo|uml \[WORD\]: only the rows whose name contains WORD.

use std::process::ExitCode;

use xroce_tests::interop::exchange::{self, Operation, exchange, lengths};
use xroce_tests::interop::table::{Delivery, Table};
use xroce_tests::interop::{
    Family, Known, Link, LinkSpec, Side, Station, WAIT, edges, errors, killed, pingpong, streams,
};
use xroce_tests::rxe::{Kernel, QpKind, in_namespace};

const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
const LARGE: u32 = 64 << 20;
/// What a guest needs to have its memory twice.
const GUEST_MIB: u32 = 1024;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (name, word) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let kernel = match name.as_str() {
        "6.1" => Kernel::V6_1,
        "6.12" => Kernel::V6_12,
        "bpo" => Kernel::Backports,
        "uml" => Kernel::UserMode,
        _ => {
            eprintln!("usage: xroce-interop 6.1|6.12|bpo|uml [WORD]");
            return ExitCode::from(2);
        }
    };
    let mut table = Table::default();
    // More than once only if the guest does not live to the end.
    loop {
        let mut station = match Station::boot_with(kernel, GUEST_MIB, LARGE as usize + (64 << 10)) {
            Ok(station) => station,
            Err(why) if table.has_begun() => panic!("no further guest: {why}"),
            Err(why) => {
                println!("SKIP interop with kernel {name}: {why}");
                return ExitCode::from(77);
            }
        };
        let namespace = station.guest.namespace().to_owned();
        println!("kernel {name}: {}", station.guest.run("uname -r").stdout.trim());
        in_namespace(&namespace, || matrix(kernel, &mut station, &word, &mut table)).expect("the guest's namespace");
        if !table.continued() {
            break;
        }
    }
    println!("\nkernel {name}:\n{table}");
    if table.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn matrix(kernel: Kernel, station: &mut Station, word: &str, table: &mut Table) {
    let max_message = u32::try_from(station.peer_max_message()).map_or(LARGE, |max| max.min(LARGE));
    let mut rows = Rows { kernel, max_message, station, table, word };
    for kind in [QpKind::Rc, QpKind::Uc] {
        for family in Family::BOTH {
            for mtu in MTUS {
                rows.operations(kind, family, mtu);
            }
        }
    }
    rows.large();
    rows.cases();
    // Closed once for all of them: they are other programs.
    station.without_device(|station| Rows { kernel, max_message, station, table, word }.pingpong());
}

/// The operations that have a length, in each direction.
fn lasting(kind: QpKind) -> impl Iterator<Item = (Side, Operation)> {
    let operations = Operation::of(kind).iter().filter(|operation| !operation.is_atomic());
    operations.flat_map(|&operation| Side::BOTH.map(|side| (side, operation)))
}

struct Rows<'a> {
    kernel: Kernel,
    /// Bytes of the longest message to be tried.
    max_message: u32,
    station: &'a mut Station,
    table: &'a mut Table,
    word: &'a str,
}

impl Rows<'_> {
    fn run(&mut self, name: &str, delivery: Delivery, row: impl FnMut(&mut Station)) {
        if name.contains(self.word) {
            self.table.run(name, self.station, delivery, row);
        }
    }

    /// A row has all lengths of one operation in one direction, on a link of its own.
    fn operations(&mut self, kind: QpKind, family: Family, mtu: u32) {
        for side in Side::BOTH {
            for &operation in Operation::of(kind) {
                let name = format!("{kind:?} {family:?} {mtu} {} {}", side.arrow(), operation.name());
                self.run(&name, Delivery::of(kind), |station| {
                    let mut link = Link::new(station, LinkSpec::new(kind, family, mtu));
                    let lengths = if operation.is_atomic() { vec![8] } else { lengths(mtu).to_vec() };
                    for (seed, len) in (u64::from(mtu)..).zip(lengths) {
                        exchange(&mut link, side, operation, len, seed);
                    }
                    exchange::assert_quiet(&mut link);
                });
            }
        }
    }

    /// 64 MiB each, or the longest that the peer takes: over both families, or over them in turn where the guest's CPUs are
    /// emulated and each takes 10 s and more.
    fn large(&mut self) {
        let len = self.max_message;
        let in_turn = self.kernel != Kernel::UserMode;
        for (f, family) in Family::BOTH.into_iter().enumerate() {
            for kind in [QpKind::Rc, QpKind::Uc] {
                for (i, (side, operation)) in lasting(kind).enumerate() {
                    // Pairs of an operation's two directions: one over IPv4, one over IPv6, and the other way round in the next pair.
                    if in_turn && (i + i / 2) % 2 != f {
                        continue;
                    }
                    let (arrow, mib) = (side.arrow(), len >> 20);
                    let name = format!("{kind:?} {family:?} 4096 {arrow} {} {mib} MiB", operation.name());
                    self.run(&name, Delivery::of(kind), |station| {
                        if len < LARGE {
                            station.tolerated.push(Known::MessageSizeOf8MiB);
                        }
                        // An emulated guest on a busy machine takes no more than some 2 MiB a second.
                        let spec = LinkSpec { wait: 5 * WAIT, ..LinkSpec::new(kind, family, 4096) };
                        exchange(&mut Link::new(station, spec), side, operation, len, 64);
                    });
                }
            }
        }
    }

    fn cases(&mut self) {
        for cases in [errors::CASES, edges::CASES, killed::CASES, streams::CASES, streams::LOSS_CASES] {
            for family in Family::BOTH {
                for side in Side::BOTH {
                    for case in cases {
                        let name = format!("{} {family:?}, {}", case.name, side.arrow());
                        self.run(&name, case.delivery, |station| (case.run)(station, side, family));
                    }
                }
            }
        }
    }

    fn pingpong(&mut self) {
        let xroce = pingpong::command();
        for family in Family::BOTH {
            for server in Side::BOTH {
                let who = if server == Side::Peer { "xroce is the client" } else { "xroce is the server" };
                let name = format!("ibv_rc_pingpong {family:?} over UDP sockets as nobody, {who}");
                let play = |s: &mut Station| pingpong::play_as_nobody(s, &xroce, "rc", server, family, "-n 100 -c");
                self.run(&name, Delivery::Reliable, play);
            }
        }
        for (kind, delivery) in [("rc", Delivery::Reliable), ("uc", Delivery::Unreliable)] {
            for family in Family::BOTH {
                for server in Side::BOTH {
                    for mtu in MTUS {
                        let who = if server == Side::Peer { "xroce is the client" } else { "xroce is the server" };
                        let name = format!("ibv_{kind}_pingpong {family:?} {mtu}, {who}");
                        let options = format!("-n 100 -s 10000 -m {mtu}");
                        self.run(&name, delivery, |s| pingpong::play(s, &xroce, kind, server, family, &options));
                    }
                }
            }
        }
    }
}
