//! What a netdev's driver says it can do with XDP: an interface index enters, [`XdpFeatures`] leave.
//!
//! Asked over generic netlink, family `netdev` (Linux 6.3 and later; Documentation/netlink/specs/netdev.yaml).

use std::fmt::Debug;
use std::io;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable, Nla, NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

/// NETDEV_CMD_DEV_GET and the attributes of a device (linux/netdev.h).
const DEV_GET: u8 = 1;
const A_IFINDEX: u16 = 1;
const A_XDP_FEATURES: u16 = 3;
const A_ZC_MAX_SEGS: u16 = 4;
/// Largest answer that is read.
const ANSWER_LEN: usize = 32 << 10;

/// What a driver can do; all `false` means generic XDP only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct XdpFeatures {
    /// Programs run in the driver, before the kernel makes a packet of the frame.
    pub native: bool,
    /// XDP_REDIRECT works, which AF_XDP needs.
    pub redirect: bool,
    /// The NIC reads and writes AF_XDP buffers itself.
    pub zero_copy: bool,
    /// Programs are given frames that lie in several buffers.
    pub multi_buffer: bool,
    /// Buffers one zero-copy frame may have.
    pub zero_copy_max_segments: u32,
}

/// Asks the kernel for the XDP features of the netdev with this index. An error where the kernel is too old to tell.
pub fn query(ifindex: u32) -> io::Result<XdpFeatures> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let question = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(Netdev::NAME.into())] };
    let answer: GenlCtrl = ask(&socket, GenlMessage::from_payload(question))?;
    let family = answer.nlas.iter().find_map(|a| if let GenlCtrlAttrs::FamilyId(id) = a { Some(*id) } else { None });
    let family = family.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    let mut question = GenlMessage::from_payload(Netdev {
        attributes: vec![DefaultNla::new(A_IFINDEX, ifindex.to_ne_bytes().into())],
    });
    question.set_resolved_family_id(family);
    let answer: Netdev = ask(&socket, question)?;
    Ok(answer.features())
}

/// One question, one answer.
fn ask<F>(socket: &Socket, mut question: GenlMessage<F>) -> io::Result<F>
where
    GenlMessage<F>: NetlinkSerializable + NetlinkDeserializable,
    F: GenlFamily + Emitable + Clone + Debug + PartialEq + Eq,
{
    question.finalize();
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(question));
    message.header.flags = NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answer = Vec::with_capacity(ANSWER_LEN);
    socket.recv(&mut answer, 0)?;
    match NetlinkMessage::<GenlMessage<F>>::deserialize(&answer).map_err(io::Error::other)?.payload {
        NetlinkPayload::InnerMessage(message) => Ok(message.payload),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// A message of the family `netdev`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Netdev {
    attributes: Vec<DefaultNla>,
}

impl Netdev {
    const NAME: &str = "netdev";

    fn features(&self) -> XdpFeatures {
        let mut features = XdpFeatures::default();
        for attribute in &self.attributes {
            let mut value = vec![0; attribute.value_len()];
            attribute.emit_value(&mut value);
            match (attribute.kind(), value.as_slice()) {
                (A_XDP_FEATURES, bytes) => {
                    // enum netdev_xdp_act: 0 basic, 1 redirect, 3 xsk zero-copy, 5 rx of several buffers.
                    let bits = bytes.try_into().map_or(0, u64::from_ne_bytes);
                    features.native = bits & 1 != 0;
                    features.redirect = bits & 1 << 1 != 0;
                    features.zero_copy = bits & 1 << 3 != 0;
                    features.multi_buffer = bits & 1 << 5 != 0;
                }
                (A_ZC_MAX_SEGS, bytes) => {
                    features.zero_copy_max_segments = bytes.try_into().map_or(0, u32::from_ne_bytes);
                }
                _ => {}
            }
        }
        features
    }
}

impl GenlFamily for Netdev {
    fn family_name() -> &'static str {
        Self::NAME
    }

    fn command(&self) -> u8 {
        DEV_GET
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Netdev {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Netdev {
    fn parse_with_param(bytes: &[u8], _: GenlHeader) -> Result<Self, DecodeError> {
        let attributes =
            NlasIterator::new(bytes).map(|a| a.and_then(|a| DefaultNla::parse(&a))).collect::<Result<_, _>>()?;
        Ok(Netdev { attributes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_by_name() {
        let bits: u64 = 0b10_1011;
        let answer = Netdev {
            attributes: vec![
                DefaultNla::new(A_XDP_FEATURES, bits.to_ne_bytes().into()),
                DefaultNla::new(A_ZC_MAX_SEGS, 5u32.to_ne_bytes().into()),
            ],
        };
        let expected = XdpFeatures {
            native: true,
            redirect: true,
            zero_copy: true,
            multi_buffer: true,
            zero_copy_max_segments: 5,
        };
        assert_eq!(answer.features(), expected);
        let short = Netdev { attributes: vec![DefaultNla::new(A_XDP_FEATURES, vec![1])] };
        assert_eq!(short.features(), XdpFeatures::default(), "an attribute of another size is not believed");
    }
}
