//! The base transport header: twelve bytes at the head of every packet (IBTA, BTH).

use crate::error::{Field, WireError};
use crate::numbers::{PKey, Psn, Qpn};
use crate::octets::{get_u16, get_u24, put_u16, put_u24, put_u32};
use crate::opcode::Opcode;

/// Bytes of a BTH.
pub const LEN: usize = 12;

mod field {
    pub const OPCODE: usize = 0;
    /// Solicited event, MigReq, pad count, transport version.
    pub const FLAGS: usize = 1;
    pub const PKEY: usize = 2;
    /// FECN, BECN, six reserved bits; the byte the ICRC does not cover.
    pub const CONGESTION: usize = 4;
    pub const DEST_QP: usize = 5;
    /// AckReq, seven reserved bits.
    pub const ACK_REQ: usize = 8;
    pub const PSN: usize = 9;
}

/// Where the byte that the ICRC does not cover stands, in bytes from the start of the header.
pub(crate) const CONGESTION_AT: usize = field::CONGESTION;

const SOLICITED: u8 = 0x80;
const MIGREQ: u8 = 0x40;
const PAD: u8 = 0x30;
const PAD_SHIFT: u32 = 4;
const VERSION: u8 = 0x0F;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;

header_view! {
    /// A view over a base transport header.
    Bth, LEN, Field::Bth
}

impl<T: AsRef<[u8]>> Bth<T> {
    /// The opcode byte as it stands, known or not.
    #[inline]
    pub fn opcode_byte(&self) -> u8 {
        self.data()[field::OPCODE]
    }

    /// Whether the sender asks for a completion event.
    #[inline]
    pub fn solicited(&self) -> bool {
        self.data()[field::FLAGS] & SOLICITED != 0
    }

    /// The migration state: true = migrated.
    #[inline]
    pub fn migreq(&self) -> bool {
        self.data()[field::FLAGS] & MIGREQ != 0
    }

    /// Pad bytes after the payload, 0 to 3.
    #[inline]
    pub fn pad(&self) -> u8 {
        (self.data()[field::FLAGS] & PAD) >> PAD_SHIFT
    }

    /// Transport header version; 0 is the only one.
    #[inline]
    pub fn version(&self) -> u8 {
        self.data()[field::FLAGS] & VERSION
    }

    /// Partition key.
    #[inline]
    pub fn pkey(&self) -> PKey {
        PKey(get_u16(self.data(), field::PKEY))
    }

    /// Forward congestion notification.
    #[inline]
    pub fn fecn(&self) -> bool {
        self.data()[field::CONGESTION] & FECN != 0
    }

    /// Backward congestion notification.
    #[inline]
    pub fn becn(&self) -> bool {
        self.data()[field::CONGESTION] & BECN != 0
    }

    /// Destination queue pair.
    #[inline]
    pub fn dest_qp(&self) -> Qpn {
        Qpn::new(get_u24(self.data(), field::DEST_QP))
    }

    /// Whether the requester asks for an acknowledgement.
    #[inline]
    pub fn ack_req(&self) -> bool {
        self.data()[field::ACK_REQ] & ACK_REQ != 0
    }

    /// Packet sequence number.
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(get_u24(self.data(), field::PSN))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Bth<T> {
    /// Sets the opcode byte, also to values that are not an [`Opcode`].
    #[inline]
    pub fn set_opcode_byte(&mut self, byte: u8) {
        self.data_mut()[field::OPCODE] = byte;
    }

    /// Sets the byte of solicited event, MigReq, pad count (0 to 3) and version 0.
    #[inline]
    pub fn set_flags(&mut self, solicited: bool, migreq: bool, pad: u8) {
        self.data_mut()[field::FLAGS] = (solicited as u8) << 7 | (migreq as u8) << 6 | (pad << PAD_SHIFT) & PAD;
    }

    /// Sets the partition key.
    #[inline]
    pub fn set_pkey(&mut self, pkey: PKey) {
        put_u16(self.data_mut(), field::PKEY, pkey.0);
    }

    /// Sets FECN and BECN; the reserved bits beside them become 0.
    #[inline]
    pub fn set_congestion(&mut self, fecn: bool, becn: bool) {
        self.data_mut()[field::CONGESTION] = (fecn as u8) << 7 | (becn as u8) << 6;
    }

    /// Sets the destination queue pair.
    #[inline]
    pub fn set_dest_qp(&mut self, qpn: Qpn) {
        put_u24(self.data_mut(), field::DEST_QP, qpn.value());
    }

    /// Sets AckReq; the reserved bits beside it become 0.
    #[inline]
    pub fn set_ack_req(&mut self, ack_req: bool) {
        self.data_mut()[field::ACK_REQ] = (ack_req as u8) << 7;
    }

    /// Sets the packet sequence number.
    #[inline]
    pub fn set_psn(&mut self, psn: Psn) {
        put_u24(self.data_mut(), field::PSN, psn.value());
    }
}

/// A base transport header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BthRepr {
    /// What the packet is.
    pub opcode: Opcode,
    /// Solicited event: only on the last packet of a SEND or WRITE with immediate.
    pub solicited: bool,
    /// MigReq. We send true (“migrated”) as hardware does; rxe sends false; both are accepted.
    pub migreq: bool,
    /// Pad bytes after the payload, 0 to 3. [`Headers::emit`](crate::Headers::emit) derives it from the payload instead.
    pub pad: u8,
    /// Partition key.
    pub pkey: PKey,
    /// Forward congestion notification; not covered by the ICRC.
    pub fecn: bool,
    /// Backward congestion notification; not covered by the ICRC.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// An acknowledgement is asked for; false on all but RC requests.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl BthRepr {
    /// Bytes of a BTH.
    pub const LEN: usize = LEN;

    /// Reads a BTH from the start of `bytes`. Reserved bits are ignored.
    ///
    /// # Errors
    /// Too few bytes, an opcode we do not know, a transport version other than 0.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<BthRepr, WireError> {
        let view = Bth::new_checked(bytes)?;
        let opcode = check(&view)?;
        Ok(BthRepr::of(&view, opcode))
    }

    /// The value of a view whose opcode is known already.
    #[inline]
    // rule: rx.reserved, rx.migreq
    pub(crate) fn of<T: AsRef<[u8]>>(view: &Bth<T>, opcode: Opcode) -> BthRepr {
        BthRepr {
            opcode,
            solicited: view.solicited(),
            migreq: view.migreq(),
            pad: view.pad(),
            pkey: view.pkey(),
            fecn: view.fecn(),
            becn: view.becn(),
            dest_qp: view.dest_qp(),
            ack_req: view.ack_req(),
            psn: view.psn(),
        }
    }

    /// Writes the header to the first 12 bytes of `buf`, reserved bits 0.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    // rule: wire.bth, wire.reserved
    pub fn emit(&self, buf: &mut [u8]) {
        let mut view = Bth::new_unchecked(&mut buf[..LEN]);
        view.set_opcode_byte(self.opcode.byte());
        view.set_flags(self.solicited, self.migreq, self.pad);
        view.set_pkey(self.pkey);
        view.set_congestion(self.fecn, self.becn);
        view.set_dest_qp(self.dest_qp);
        view.set_ack_req(self.ack_req);
        view.set_psn(self.psn);
    }
}

/// Puts what each packet has of its own into a BTH that holds P_Key, destination and MigReq of its flow. `pad` is 0 to 3.
#[inline]
pub(crate) fn fill(bth: &mut [u8], opcode: Opcode, solicited: bool, pad: u8, ack_req: bool, psn: Psn) {
    bth[field::OPCODE] = opcode.byte();
    bth[field::FLAGS] |= (solicited as u8) << 7 | pad << PAD_SHIFT;
    // AckReq, seven reserved bits and the PSN are one word.
    put_u32(bth, field::ACK_REQ, (ack_req as u32) << 31 | psn.value());
}

/// Opcode known and version 0 (otherwise the packet is dropped without a word).
#[inline]
// rule: rx.tver, rx.opcode
pub(crate) fn check<T: AsRef<[u8]>>(view: &Bth<T>) -> Result<Opcode, WireError> {
    let Some(opcode) = Opcode::from_byte(view.opcode_byte()) else {
        return Err(WireError::unsupported(
            Field::BthOpcode,
            view.opcode_byte().into(),
            "an opcode of RC, UC or UD, or CNP (0x81)",
        ));
    };
    if view.version() != 0 {
        return Err(WireError::unsupported(Field::BthVersion, view.version().into(), "0"));
    }
    Ok(opcode)
}
