//! Scatter/gather lists against registered memory.
//!
//! In: a list, an offset into the bytes it describes, and either room for payload or payload. Out: copied bytes, or the
//! fault of the entry that did not hold (local protection error).

use crate::emit::PayloadWriter;
use crate::memory::{LocalError, Lookup, Pd};
use crate::wr::Sge;

/// Every entry lies in memory of `pd` that may be read (or written, if `write`).
pub(crate) fn check(memory: Lookup<'_>, pd: Pd, sges: &[Sge], write: bool) -> Result<(), LocalError> {
    for sge in sges {
        memory.local(pd, sge.addr, sge.length, sge.lkey, write)?;
    }
    Ok(())
}

/// The parts of `sges` that hold bytes `offset..offset + len`: entry, offset in it, length.
fn parts(sges: &[Sge], mut offset: u64, mut len: usize) -> impl Iterator<Item = (&Sge, usize, usize)> {
    sges.iter().filter_map(move |sge| {
        let size = u64::from(sge.length);
        if len == 0 || offset >= size {
            offset = offset.saturating_sub(size);
            return None;
        }
        let start = offset as usize;
        let n = len.min(size as usize - start);
        offset = 0;
        len -= n;
        Some((sge, start, n))
    })
}

/// Copies `out.room()` bytes at `offset` of the list into a packet.
pub(crate) fn gather(
    memory: Lookup<'_>,
    pd: Pd,
    sges: &[Sge],
    offset: u64,
    out: &mut PayloadWriter<'_>,
) -> Result<(), LocalError> {
    // Most lists have one entry, and the request was posted with its length.
    if let [sge] = sges {
        let source = memory.local(pd, sge.addr, sge.length, sge.lkey, false)?;
        out.copy(&source, offset as usize, out.room());
        return Ok(());
    }
    for (sge, start, n) in parts(sges, offset, out.room()) {
        let source = memory.local(pd, sge.addr, sge.length, sge.lkey, false)?;
        out.copy(&source, start, n);
    }
    Ok(())
}

/// Copies a packet's payload (two pieces) to `offset` of the list. The caller has checked that it fits.
pub(crate) fn scatter(
    memory: Lookup<'_>,
    pd: Pd,
    sges: &[Sge],
    offset: u64,
    payload: (&[u8], &[u8]),
) -> Result<(), LocalError> {
    let mut offset = offset;
    for piece in [payload.0, payload.1] {
        let mut rest = piece;
        for (sge, start, n) in parts(sges, offset, piece.len()) {
            let target = memory.local(pd, sge.addr, sge.length, sge.lkey, true)?;
            let (now, later) = rest.split_at(n);
            target.write(start, now);
            rest = later;
        }
        offset += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use xroce_wire::Lkey;

    #[test]
    fn parts_cover_a_range_once() {
        let sge = |length| Sge { addr: 0, length, lkey: Lkey(1) };
        let list = [sge(3), sge(0), sge(5), sge(2)];
        for offset in 0..10u64 {
            for len in 0..=(10 - offset as usize) {
                let got: Vec<u64> = parts(&list, offset, len)
                    .flat_map(|(s, start, n)| {
                        let before = match s.length {
                            3 => 0,
                            5 => 3,
                            _ => 8,
                        };
                        (start..start + n).map(move |i| before + i as u64)
                    })
                    .collect();
                assert_eq!(got, (offset..offset + len as u64).collect::<Vec<_>>());
            }
        }
    }
}
