//! A block of storage: bytes that tell their own version and whether they are whole.
//!
//! In: owner, number and version. Out: the bytes, which both ends can make, so that a mirror can be compared byte for byte.
//! UC may leave a WRITE half done in memory; the checksum is how the mirror sees that.

use std::ops::RangeInclusive;

/// What a block may be long, in bytes: one packet to many.
pub const SIZES: RangeInclusive<u32> = 1024..=1 << 20;

/// What a volume may be long, in bytes: each node has one for each other node, and a copy of each.
pub const VOLUME_MAX: u64 = 1 << 30;

/// In front of the payload: version (8 bytes), checksum over version and payload (4), zeros (4), little-endian.
const HEAD: usize = 16;

/// What a block says of itself, and what the log says of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tag {
    /// Counts the writes to this block, from 1.
    pub version: u64,
    /// CRC-32 of version and payload.
    pub checksum: u32,
}

/// A length for blocks from the command line: bytes, or KiB with a `k` behind.
///
/// # Errors
/// Not a number, out of [`SIZES`], or not a multiple of 8 (blocks are filled by words).
pub fn parse_size(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    let number: u32 = digits.parse().map_err(|_| "bytes, or KiB with a k: 65536, 64k".to_owned())?;
    number
        .checked_mul(unit)
        .filter(|size| SIZES.contains(size) && size % 8 == 0)
        .ok_or_else(|| format!("{} to {} bytes, a multiple of 8", SIZES.start(), SIZES.end()))
}

/// Which block of whose volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockId {
    /// The volume's owner.
    pub owner: u32,
    /// The node that keeps this copy.
    pub keeper: u32,
    /// Number of the block in the volume.
    pub number: u32,
}

fn checksum(version: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(version);
    crc.update(payload);
    crc.finalize()
}

/// Fills `out` with the block's contents at `version`.
pub fn build(id: BlockId, version: u64, out: &mut [u8]) -> Tag {
    // splitmix64: any bytes would do that differ from block to block and from version to version.
    let mut state = (u64::from(id.owner) << 48) ^ (u64::from(id.keeper) << 40) ^ (u64::from(id.number) << 16) ^ version;
    for word in out[HEAD..].chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    let tag = Tag { version, checksum: checksum(&version.to_le_bytes(), &out[HEAD..]) };
    out[..8].copy_from_slice(&version.to_le_bytes());
    out[8..12].copy_from_slice(&tag.checksum.to_le_bytes());
    out[12..HEAD].fill(0);
    tag
}

/// What the block says of itself, if it is whole.
pub fn tag_of(block: &[u8]) -> Option<Tag> {
    let version: [u8; 8] = block[..8].try_into().ok()?;
    let said = u32::from_le_bytes(block[8..12].try_into().ok()?);
    let tag = Tag { version: u64::from_le_bytes(version), checksum: said };
    (checksum(&version, &block[HEAD..]) == said).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 64 << 10;
    const ID: BlockId = BlockId { owner: 1, keeper: 2, number: 3 };

    #[test]
    fn a_block_tells_what_it_is() {
        let mut bytes = [0; BLOCK];
        let tag = build(ID, 7, &mut bytes);
        assert_eq!(tag.version, 7);
        assert_eq!(tag_of(&bytes), Some(tag));
    }

    #[test]
    fn a_torn_block_is_seen() {
        let (mut old, mut new) = ([0; BLOCK], [0; BLOCK]);
        build(ID, 1, &mut old);
        build(ID, 2, &mut new);
        // The first packet of a WRITE arrived, the others did not.
        old[..4096].copy_from_slice(&new[..4096]);
        assert_eq!(tag_of(&old), None);
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("1032"), Ok(1032));
        for bad in ["1023", "1028", "1025k", "4194308k", "-1", "64kB", ""] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn blocks_and_versions_differ() {
        let (mut a, mut b, mut c) = ([0; BLOCK], [0; BLOCK], [0; BLOCK]);
        build(ID, 1, &mut a);
        build(BlockId { number: 4, ..ID }, 1, &mut b);
        build(ID, 2, &mut c);
        assert!(a[HEAD..] != b[HEAD..] && a[HEAD..] != c[HEAD..]);
    }
}
