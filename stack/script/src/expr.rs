//! Values in a script that are known only when it runs: addresses and keys of memory regions, and bytes.

/// How a term joins what stands before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// `+`, wrapping.
    Add,
    /// `-`, wrapping.
    Sub,
    /// `^`, exclusive or: to spoil a key.
    Xor,
}

/// A number, or the name of a memory region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Term {
    /// As it stands.
    Number(u64),
    /// A region: its address or its key, by what the value is for.
    Region(String),
}

/// Terms joined from left to right: `buf+8`, `key^1`, `0x1000`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Num {
    /// The first is always added to 0.
    pub terms: Vec<(Join, Term)>,
}

impl Num {
    /// A plain number.
    pub fn literal(value: u64) -> Num {
        Num { terms: vec![(Join::Add, Term::Number(value))] }
    }

    /// A region and nothing else.
    pub fn region(name: &str) -> Num {
        Num { terms: vec![(Join::Add, Term::Region(name.to_owned()))] }
    }

    /// The value, with `region` saying what a name stands for.
    ///
    /// # Errors
    /// The name that `region` does not know.
    pub fn value(&self, region: impl Fn(&str) -> Option<u64>) -> Result<u64, String> {
        let mut sum = 0u64;
        for (join, term) in &self.terms {
            let value = match term {
                Term::Number(value) => *value,
                Term::Region(name) => region(name).ok_or_else(|| name.clone())?,
            };
            sum = match join {
                Join::Add => sum.wrapping_add(value),
                Join::Sub => sum.wrapping_sub(value),
                Join::Xor => sum ^ value,
            };
        }
        Ok(sum)
    }
}

/// Bytes described in a few characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// The test pattern from this offset on. Its bytes depend on their offset, so that a misplaced packet shows.
    Pattern(u64),
    /// One byte over and over.
    Fill(u8),
    /// As written.
    Bytes(Vec<u8>),
    /// A word in the byte order of the host: what an atomic works on.
    Word(u64),
}

/// Byte `i` of the test pattern.
pub fn pattern(i: u64) -> u8 {
    // A multiplicative hash of the offset: no short period, and no byte says the same of two nearby offsets.
    (i.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as u8
}

impl Data {
    /// `len` bytes of it. What is written out has its own length; it is cut or filled with zeros.
    pub fn bytes(&self, len: usize) -> Vec<u8> {
        match self {
            Data::Pattern(offset) => (0..len as u64).map(|i| pattern(offset + i)).collect(),
            Data::Fill(byte) => vec![*byte; len],
            Data::Bytes(bytes) => sized(bytes, len),
            Data::Word(word) => sized(&word.to_ne_bytes(), len),
        }
    }

    /// Its own length, where it has one.
    pub fn own_len(&self) -> Option<usize> {
        match self {
            Data::Pattern(_) | Data::Fill(_) => None,
            Data::Bytes(bytes) => Some(bytes.len()),
            Data::Word(_) => Some(8),
        }
    }
}

fn sized(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out.resize(len, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_join_from_left_to_right() {
        let num = Num {
            terms: vec![
                (Join::Add, Term::Region("buf".into())),
                (Join::Add, Term::Number(8)),
                (Join::Xor, Term::Number(1)),
                (Join::Sub, Term::Number(2)),
            ],
        };
        assert_eq!(num.value(|name| (name == "buf").then_some(0x1000)), Ok(0x1007));
        assert_eq!(num.value(|_| None), Err("buf".to_owned()));
    }

    #[test]
    fn the_pattern_tells_offsets_apart() {
        let page = Data::Pattern(0).bytes(4096);
        assert_eq!(page[1024..2048], Data::Pattern(1024).bytes(1024)[..]);
        assert_ne!(page[..1024], page[1024..2048]);
        assert_ne!(page[..256], page[256..512]);
    }
}
