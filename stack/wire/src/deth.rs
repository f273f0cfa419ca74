//! The datagram extended transport header: who sends, and the key that lets it in (IBTA, DETH).

use crate::error::{Field, WireError};
use crate::numbers::{QKey, Qpn};
use crate::octets::{get_u24, get_u32, put_u32};

/// Bytes of a DETH.
pub const LEN: usize = 8;

mod field {
    pub const QKEY: usize = 0;
    /// One reserved byte, then the source QP.
    pub const SRC_QP_WORD: usize = 4;
    pub const SRC_QP: usize = 5;
}

header_view! {
    /// A view over a datagram extended transport header.
    Deth, LEN, Field::Deth
}

impl<T: AsRef<[u8]>> Deth<T> {
    /// Queue key.
    #[inline]
    pub fn qkey(&self) -> QKey {
        QKey(get_u32(self.data(), field::QKEY))
    }

    /// The sending QP.
    #[inline]
    pub fn src_qp(&self) -> Qpn {
        Qpn::new(get_u24(self.data(), field::SRC_QP))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Deth<T> {
    /// Sets the queue key.
    #[inline]
    pub fn set_qkey(&mut self, qkey: QKey) {
        put_u32(self.data_mut(), field::QKEY, qkey.0);
    }

    /// Sets the sending QP; the reserved byte becomes 0.
    #[inline]
    pub fn set_src_qp(&mut self, qpn: Qpn) {
        put_u32(self.data_mut(), field::SRC_QP_WORD, qpn.value());
    }
}

/// A datagram extended transport header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DethRepr {
    /// Queue key; must equal the receiving QP's.
    pub qkey: QKey,
    /// The sending QP.
    pub src_qp: Qpn,
}

impl DethRepr {
    /// Bytes of a DETH.
    pub const LEN: usize = LEN;

    /// Reads a DETH from the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<DethRepr, WireError> {
        let view = Deth::new_checked(bytes)?;
        Ok(DethRepr { qkey: view.qkey(), src_qp: view.src_qp() })
    }

    /// Writes the header to the first 8 bytes of `buf`, reserved byte 0.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    // rule: wire.deth
    pub fn emit(&self, buf: &mut [u8]) {
        let mut view = Deth::new_unchecked(&mut buf[..LEN]);
        view.set_qkey(self.qkey);
        view.set_src_qp(self.src_qp);
    }
}
