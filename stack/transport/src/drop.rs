//! Why a received packet changed nothing. Every variant has a counter (see [`DropCounters`]) and a test.

use xroce_wire::WireError;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a packet was dropped. Steps as in the receiver's order of checks (IBTA, header validation).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[$doc])* $variant,)* }

        impl DropReason {
            /// All reasons, in the order of the checks.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];

            /// The name of the counter, in snake case.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }
        }
    };
}

drop_reasons! {
    /// The IP, UDP or transport headers are malformed, or a length disagrees.
    Malformed = "malformed",
    /// A congestion notification packet; counted, not acted upon.
    Cnp = "cnp_ignored",
    /// No queue pair with that number.
    UnknownQp = "unknown_qp",
    /// The opcode belongs to another transport than the queue pair.
    WrongTransport = "wrong_transport",
    /// The queue pair's state takes no such packet.
    WrongState = "wrong_state",
    /// Source or destination address differ from the queue pair's address vector.
    WrongAddress = "wrong_address",
    /// The P_Key does not match.
    WrongPKey = "wrong_pkey",
    /// The ICRC is wrong.
    BadIcrc = "bad_icrc",
    /// RC request ahead of the expected PSN; a NAK was sent or is under way.
    PsnAhead = "psn_ahead",
    /// RC request behind the expected PSN that could not be answered again.
    DuplicateTooOld = "duplicate_too_old",
    /// UC: not part of an open message.
    UcOutOfSequence = "uc_out_of_sequence",
    /// The opcode does not follow the last one, or is not allowed on this queue pair.
    InvalidRequest = "invalid_request",
    /// No RECV was posted.
    ReceiverNotReady = "receiver_not_ready",
    /// The lengths of the packet, the message and the receive buffer do not agree.
    BadLength = "bad_length",
    /// R_Key, range or right failed.
    RemoteAccess = "remote_access",
    /// A RECV's own buffer could not be written.
    LocalFault = "local_fault",
    /// A response for a PSN that was acknowledged before.
    StaleResponse = "stale_response",
    /// A response for a PSN that was never sent.
    GhostResponse = "ghost_response",
    /// A response with a reserved syndrome or NAK code.
    ReservedSyndrome = "reserved_syndrome",
    /// A NAK that was answered before, or that came during an RNR wait.
    NakIgnored = "nak_ignored",
    /// A READ response or an ACK that skipped one: the request is sent again.
    ResponseGap = "response_gap",
    /// A response that does not fit the request (opcode or length): the request failed.
    BadResponse = "bad_response",
}

impl From<WireError> for DropReason {
    fn from(_: WireError) -> Self {
        DropReason::Malformed
    }
}

/// One counter a reason.
#[derive(Clone, Debug)]
pub struct DropCounters([u64; DropReason::ALL.len()]);

impl Default for DropCounters {
    fn default() -> Self {
        DropCounters([0; DropReason::ALL.len()])
    }
}

impl DropCounters {
    /// Counts one packet.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Adds `other`, reason by reason.
    pub fn add(&mut self, other: &DropCounters) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, more)| *mine += more);
    }

    /// Packets dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.get(r)))
    }
}
