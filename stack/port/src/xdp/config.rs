//! What an AF_XDP port is asked to be. What enters: the user's wishes. What leaves: values that were checked against
//! each other, before any system call.

#![forbid(unsafe_code)]

use super::error::OpenError;
use std::net::IpAddr;
pub use xroce_xdp_prog::{AttachMode, Faults};

/// Which receive queues of the netdev to serve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Queues {
    /// Every queue the netdev has now. The right choice unless RoCE traffic is steered to certain queues.
    #[default]
    All,
    /// These, counted from 0, each once. RoCE frames on other queues go to the kernel.
    List(Vec<u32>),
}

/// Whether driver and socket share the frames' memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ZeroCopy {
    /// When the driver can. At an MTU whose frames do not fit one chunk (above 3822), multi-buffer in copy mode goes
    /// before zero-copy without it.
    #[default]
    Auto,
    /// Or the port does not open.
    Force,
    /// Never.
    Off,
}

/// Whether frames longer than one chunk pass, in pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MultiBuffer {
    /// When the kernel can (program: 5.18, socket: 6.6).
    #[default]
    Auto,
    /// Never: then path MTU 4096 cannot be used, and drivers refuse the program at large MTUs.
    Off,
}

/// How to open an [`super::XdpPort`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdpConfig {
    /// The netdev, in the network namespace of the thread that opens the port.
    pub ifname: String,
    /// The receive queues to serve. Default: all.
    pub queues: Queues,
    /// Where the XDP program is to run. Default: in the driver, else generic.
    pub mode: AttachMode,
    /// Whether driver and socket share memory. Default: when the driver can.
    pub zero_copy: ZeroCopy,
    /// Whether frames longer than one chunk pass. Default: when the kernel can.
    pub multi_buffer: MultiBuffer,
    /// Descriptors in the receive and the fill ring of a queue, and buffers to receive into: a power of two from 64 to
    /// 32768. Default 2048 (8 MiB a queue).
    ///
    /// What arrives while nobody runs the device must fit, or is lost: a frame takes one descriptor, or two if it is longer
    /// than a chunk (path MTU 4096). RC sends what was lost again, and a peer's window is small. UC has neither: to take a
    /// message of L bytes for certain, however busy the machine, it takes L / path MTU frames; 32768 hold 64 MiB at path
    /// MTU 4096. Losses are counted in [`PortCounters::rx_dropped_lower`](crate::PortCounters::rx_dropped_lower).
    pub rx_ring: u32,
    /// Descriptors in the transmit and the completion ring of a queue: a power of two from 64 to 32768. A frame takes
    /// one or two. Default 2048.
    pub tx_ring: u32,
    /// Chunks of 4096 bytes in the UMEM of the queue that transmits: at least `rx_ring` + 64; what is beyond `rx_ring`
    /// is for sending. Default (`None`): what the rings and the in-flight bound need. The other queues have `rx_ring`.
    pub frames: Option<u32>,
    /// The most frames submitted and not yet completed, 8 or more. Default (`None`): 200 on a veth, whose ring of 256
    /// drops what is beyond it without telling anybody; else `tx_ring`.
    pub in_flight_max: Option<u32>,
    /// Try huge pages for the UMEM before normal ones. Default: yes.
    pub huge_pages: bool,
    /// Our addresses: only RoCE frames to these are taken from the kernel. They can be changed later through
    /// [`super::XdpPort::addresses`].
    pub addresses: Vec<IpAddr>,
    /// Faults that the XDP program injects on receive, for tests.
    pub faults: Faults,
}

impl XdpConfig {
    /// Everything at its default, on the netdev `ifname`, with no address yet.
    #[must_use]
    pub fn new(ifname: impl Into<String>) -> XdpConfig {
        XdpConfig {
            ifname: ifname.into(),
            queues: Queues::All,
            mode: AttachMode::Auto,
            zero_copy: ZeroCopy::Auto,
            multi_buffer: MultiBuffer::Auto,
            rx_ring: 2048,
            tx_ring: 2048,
            frames: None,
            in_flight_max: None,
            huge_pages: true,
            addresses: Vec::new(),
            faults: Faults::default(),
        }
    }

    /// Checks what can be checked without the netdev.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        for (name, size) in [("rx_ring", self.rx_ring), ("tx_ring", self.tx_ring)] {
            if !size.is_power_of_two() || !(64..=32768).contains(&size) {
                return Err(OpenError::Config(format!("{name} is {size}: a power of two from 64 to 32768 is needed")));
            }
        }
        if let Some(frames) = self.frames
            && frames < self.rx_ring + 64
        {
            return Err(OpenError::Config(format!(
                "frames is {frames}: at least rx_ring + 64 = {} are needed",
                self.rx_ring + 64
            )));
        }
        if let Some(bound) = self.in_flight_max
            && bound < 8
        {
            return Err(OpenError::Config(format!("in_flight_max is {bound}: at least 8 is needed")));
        }
        if let Queues::List(list) = &self.queues {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if list.is_empty() || sorted.len() != list.len() {
                return Err(OpenError::Config(format!("queues is {list:?}: each queue once, and at least one")));
            }
        }
        Ok(())
    }

    /// The queues to serve on a netdev that has `have` of them.
    pub(super) fn queue_ids(&self, have: u32) -> Result<Vec<u32>, OpenError> {
        match &self.queues {
            Queues::All => Ok((0..have).collect()),
            Queues::List(list) => match list.iter().find(|&&q| q >= have) {
                Some(&asked) => Err(OpenError::NoSuchQueue { ifname: self.ifname.clone(), asked, have }),
                None => Ok(list.clone()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_does_not_exist_is_named_with_the_count() {
        let mut config = XdpConfig::new("eth7");
        config.queues = Queues::List(vec![0, 4]);
        assert!(config.check().is_ok());
        let text = config.queue_ids(4).unwrap_err().to_string();
        assert!(text.contains("eth7 has 4 queues") && text.contains("queue 4"), "{text}");
        assert_eq!(config.queue_ids(5).unwrap(), [0, 4]);
    }

    #[test]
    fn odd_sizes_are_refused_by_name() {
        for (change, word) in [
            ((|c: &mut XdpConfig| c.rx_ring = 100) as fn(&mut XdpConfig), "rx_ring"),
            (|c| c.tx_ring = 32, "tx_ring"),
            (|c| c.frames = Some(2048), "frames"),
            (|c| c.in_flight_max = Some(0), "in_flight_max"),
            (|c| c.queues = Queues::List(vec![]), "queues"),
            (|c| c.queues = Queues::List(vec![1, 1]), "queues"),
        ] {
            let mut config = XdpConfig::new("eth7");
            change(&mut config);
            let text = config.check().unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
    }
}
