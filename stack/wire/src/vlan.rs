//! A VLAN tag (IEEE 802.1Q): priority, VLAN and the type of what follows. Outside the ICRC.

use crate::error::{Field, WireError};
use crate::ethernet::EtherType;
use crate::octets::{get_u16, put_u16};

/// Bytes of a tag after its own EtherType: the control field and the type of what follows.
pub const LEN: usize = 4;

mod field {
    /// Priority (3 bits), drop eligible (1 bit), VLAN ID (12 bits).
    pub const CONTROL: usize = 0;
    pub const ETHERTYPE: usize = 2;
}

const VID: u16 = 0x0FFF;
const DEI: u16 = 0x1000;

header_view! {
    /// A view over a VLAN tag, from its control field on.
    Vlan, LEN, Field::VlanTag
}

impl<T: AsRef<[u8]>> Vlan<T> {
    /// Priority code point, 0 to 7; RoCE's service level.
    #[inline]
    pub fn pcp(&self) -> u8 {
        (get_u16(self.data(), field::CONTROL) >> 13) as u8
    }

    /// Drop eligible indicator.
    #[inline]
    pub fn dei(&self) -> bool {
        get_u16(self.data(), field::CONTROL) & DEI != 0
    }

    /// VLAN ID, 12 bits; 0 = priority tag only.
    #[inline]
    pub fn vid(&self) -> u16 {
        get_u16(self.data(), field::CONTROL) & VID
    }

    /// What follows the tag.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(get_u16(self.data(), field::ETHERTYPE))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Vlan<T> {
    /// Sets priority (3 bits), drop eligible indicator and VLAN ID (12 bits).
    #[inline]
    pub fn set_control(&mut self, pcp: u8, dei: bool, vid: u16) {
        let control = u16::from(pcp) << 13 | if dei { DEI } else { 0 } | vid & VID;
        put_u16(self.data_mut(), field::CONTROL, control);
    }

    /// Sets what follows the tag.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        put_u16(self.data_mut(), field::ETHERTYPE, ethertype.0);
    }
}

/// A VLAN tag as a value. The type of what follows belongs to the frame, see [`Link`](crate::Link).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VlanRepr {
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN ID, 12 bits; 0 = priority tag only.
    pub vid: u16,
}

impl VlanRepr {
    /// Bytes of a tag.
    pub const LEN: usize = LEN;

    /// Reads a tag from the start of `bytes`, and the type of what follows.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(VlanRepr, EtherType), WireError> {
        let view = Vlan::new_checked(bytes)?;
        Ok((VlanRepr { pcp: view.pcp(), dei: view.dei(), vid: view.vid() }, view.ethertype()))
    }

    /// Writes the tag to the first 4 bytes of `buf`; `next` follows it.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, next: EtherType, buf: &mut [u8]) {
        let mut view = Vlan::new_unchecked(&mut buf[..LEN]);
        view.set_control(self.pcp, self.dei, self.vid);
        view.set_ethertype(next);
    }
}
