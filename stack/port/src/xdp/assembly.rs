//! Frames that come in pieces. What enters: receive descriptors, one by one. What leaves: whole frames of one or two
//! pieces; everything else is counted and its chunks go back.

#![forbid(unsafe_code)]

/// Every RoCE header lies in the first piece when that has at least this many bytes: Ethernet, two VLAN tags, IPv6,
/// UDP, BTH and the longest extension headers need less. Frames in pieces with a shorter first one are dropped.
pub(super) const HEAD_MIN: usize = 192;

/// What was dropped on receive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RxDrops {
    /// Frames in more than two pieces, with a short first piece, or with an odd piece among others.
    pub(super) pieces: u64,
    /// Descriptors of zero length or outside their chunk.
    pub(super) invalid: u64,
}

/// A receive descriptor as far as assembling goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<T> {
    pub(super) desc: T,
    /// Bytes.
    pub(super) len: usize,
    /// It lies in one chunk and holds something.
    pub(super) sound: bool,
    /// The frame goes on in the next descriptor.
    pub(super) more: bool,
}

/// A frame of which not all pieces have come yet. Pieces may be spread over bursts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Assembly<T> {
    head: Option<(T, usize)>,
    tail: Option<T>,
    broken: bool,
}

impl<T: Copy> Assembly<T> {
    pub(super) fn new() -> Assembly<T> {
        Assembly { head: None, tail: None, broken: false }
    }

    /// Takes the next descriptor; the frame's one or two pieces when it is whole and sound. Descriptors that belong to
    /// no such frame are handed to `give_back`.
    pub(super) fn push(
        &mut self,
        piece: Piece<T>,
        drops: &mut RxDrops,
        mut give_back: impl FnMut(T),
    ) -> Option<(T, Option<T>)> {
        if !piece.sound {
            drops.invalid += 1;
            self.broken |= piece.more || self.head.is_some();
            give_back(piece.desc);
        } else if self.head.is_none() {
            self.head = Some((piece.desc, piece.len));
        } else if self.tail.is_none() {
            self.tail = Some(piece.desc);
        } else {
            self.broken = true;
            give_back(piece.desc);
        }
        if piece.more {
            return None;
        }
        let Assembly { head, tail, broken } = std::mem::replace(self, Assembly::new());
        let short_head = tail.is_some() && head.is_some_and(|(_, len)| len < HEAD_MIN);
        if broken || short_head {
            drops.pieces += 1;
            head.map(|(desc, _)| desc).into_iter().chain(tail).for_each(give_back);
            return None;
        }
        head.map(|(desc, _)| (desc, tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Frames = Vec<(usize, Option<usize>)>;

    /// Pushes pieces given as (length, sound, more), numbered from 0; returns frames, what was given back, and drops.
    fn assemble(pieces: &[(usize, bool, bool)]) -> (Frames, Vec<usize>, RxDrops) {
        let (mut assembly, mut drops) = (Assembly::new(), RxDrops::default());
        let (mut frames, mut back) = (Vec::new(), Vec::new());
        for (desc, &(len, sound, more)) in pieces.iter().enumerate() {
            frames.extend(assembly.push(Piece { desc, len, sound, more }, &mut drops, |d| back.push(d)));
        }
        (frames, back, drops)
    }

    fn drops(pieces: u64, invalid: u64) -> RxDrops {
        RxDrops { pieces, invalid }
    }

    #[test]
    fn one_and_two_pieces_are_frames() {
        let (frames, back, dropped) = assemble(&[(60, true, false), (3840, true, true), (1, true, false)]);
        assert_eq!((frames, back, dropped), (vec![(0, None), (1, Some(2))], vec![], drops(0, 0)));
    }

    #[test]
    fn three_pieces_and_more_are_dropped_whole() {
        let long = (3840, true, true);
        let (frames, mut back, dropped) = assemble(&[long, long, long, (9, true, false), (60, true, false)]);
        back.sort_unstable();
        assert_eq!((frames, back, dropped), (vec![(4, None)], vec![0, 1, 2, 3], drops(1, 0)));
    }

    /// Report H37.
    #[test]
    fn an_odd_descriptor_alone_is_ignored() {
        let (frames, back, dropped) = assemble(&[(0, false, false), (60, true, false)]);
        assert_eq!((frames, back, dropped), (vec![(1, None)], vec![0], drops(0, 1)));
    }

    #[test]
    fn an_odd_descriptor_spoils_the_frame_it_is_part_of() {
        for spoilt in 0..2 {
            let mut pieces = [(3840, true, true), (100, true, false), (60, true, false)];
            pieces[spoilt].1 = false;
            let (frames, mut back, dropped) = assemble(&pieces);
            back.sort_unstable();
            assert_eq!((frames, back, dropped), (vec![(2, None)], vec![0, 1], drops(1, 1)), "piece {spoilt}");
        }
        let (frames, back, dropped) = assemble(&[(0, false, true), (0, false, false), (60, true, false)]);
        assert_eq!((frames, back, dropped), (vec![(2, None)], vec![0, 1], drops(1, 2)));
    }

    #[test]
    fn a_first_piece_too_short_for_the_headers_is_dropped_unless_it_is_all() {
        let (frames, back, dropped) =
            assemble(&[(HEAD_MIN - 1, true, true), (60, true, false), (HEAD_MIN, true, true), (60, true, false)]);
        assert_eq!((frames, back, dropped), (vec![(2, Some(3))], vec![0, 1], drops(1, 0)));
    }
}
