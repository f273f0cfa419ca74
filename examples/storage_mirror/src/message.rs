//! What the nodes of a pair say to each other over the metadata channel.
//!
//! In: values. Out: bytes of a SEND, little-endian, at most [`MESSAGE`] long; and back.

use crate::block::Tag;

/// Longest message, and the size of the buffer behind each RECV.
pub const MESSAGE: usize = 1024;

/// Kind (1 byte), zero (1), credits (2), then what the kind says.
const HEAD: usize = 4;

/// Bytes of a record.
const RECORD: usize = 24;

/// Most blocks that one [`Body::Resend`] can ask for; the rest is asked for in the next turn.
pub const MOST_RESENDS: usize = (MESSAGE - HEAD - 4) / 4;

/// One record of the log: this block now has this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Counts the records of a volume, from 0.
    pub sequence: u64,
    /// The block that was written.
    pub block: u32,
    /// Its new version and checksum.
    pub tag: Tag,
}

impl Record {
    /// Its bytes in a message.
    pub fn bytes(&self) -> [u8; RECORD] {
        let mut out = [0; RECORD];
        out[..8].copy_from_slice(&self.sequence.to_le_bytes());
        out[8..12].copy_from_slice(&self.block.to_le_bytes());
        out[12..20].copy_from_slice(&self.tag.version.to_le_bytes());
        out[20..].copy_from_slice(&self.tag.checksum.to_le_bytes());
        out
    }
}

/// What a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Owner to keeper: a record of the log.
    Record(Record),
    /// Owner to keeper: everything of this round has been sent. Compare.
    RoundEnd {
        /// Rounds count from 1.
        round: u32,
    },
    /// Keeper to owner: these blocks of the round are old or torn. Send them again.
    Resend {
        /// Numbers of the blocks.
        blocks: Vec<u32>,
    },
    /// Keeper to owner: the copy is equal to the log.
    RoundOk,
    /// Owner to keeper: that was all; compare everything, byte for byte.
    Done,
    /// Keeper to owner: what the comparison found.
    Verified {
        /// Blocks that are equal.
        blocks: u32,
        /// Records that came, in order and without a gap.
        records: u64,
        /// Checksum over all of them.
        log: u32,
    },
    /// Nothing but credits.
    Credits,
}

/// A message and the RECVs that its sender has posted again since the last one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// How many messages more the other side may send.
    pub credits: u16,
    /// What it says.
    pub body: Body,
}

impl Message {
    /// The bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0, 0];
        out.extend(self.credits.to_le_bytes());
        out[0] = match &self.body {
            Body::Record(record) => {
                out.extend(record.bytes());
                1
            }
            Body::RoundEnd { round } => {
                out.extend(round.to_le_bytes());
                2
            }
            Body::Resend { blocks } => {
                out.extend((blocks.len() as u32).to_le_bytes());
                blocks.iter().for_each(|block| out.extend(block.to_le_bytes()));
                3
            }
            Body::RoundOk => 4,
            Body::Done => 5,
            Body::Verified { blocks, records, log } => {
                out.extend(blocks.to_le_bytes());
                out.extend(records.to_le_bytes());
                out.extend(log.to_le_bytes());
                6
            }
            Body::Credits => 7,
        };
        out
    }

    /// What `bytes` say; None if they are no message.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let mut rest = Reader(bytes);
        let [kind, _] = rest.take()?;
        let credits = u16::from_le_bytes(rest.take()?);
        let body = match kind {
            1 => Body::Record(Record {
                sequence: rest.u64()?,
                block: rest.u32()?,
                tag: Tag { version: rest.u64()?, checksum: rest.u32()? },
            }),
            2 => Body::RoundEnd { round: rest.u32()? },
            3 => {
                let count = rest.u32()?;
                Body::Resend { blocks: (0..count).map(|_| rest.u32()).collect::<Option<_>>()? }
            }
            4 => Body::RoundOk,
            5 => Body::Done,
            6 => Body::Verified { blocks: rest.u32()?, records: rest.u64()?, log: rest.u32()? },
            7 => Body::Credits,
            _ => return None,
        };
        rest.0.is_empty().then_some(Message { credits, body })
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_way() {
        let tag = Tag { version: u64::MAX - 1, checksum: 0xdead_beef };
        for body in [
            Body::Record(Record { sequence: 1 << 40, block: 7, tag }),
            Body::RoundEnd { round: 3 },
            Body::Resend { blocks: (0..MOST_RESENDS as u32).collect() },
            Body::Resend { blocks: Vec::new() },
            Body::RoundOk,
            Body::Done,
            Body::Verified { blocks: 5, records: 12, log: 0xfeed_f00d },
            Body::Credits,
        ] {
            let message = Message { credits: 513, body };
            let bytes = message.encode();
            assert!(bytes.len() <= MESSAGE);
            assert_eq!(Message::decode(&bytes), Some(message.clone()));
            assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), None, "{message:?} cut");
        }
    }
}
