//! The log of a volume: what its owner says and its keeper hears, record by record, as a count and a checksum.
//!
//! In: records, in order. Out: a count and a checksum that are equal at both ends if and, but for one chance in 2^32, only if
//! every record is.

use crate::message::Record;

/// One end's view of the log.
#[derive(Clone, Default)]
pub struct Log {
    records: u64,
    crc: crc32fast::Hasher,
}

impl Log {
    /// Appends a record.
    pub fn add(&mut self, record: &Record) {
        self.records += 1;
        self.crc.update(&record.bytes());
    }

    /// Records so far; also the sequence number that is due next.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// CRC-32 over all of them.
    pub fn checksum(&self) -> u32 {
        self.crc.clone().finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Tag;

    #[test]
    fn logs_differ_by_any_field_of_any_record() {
        let record = Record { sequence: 0, block: 1, tag: Tag { version: 2, checksum: 3 } };
        let log = |records: &[Record]| {
            let mut log = Log::default();
            records.iter().for_each(|record| log.add(record));
            (log.records(), log.checksum())
        };
        let due = log(&[record, record]);
        assert_eq!(due, log(&[record, record]));
        for other in [
            Record { sequence: 1, ..record },
            Record { block: 2, ..record },
            Record { tag: Tag { version: 3, ..record.tag }, ..record },
            Record { tag: Tag { checksum: 2, ..record.tag }, ..record },
        ] {
            assert_ne!(due, log(&[other, record]));
            assert_ne!(due, log(&[record, other]));
        }
        assert_ne!(due, log(&[record]));
    }
}
