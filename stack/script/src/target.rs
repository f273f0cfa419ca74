//! What a script is played against.

use xroce_transport::Instant;
use xroce_transport::qp::state::{QpAttr, QpState};
use xroce_transport::wc::Wc;
use xroce_wire::{Gid, Qpn};

use crate::model::{CqSide, MrSpec, QpSetup, Script, Span, Step};
use crate::names::EventName;
use xroce_transport::wr::{SendFlags, SendOp};

/// The device under test, its application, and the wire to it.
///
/// Time is the target's: virtual where the device is in this process, real where it is across a wire. In virtual time all
/// calls but [`next`](Target::next) take place at [`now`](Target::now) and take no time; in real time they take what they take.
pub trait Target {
    /// Why this target cannot play `script`, whatever the device is like; `None`: it can.
    fn cannot_play(&mut self, script: &Script) -> Option<String> {
        let _ = script;
        None
    }

    /// A call or a look that the script asks for has been done; for those who look on.
    fn done(&mut self, step: &Step) {
        let _ = step;
    }

    /// The present.
    fn now(&self) -> Instant;

    /// What is seen is seen when it happens. Otherwise completions and events are seen when somebody looks for them, and two
    /// packets that are due at once come one after the other.
    fn is_exact(&self) -> bool {
        true
    }

    /// The device is known not to raise this event.
    fn lacks_event(&self, event: EventName) -> bool {
        let _ = event;
        false
    }

    /// How much later than it must something that is due after `wait_ns` may be seen. 0 for a wait of 0 means: in the same
    /// instant. `stated`: the script itself says how late it may come.
    fn slack_ns(&self, wait_ns: u64, stated: bool) -> u64;

    /// How much earlier than it may something that is due after `wait_ns` may be seen: what the clocks and the way to the
    /// device add to a first event and not to the second.
    fn early_ns(&self, wait_ns: u64) -> u64 {
        let _ = wait_ns;
        0
    }

    /// Until when to look, from `since` on, before it is certain that the device does nothing more about what came last. At
    /// `limit`, if there is one, it is to do something by itself.
    fn settled_at(&self, since: Instant, limit: Option<Instant>) -> Instant {
        let _ = limit;
        since
    }

    /// The ACK timeout code that is used in place of `code`.
    fn ack_timeout(&self, code: u8) -> u8 {
        code
    }

    /// What is broken between the script and the device, if anything is: then nothing more can be said of the device.
    fn trouble(&mut self) -> Option<String> {
        None
    }

    /// Makes the queue pair and brings it to its state.
    ///
    /// # Errors
    /// Why not.
    fn create(&mut self, setup: &QpSetup) -> Result<Connection, String>;

    /// The application registers memory, which holds the bytes of `spec.fill` then.
    ///
    /// # Errors
    /// Why the device refuses.
    fn register(&mut self, spec: &MrSpec) -> Result<Registered, String>;

    /// The application takes a registration back. Its bytes can still be read and written.
    ///
    /// # Errors
    /// Why the device refuses.
    fn deregister(&mut self, name: &str) -> Result<(), String>;

    /// The application posts a send request.
    ///
    /// # Errors
    /// Why the device refuses.
    fn post_send(&mut self, wr: &SendRequest) -> Result<(), String>;

    /// The application posts a receive request.
    ///
    /// # Errors
    /// Why the device refuses.
    fn post_recv(&mut self, wr: &RecvRequest) -> Result<(), String>;

    /// The words of a refusal are those of this repository, so that a script may ask for them.
    fn refuses_in_words(&self) -> bool {
        true
    }

    /// The application modifies the queue pair. An `ah_attr` stands for the address of the script, whatever it says.
    ///
    /// # Errors
    /// Why the device refuses.
    fn modify(&mut self, attr: &QpAttr) -> Result<(), String>;

    /// The application asks to be woken.
    fn arm(&mut self, side: CqSide, solicited_only: bool);

    /// A packet, from the IP header on, reaches the device.
    fn deliver(&mut self, packet: &[u8]);

    /// The next thing that the device does, not later than `until`; `None` if it does nothing, and then it is `until`.
    fn next(&mut self, until: Instant) -> Option<Seen>;

    /// Bytes of the application's memory.
    fn read(&mut self, span: &Span) -> Vec<u8>;

    /// The application writes to its memory.
    fn write(&mut self, span: &Span, bytes: &[u8]);

    /// A counter of the queue pair; `None` if this device does not tell that.
    fn counter(&mut self, name: &str) -> Option<u64>;

    /// Packets dropped for a reason; `None` if this device does not tell that.
    fn dropped(&mut self, reason: &str) -> Option<u64>;

    /// An attribute of the queue pair; `None` if it is not set or not known.
    fn attribute(&mut self, name: &str) -> Option<u64>;

    /// The state of the queue pair; `None` if this device does not tell.
    fn state(&mut self) -> Option<QpState>;

    /// Names of regions beside which something was written. Empty if this device cannot tell.
    fn trampled(&mut self) -> Vec<String>;
}

/// What a connection is known by on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// The device's queue pair.
    pub qpn: Qpn,
    /// The device's address.
    pub device: Gid,
    /// The script's address.
    pub peer: Gid,
}

/// How a registered region is named.
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    /// Its first address.
    pub va: u64,
    /// Its key, local and remote.
    pub key: u32,
}

/// A send request whose numbers are known.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The application's number.
    pub id: u64,
    /// What to do.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// Where bytes come from, or go to.
    pub sges: Vec<Span>,
    /// With inline bytes: them.
    pub inline: Option<Vec<u8>>,
    /// A local key in place of those of the regions.
    pub lkey: Option<u32>,
}

/// A receive request whose numbers are known.
#[derive(Clone, Debug)]
pub struct RecvRequest {
    /// The application's number.
    pub id: u64,
    /// Where bytes go.
    pub sges: Vec<Span>,
    /// A local key in place of those of the regions.
    pub lkey: Option<u32>,
}

/// Something the device did.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// What.
    pub what: What,
}

/// What a device can do.
#[derive(Clone, Debug)]
pub enum What {
    /// It sent a packet, given from the IP header on.
    Packet(Vec<u8>),
    /// It completed a request.
    Completion(CqSide, Wc),
    /// It raised an event.
    Event(EventName),
}
