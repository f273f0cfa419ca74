//! What the program did with the frames it saw. What enters: the per-CPU map's bytes. What leaves: sums.

use std::ops::AddAssign;

/// Frames seen by the program since it was loaded, by what became of them. All CPUs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handed to an AF_XDP socket.
    pub redirected: u64,
    /// Left to the kernel: not UDP to port 4791, or too short to tell.
    pub passed_other: u64,
    /// Left to the kernel: an IPv4 fragment.
    pub passed_fragment: u64,
    /// Left to the kernel: an IPv4 header that is not 20 bytes long.
    pub passed_options: u64,
    /// Left to the kernel: port 4791 of an address that is not ours.
    pub passed_foreign: u64,
    /// Left to the kernel: ours, but the receive queue has no socket.
    pub passed_no_socket: u64,
    /// Dropped because the program was loaded with [`crate::Faults`].
    pub dropped_on_purpose: u64,
    /// One bit flipped because the program was loaded with [`crate::Faults`]. Counted as redirected too.
    pub corrupted_on_purpose: u64,
}

const FIELDS: usize = 8;
/// Bytes of the map's value: `struct counters` in roce.bpf.c.
pub(crate) const VALUE_LEN: usize = 8 * FIELDS;

impl Counters {
    /// Reads one CPU's value; `None` when it has another size than the program's `struct counters`.
    pub(crate) fn from_value(bytes: &[u8]) -> Option<Counters> {
        let bytes: &[u8; VALUE_LEN] = bytes.try_into().ok()?;
        let field = |i: usize| u64::from_ne_bytes(std::array::from_fn(|b| bytes[8 * i + b]));
        Some(Counters {
            redirected: field(0),
            passed_other: field(1),
            passed_fragment: field(2),
            passed_options: field(3),
            passed_foreign: field(4),
            passed_no_socket: field(5),
            dropped_on_purpose: field(6),
            corrupted_on_purpose: field(7),
        })
    }

    /// Frames left to the kernel, for whatever reason.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed_other + self.passed_fragment + self.passed_options + self.passed_foreign + self.passed_no_socket
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.redirected += other.redirected;
        self.passed_other += other.passed_other;
        self.passed_fragment += other.passed_fragment;
        self.passed_options += other.passed_options;
        self.passed_foreign += other.passed_foreign;
        self.passed_no_socket += other.passed_no_socket;
        self.dropped_on_purpose += other.dropped_on_purpose;
        self.corrupted_on_purpose += other.corrupted_on_purpose;
    }
}
