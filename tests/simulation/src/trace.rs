//! What happened in a run, as lines to read.
//!
//! In: packets and remarks. Out: nothing while it is off, which costs nothing; else the lines.

use xroce_wire::Packet;

/// A record of a run, or none.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    on: bool,
}

impl Trace {
    /// Keeps nothing.
    pub fn off() -> Trace {
        Trace { on: false }
    }

    /// Prints every line to standard output as it comes, so that a panic loses none.
    pub fn printing() -> Trace {
        Trace { on: true }
    }

    pub(crate) fn line(&self, now: u64, what: impl FnOnce() -> String) {
        if self.on {
            println!("{:>14.3} us  {}", now as f64 / 1000.0, what());
        }
    }

    pub(crate) fn packet(&self, now: u64, verb: &str, end: usize, other: usize, packet: &Packet<'_>) {
        self.line(now, || {
            let mut text = format!("end {end} {verb} {} psn {:#x}", packet.opcode().name(), packet.psn().value());
            if packet.bth().ack_req {
                text += " A";
            }
            if let Some(reth) = packet.reth() {
                text += &format!(" va {:#x} len {}", reth.va, reth.len);
            }
            if let Some(aeth) = packet.aeth() {
                text += &format!(" {:?} msn {}", aeth.syndrome, aeth.msn.value());
            }
            if packet.payload_len() > 0 {
                text += &format!(" ({} bytes)", packet.payload_len());
            }
            text + &format!(" [{} end {other}]", if verb == "sends" { "to" } else { "from" })
        });
    }
}
