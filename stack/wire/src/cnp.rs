//! The congestion notification packet: a BTH with BECN set and 16 reserved bytes (IBTA annex A17).

use crate::bth::BthRepr;
use crate::error::Field;
use crate::numbers::{PKey, Psn, Qpn};
use crate::opcode::Opcode;

/// Reserved bytes between the BTH and the ICRC.
pub const RESERVED_LEN: usize = 16;

header_view! {
    /// A view over the reserved bytes of a CNP.
    CnpReserved, RESERVED_LEN, Field::CnpReserved
}

impl<T: AsRef<[u8]>> CnpReserved<T> {
    /// Whether all are 0, as a sender must make them. A receiver ignores them.
    pub fn is_zero(&self) -> bool {
        self.data()[..RESERVED_LEN].iter().all(|&b| b == 0)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> CnpReserved<T> {
    /// Makes all 0.
    #[inline]
    pub fn clear(&mut self) {
        self.data_mut()[..RESERVED_LEN].fill(0);
    }
}

/// The BTH of a CNP that tells `dest_qp` to slow down: BECN set, FECN and AckReq clear, PSN 0.
// rule: wire.cnp
pub const fn bth(pkey: PKey, dest_qp: Qpn) -> BthRepr {
    BthRepr {
        opcode: Opcode::Cnp,
        solicited: false,
        migreq: true,
        pad: 0,
        pkey,
        fecn: false,
        becn: true,
        dest_qp,
        ack_req: false,
        psn: Psn::new(0),
    }
}
