//! What two queue pairs tell each other before they can talk.
//!
//! In: a queue pair's address as text from the other side. Out: the attributes that connect to it.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;
use xroce_transport::memory::Access;
use xroce_wire::{Gid, PathMtu, Psn, Qpn};

/// The address of a queue pair: to be sent to the other side out of band.
///
/// As text it is `xroce-qp1:` and three fields in hexadecimal of fixed width: GID (32 digits, in the order of the wire), QP
/// number (6), PSN (6). Neither padding nor byte order enters into it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QpEndpoint {
    /// Where its packets go.
    pub gid: Gid,
    /// Its number.
    pub qpn: Qpn,
    /// The PSN of the first packet it sends.
    pub psn: Psn,
}

impl fmt::Display for QpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("xroce-qp1:")?;
        for byte in self.gid.0 {
            write!(f, "{byte:02x}")?;
        }
        write!(f, ":{:06x}:{:06x}", self.qpn.value(), self.psn.value())
    }
}

/// Text that is not a [`QpEndpoint`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not \"xroce-qp1:\" and GID, QP number and PSN in 32, 6 and 6 hexadecimal digits")]
pub struct ParseQpEndpointError {
    /// The text.
    pub text: String,
}

impl FromStr for QpEndpoint {
    type Err = ParseQpEndpointError;

    fn from_str(text: &str) -> Result<QpEndpoint, ParseQpEndpointError> {
        let parse = || {
            let mut fields = text.strip_prefix("xroce-qp1:")?.split(':');
            let gid = fields.next().filter(|digits| digits.len() == 32)?;
            let high = crate::text::hex(gid.get(..16)?, 16)?;
            let low = crate::text::hex(gid.get(16..)?, 16)?;
            let gid = Gid((u128::from(high) << 64 | u128::from(low)).to_be_bytes());
            let qpn = Qpn::new(u32::try_from(crate::text::hex(fields.next()?, 6)?).ok()?);
            let psn = Psn::new(u32::try_from(crate::text::hex(fields.next()?, 6)?).ok()?);
            fields.next().is_none().then_some(QpEndpoint { gid, qpn, psn })
        };
        parse().ok_or_else(|| ParseQpEndpointError { text: text.to_owned() })
    }
}

/// How to connect; the defaults are those of rdma-core's examples, where they have any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectOptions {
    /// Our address, by its index in the GID table.
    pub gid_index: u8,
    /// Payload of a packet; the same at both ends. None: the port's active MTU, but at most 1024 unless both ends are known
    /// to take more, so that a peer with a standard Ethernet MTU can follow.
    pub path_mtu: Option<PathMtu>,
    /// The PSN of our first packet; it must be what the other side was told.
    pub psn: Psn,
    /// What the peer may do with memory of our domain, beside sending.
    pub access: Access,
    /// ACK timeout code: 4.096 µs · 2^timeout, 0 to 31; 0 waits for ever.
    pub timeout: u8,
    /// Resends without an answer before the queue pair gives up, 0 to 7.
    pub retry_cnt: u8,
    /// Resends while the peer has no RECV posted, 0 to 7; 7 is for ever.
    pub rnr_retry: u8,
    /// How long the peer shall wait when we have no RECV posted: code 0 to 31 (12 is 0.64 ms).
    pub min_rnr_timer: u8,
    /// READs and atomics of ours outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer outstanding.
    pub max_dest_rd_atomic: u8,
    /// Hop limit; 0 leaves it to the route.
    pub hop_limit: u8,
    /// DSCP and ECN, as they stand in the IP header.
    pub traffic_class: u8,
    /// 20 bits; also the source of the UDP source port.
    pub flow_label: u32,
    /// Service level, 0 to 7.
    pub sl: u8,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            gid_index: 0,
            path_mtu: None,
            psn: Psn::new(0),
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            hop_limit: 0,
            traffic_class: 0,
            flow_label: 0,
            sl: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Report H47.
    #[test]
    fn the_text_is_the_same_everywhere() {
        let endpoint = QpEndpoint {
            gid: Gid::from_ipv4("192.0.2.1".parse().unwrap()),
            qpn: Qpn::new(0x012345),
            psn: Psn::new(0xfedcba),
        };
        let text = endpoint.to_string();
        assert_eq!(text, "xroce-qp1:00000000000000000000ffffc0000201:012345:fedcba");
        assert_eq!(text.parse(), Ok(endpoint));
    }

    /// Report H47.
    #[test]
    fn cut_or_foreign_text_is_refused() {
        let good = "xroce-qp1:00000000000000000000ffffc0000201:012345:fedcba";
        for len in 0..good.len() {
            assert!(good[..len].parse::<QpEndpoint>().is_err(), "{len}");
        }
        for bad in [format!("{good}:"), good.replace("qp1", "qp2"), good.replace("012345", "1012345")] {
            assert!(bad.parse::<QpEndpoint>().is_err(), "{bad}");
        }
    }
}
