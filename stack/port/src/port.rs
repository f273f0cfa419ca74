//! The [`Port`] trait and the values it speaks in.
//!
//! What enters: nothing; this is the contract between an engine and whatever carries its frames. What leaves: lent
//! receive frames, reserved transmit frames, and what the port knows of itself (capabilities, counters, link changes).

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::os::fd::RawFd;

/// The smallest head piece of a reserved transmit frame that is at least this long, in bytes: headers and a small
/// payload always lie in the head.
pub const TX_HEAD_MIN: usize = 2048;

/// How an AF_XDP port sits on its netdev: what was got, not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdpMode {
    /// The program runs in the driver (native). Otherwise it runs on the socket buffer (generic, SKB mode).
    pub native: bool,
    /// The kernel confirmed zero-copy on every queue. Otherwise frames are copied between kernel and UMEM.
    pub zero_copy: bool,
    /// Frames longer than one chunk arrive and leave in pieces (XDP_USE_SG, kernel 6.6 and later).
    pub multi_buffer: bool,
    /// The rings carry the need-wakeup flag, so a system call is made only when the driver asks for it.
    pub need_wakeup: bool,
    /// The UMEM of every queue lies in huge pages.
    pub huge_pages: bool,
    /// Why the driver did not take the program, where native was tried and generic was got.
    pub fallback: Option<String>,
}

/// What a port can do. Fixed while the port is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The netdev's MTU: bytes of the largest IP packet, without Ethernet header and VLAN tags.
    pub mtu: u32,
    /// The longest frame that can both enter and leave, in bytes from the Ethernet header on, without FCS. It may be less than `mtu` plus headers: a netdev at MTU 9000 without multi-buffer receives no more than
    /// one chunk. An engine must refuse a path MTU whose largest frame is longer.
    pub max_frame: usize,
    /// Receive queues served, 1 or more.
    pub queues: u32,
    /// The hardware address of the netdev; all zero where there is none.
    pub mac: [u8; 6],
    /// How AF_XDP sits on the netdev; `None` for every other kind of port.
    pub xdp: Option<XdpMode>,
}

impl Capabilities {
    /// The largest IP packet that can both enter and leave, in bytes, when each frame carries `vlan_tags` tags of 4
    /// bytes: the smaller of the MTU and what fits [`Capabilities::max_frame`].
    #[must_use]
    pub fn max_ip_packet(&self, vlan_tags: usize) -> usize {
        self.max_frame.saturating_sub(14 + 4 * vlan_tags).min(self.mtu as usize)
    }
}

/// A received frame, lent until [`Port::rx_release`]. All headers lie in `head`; `tail` is empty for a frame in one
/// piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxFrame<'a> {
    /// The first piece, from the Ethernet header on.
    pub head: &'a [u8],
    /// The second piece: it continues where `head` ends.
    pub tail: &'a [u8],
}

impl RxFrame<'_> {
    /// Bytes in both pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Neither piece holds a byte. No port lends such a frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A reserved frame to write into: exactly the asked length in all, and at least `min(len, TX_HEAD_MIN)` of it in
/// `head`. The bytes hold whatever an earlier frame left; every byte that is committed must be written.
#[derive(Debug, PartialEq, Eq)]
pub struct TxFrame<'a> {
    /// The first piece, from the Ethernet header on.
    pub head: &'a mut [u8],
    /// The second piece: it continues where `head` ends. Empty when all fits the head.
    pub tail: &'a mut [u8],
}

impl TxFrame<'_> {
    /// Bytes in both pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Neither piece holds a byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a frame is for. A port whose transmit slots are bounded keeps some for responses, so that a flood of requests
/// cannot hold back the acknowledgements that would end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxClass {
    /// A request packet: may be refused while slots are still kept for responses.
    Request,
    /// An acknowledge, NAK, READ or atomic response, CNP: may use every slot.
    Response,
}

/// A change of the port's link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkChange {
    /// Frames pass again.
    Up,
    /// Frames do not pass for now; the port keeps trying.
    Down,
    /// The port is dead for good (netdev removed, program detached, socket error). The text says why. Nothing enters
    /// or leaves any more; a new port has to be opened.
    Gone(Cow<'static, str>),
}

/// What has passed and what was lost since the port was opened. Frames unless the name says bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames lent to the engine.
    pub rx_frames: u64,
    /// Bytes of those frames.
    pub rx_bytes: u64,
    /// Frames committed by the engine.
    pub tx_frames: u64,
    /// Bytes of those frames.
    pub tx_bytes: u64,
    /// Frames dropped on arrival: in more than two pieces, or with headers that do not lie in the first.
    pub rx_dropped_pieces: u64,
    /// Descriptors ignored on arrival: zero length, or outside the memory shared with the kernel.
    pub rx_dropped_invalid: u64,
    /// Frames the kernel or the network dropped before this port could take them: receive ring full, no room for the
    /// frame in a chunk, a simulated loss.
    pub rx_dropped_lower: u64,
    /// Times the kernel found no empty buffer to receive into.
    pub rx_no_buffer: u64,
    /// Frames the kernel refused to send as malformed, and completions of frames that were not out for sending.
    pub tx_errors: u64,
    /// Frames dropped on their way out by the port or a wrapper: link down or gone, an injected loss.
    pub tx_dropped: u64,
    /// [`Port::tx_reserve`] calls answered with `None`.
    pub tx_refused: u64,
    /// System calls made to have frames sent.
    pub kicks: u64,
    /// Those of them that the kernel answered with "try again".
    pub kicks_again: u64,
    /// System calls made to wake the receive side.
    pub rx_wakeups: u64,
    /// Frames that the XDP program left to the kernel: not RoCE, fragments, IPv4 options, another address. 0 elsewhere.
    pub rx_left_to_kernel: u64,
    /// Frames that the XDP program dropped because it was told to (`xdp::Faults`).
    pub rx_faults_dropped: u64,
    /// Frames in which the XDP program flipped a bit because it was told to.
    pub rx_faults_corrupted: u64,
}

impl PortCounters {
    /// Adds those of another port.
    pub fn add(&mut self, other: &PortCounters) {
        macro_rules! sum {
            ($($field:ident)*) => { $(self.$field += other.$field;)* };
        }
        sum! {
            rx_frames rx_bytes tx_frames tx_bytes rx_dropped_pieces rx_dropped_invalid rx_dropped_lower rx_no_buffer tx_errors
            tx_dropped tx_refused kicks kicks_again rx_wakeups rx_left_to_kernel rx_faults_dropped rx_faults_corrupted
        }
    }
}

/// Where frames enter and leave: one netdev with all its queues, or a set of them, or one end of a simulated wire.
///
/// A port is used by one thread at a time and never blocks. The order of one round is: `rx_burst`, `rx_frame` for each,
/// `rx_release`; `tx_reserve` + `tx_commit` for each frame to send; `tx_flush`; `link`.
pub trait Port: Send {
    /// What the port can do.
    fn capabilities(&self) -> &Capabilities;

    /// Takes up to `max` frames from the wire and returns how many. They stay lent until [`Port::rx_release`], which
    /// is implied when the burst before was not released.
    fn rx_burst(&mut self, max: usize) -> usize;

    /// Frame `i` of the last burst.
    ///
    /// # Panics
    /// When `i` is not less than what `rx_burst` returned, or the burst was released.
    fn rx_frame(&self, i: usize) -> RxFrame<'_>;

    /// The engine has dropped frame `i` of the last burst, and why: for captures. Not on the path of frames that are good.
    fn rx_dropped(&mut self, i: usize, reason: &'static str) {
        let _ = (i, reason);
    }

    /// Gives all frames of the last burst back. Harmless when there are none.
    fn rx_release(&mut self);

    /// Reserves a frame of `len` bytes to write into. `None` when no frame is free, the in-flight bound is reached, the
    /// link is gone, or `len` is 0 or more than [`Capabilities::max_frame`]: try again after [`Port::tx_flush`].
    ///
    /// At most one frame is reserved at a time: a reservation that was not committed is void at the next call, and its
    /// buffer is kept.
    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>>;

    /// The reserved frame is to be sent with its first `len` bytes, counted over head and tail.
    ///
    /// # Panics
    /// When nothing is reserved, or `len` is 0 or more than was reserved.
    fn tx_commit(&mut self, len: usize);

    /// Has the committed frames sent (the kick), and collects buffers of frames that have left. Bounded work; what the
    /// lower layer does not take now stays for the next call.
    fn tx_flush(&mut self);

    /// Nothing committed is waiting for a kick.
    fn tx_idle(&self) -> bool;

    /// Appends the descriptors that become readable when a frame may be waiting: none once the link is
    /// [`LinkChange::Gone`]. Poll them for reading only: they are nearly always writable.
    fn wait_fds(&self, out: &mut Vec<RawFd>);

    /// To be called right before sleeping on [`Port::wait_fds`].
    fn before_wait(&mut self) {}

    /// To be called right after sleeping on [`Port::wait_fds`].
    fn after_wait(&mut self) {}

    /// What has passed and what was lost. May make system calls: not for the hot path.
    fn counters(&self) -> PortCounters;

    /// The next link change seen since the last call: to be called until `None`. After [`LinkChange::Gone`] there is
    /// no further one.
    fn link(&mut self) -> Option<LinkChange>;

    /// The time in nanoseconds since an arbitrary start, where the port lives in virtual time; `None` means the real
    /// clock.
    fn now_hint(&self) -> Option<u64> {
        None
    }
}
