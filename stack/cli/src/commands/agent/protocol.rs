//! Request lines taken apart, reply lines put together.
//!
//! In: `command key=value ...`. Out: values of the wanted types, and `ok key=value ...` or `err ...`.

use std::fmt::{Display, Write as _};

/// Why a request was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    errno: (i32, &'static str),
    at: String,
    text: String,
}

/// The error numbers of Linux that are used, with their names.
pub mod errno {
    pub const ENOENT: (i32, &str) = (2, "ENOENT");
    pub const EIO: (i32, &str) = (5, "EIO");
    pub const ENOMEM: (i32, &str) = (12, "ENOMEM");
    pub const EFAULT: (i32, &str) = (14, "EFAULT");
    pub const EBUSY: (i32, &str) = (16, "EBUSY");
    pub const ENODEV: (i32, &str) = (19, "ENODEV");
    pub const EINVAL: (i32, &str) = (22, "EINVAL");
    pub const ENOSYS: (i32, &str) = (38, "ENOSYS");
    pub const EHOSTUNREACH: (i32, &str) = (113, "EHOSTUNREACH");
}

impl Fault {
    /// A fault at a call or an argument.
    pub fn new(errno: (i32, &'static str), at: &str, text: impl Display) -> Fault {
        // One line, whatever the error says.
        Fault { errno, at: at.to_owned(), text: text.to_string().replace('\n', " ") }
    }

    /// The reply line.
    pub fn line(&self) -> String {
        format!("err errno={} name={} at={} text={}", self.errno.0, self.errno.1, self.at, self.text)
    }
}

/// What became of a request: the pairs of its reply.
pub type Done = Result<Pairs, Fault>;

/// `key=value` pairs of a reply.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pairs(String);

impl Pairs {
    /// None.
    pub fn none() -> Pairs {
        Pairs::default()
    }

    /// Words as they stand.
    pub fn words(text: &str) -> Pairs {
        Pairs(format!(" {text}"))
    }

    /// Adds a pair.
    pub fn with(mut self, key: &str, value: impl Display) -> Pairs {
        let _ = write!(self.0, " {key}={value}");
        self
    }

    /// The reply line.
    pub fn line(&self) -> String {
        format!("ok{}", self.0)
    }
}

/// The arguments of a request.
#[derive(Debug)]
pub struct Args<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

/// A number: decimal or 0x.
pub fn parse(text: &str) -> Option<u64> {
    xroce_script::agent::number(text)
}

impl<'a> Args<'a> {
    /// A request line taken apart: the command, which is empty for an empty line, and its arguments.
    pub fn of(line: &'a str) -> Result<(&'a str, Args<'a>), Fault> {
        let mut words = line.split_ascii_whitespace();
        let command = words.next().unwrap_or("");
        let pair = |word: &'a str| {
            word.split_once('=').ok_or_else(|| Fault::new(errno::EINVAL, word, "not of the form key=value"))
        };
        Ok((command, Args { pairs: words.map(pair).collect::<Result<_, _>>()? }))
    }

    /// The first key that is not among `keys`.
    pub fn unknown(&self, keys: &str) -> Option<&'a str> {
        self.pairs.iter().map(|(key, _)| *key).find(|key| !keys.split(' ').any(|known| known == *key))
    }

    /// The value of `key` as text.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.all(key).next()
    }

    /// All values of `key`, in order.
    pub fn all(&self, key: &str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| *k == key).map(|(_, value)| *value)
    }

    /// The value of `key` as a number of the wanted type, if it is given.
    pub fn number<T: TryFrom<u64>>(&self, key: &str) -> Result<Option<T>, Fault> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let value = parse(text).ok_or_else(|| Fault::new(errno::EINVAL, key, format!("not a number: {text}")))?;
        T::try_from(value).map(Some).map_err(|_| Fault::new(errno::EINVAL, key, format!("too large: {text}")))
    }

    /// The value of `key`, or `default` if it is not given.
    pub fn number_or<T: TryFrom<u64>>(&self, key: &str, default: T) -> Result<T, Fault> {
        Ok(self.number(key)?.unwrap_or(default))
    }

    /// The value of `key`, which must be given.
    pub fn need<T: TryFrom<u64>>(&self, key: &str) -> Result<T, Fault> {
        self.number(key)?.ok_or_else(|| Fault::new(errno::EINVAL, key, "missing"))
    }

    /// A value that is one of some words, or `default` if it is not given.
    pub fn word<T: Copy>(&self, key: &str, words: &[(&str, T)], default: T) -> Result<T, Fault> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.ok_or_else(|| Fault::new(errno::EINVAL, key, format!("unknown: {text}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_apart() {
        let (command, args) = Args::of("post_send qp=3 sge=1:2:3 sge=4:5:6 id=0x10\n").unwrap();
        assert_eq!(command, "post_send");
        assert_eq!(args.all("sge").collect::<Vec<_>>(), ["1:2:3", "4:5:6"]);
        assert_eq!((args.need::<u32>("qp"), args.number_or("id", 0u64)), (Ok(3), Ok(16)));
        assert_eq!(args.unknown("qp sge"), Some("id"));
        assert_eq!(args.need::<u8>("mr").unwrap_err().line(), "err errno=22 name=EINVAL at=mr text=missing");
        assert!(Args::of("open rxe0").is_err());
        let (_, args) = Args::of("x n=300 m=z").unwrap();
        assert!(args.number::<u8>("n").is_err() && args.number::<u8>("m").is_err());
    }

    #[test]
    fn replies_are_one_line() {
        assert_eq!(Pairs::none().with("a", 1).with("b", "0x2").line(), "ok a=1 b=0x2");
        assert_eq!(Fault::new(errno::EIO, "x", "two\nlines").line(), "err errno=5 name=EIO at=x text=two lines");
    }
}
