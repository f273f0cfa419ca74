//! The ACK extended transport header: a syndrome and the responder's message count (IBTA, AETH).

use core::fmt;

use crate::credit;
use crate::error::{Field, WireError};
use crate::numbers::Msn;
use crate::octets::{get_u24, put_u24};
use crate::rnr::RnrTimer;

/// Bytes of an AETH.
pub const LEN: usize = 4;

mod field {
    pub const SYNDROME: usize = 0;
    pub const MSN: usize = 1;
}

header_view! {
    /// A view over an ACK extended transport header.
    Aeth, LEN, Field::Aeth
}

impl<T: AsRef<[u8]>> Aeth<T> {
    /// The syndrome byte as it stands.
    #[inline]
    pub fn syndrome_byte(&self) -> u8 {
        self.data()[field::SYNDROME]
    }

    /// What the syndrome says.
    #[inline]
    pub fn syndrome(&self) -> Syndrome {
        Syndrome::from_byte(self.syndrome_byte())
    }

    /// Messages completed at the responder.
    #[inline]
    pub fn msn(&self) -> Msn {
        Msn::new(get_u24(self.data(), field::MSN))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Aeth<T> {
    /// Sets the syndrome byte.
    #[inline]
    pub fn set_syndrome_byte(&mut self, byte: u8) {
        self.data_mut()[field::SYNDROME] = byte;
    }

    /// Sets the message sequence number.
    #[inline]
    pub fn set_msn(&mut self, msn: Msn) {
        put_u24(self.data_mut(), field::MSN, msn.value());
    }
}

const KIND: u8 = 0xE0;
const VALUE: u8 = 0x1F;
const ACK: u8 = 0x00;
const RNR: u8 = 0x20;
const NAK: u8 = 0x60;

/// What a responder says: the AETH's first byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// All is well; `credits` is the 5-bit credit code, see [`credit`].
    Ack {
        /// Credit code, 0 to 0x1F.
        credits: u8,
    },
    /// No RECV was ready: wait, then send again.
    RnrNak(RnrTimer),
    /// Negative acknowledgement.
    Nak(NakCode),
    /// 0x40 to 0x5F, or bit 7 set: to be ignored. Holds the whole byte.
    Reserved(u8),
}

impl Syndrome {
    /// An ACK that sets no limit to the requester.
    pub const ACK_UNLIMITED: Syndrome = Syndrome::Ack { credits: credit::UNLIMITED };

    /// Reads the byte. Total, and the inverse of [`byte`](Self::byte).
    #[inline]
    // rule: wire.syndrome
    pub const fn from_byte(byte: u8) -> Syndrome {
        match byte & KIND {
            ACK => Syndrome::Ack { credits: byte & VALUE },
            RNR => Syndrome::RnrNak(RnrTimer::from_low_bits(byte)),
            NAK => Syndrome::Nak(NakCode::from_code(byte & VALUE)),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// The byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => ACK | (credits & VALUE),
            Syndrome::RnrNak(timer) => RNR | timer.code(),
            Syndrome::Nak(code) => NAK | code.code(),
            Syndrome::Reserved(byte) => byte,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syndrome::Ack { credits } => match credit::credits(*credits) {
                None => f.write_str("ACK, unlimited credits"),
                Some(n) => write!(f, "ACK, {n} credits"),
            },
            Syndrome::RnrNak(timer) => write!(f, "RNR NAK, wait {timer}"),
            Syndrome::Nak(code) => write!(f, "NAK, {code}"),
            Syndrome::Reserved(byte) => write!(f, "reserved syndrome {byte:#04x}"),
        }
    }
}

/// Why a responder refuses (IBTA, NAK).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// 0: a packet is missing before this one; go back to the NAK's PSN.
    PsnSequenceError,
    /// 1: the request is malformed or not allowed on this QP.
    InvalidRequest,
    /// 2: key, range or right.
    RemoteAccessError,
    /// 3: the responder could not do it.
    RemoteOperationalError,
    /// 4: reliable datagram only.
    InvalidRdRequest,
    /// 5 to 31, reserved. Holds the code.
    Reserved(u8),
}

impl NakCode {
    /// The NAK of the low five bits of `code`.
    #[inline]
    pub const fn from_code(code: u8) -> NakCode {
        match code & VALUE {
            0 => NakCode::PsnSequenceError,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccessError,
            3 => NakCode::RemoteOperationalError,
            4 => NakCode::InvalidRdRequest,
            code => NakCode::Reserved(code),
        }
    }

    /// The code, 0 to 31.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            NakCode::PsnSequenceError => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccessError => 2,
            NakCode::RemoteOperationalError => 3,
            NakCode::InvalidRdRequest => 4,
            NakCode::Reserved(code) => code & VALUE,
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NakCode::PsnSequenceError => f.write_str("PSN sequence error"),
            NakCode::InvalidRequest => f.write_str("invalid request"),
            NakCode::RemoteAccessError => f.write_str("remote access error"),
            NakCode::RemoteOperationalError => f.write_str("remote operational error"),
            NakCode::InvalidRdRequest => f.write_str("invalid RD request"),
            NakCode::Reserved(code) => write!(f, "reserved code {code}"),
        }
    }
}

/// An ACK extended transport header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AethRepr {
    /// ACK, NAK or RNR NAK.
    pub syndrome: Syndrome,
    /// Messages completed at the responder; for credits only.
    pub msn: Msn,
}

impl AethRepr {
    /// Bytes of an AETH.
    pub const LEN: usize = LEN;

    /// Reads an AETH from the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<AethRepr, WireError> {
        let view = Aeth::new_checked(bytes)?;
        Ok(AethRepr { syndrome: view.syndrome(), msn: view.msn() })
    }

    /// Writes the header to the first 4 bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    // rule: wire.aeth
    pub fn emit(&self, buf: &mut [u8]) {
        let mut view = Aeth::new_unchecked(&mut buf[..LEN]);
        view.set_syndrome_byte(self.syndrome.byte());
        view.set_msn(self.msn);
    }
}
