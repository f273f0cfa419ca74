//! Values: numbers, times, addresses, keys, bytes, pieces of memory.

use super::line::{Line, Result, Word};
use crate::expr::{Data, Join, Num, Term};
use crate::model::{Delay, Span, When};
use crate::names::{self, Table};
use xroce_transport::memory::Access;
use xroce_wire::Gid;

impl Line<'_> {
    /// A number: decimal or 0x, with `Ki Mi Gi`, joined by `+ - *`.
    pub(super) fn int(&self, word: Word<'_>) -> Result<u64> {
        let mut sum = 0u64;
        for (join, term) in terms(word, &['+', '-']) {
            let mut product = 1u64;
            for (_, factor) in terms(term, &['*']) {
                product = product.wrapping_mul(self.literal(factor)?);
            }
            sum = if join == '-' { sum.wrapping_sub(product) } else { sum.wrapping_add(product) };
        }
        Ok(sum)
    }

    fn literal(&self, word: Word<'_>) -> Result<u64> {
        let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
        let unit = units.into_iter().find_map(|(name, shift)| Some((word.text.strip_suffix(name)?, shift)));
        let (digits, shift) = unit.unwrap_or((word.text, 0));
        let clean = digits.replace('_', "");
        let value = match clean.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => clean.parse(),
        };
        match value {
            Ok(value) if value <= u64::MAX >> shift => Ok(value << shift),
            _ => self.error(word, "a number"),
        }
    }

    /// A number of at most `max`.
    pub(super) fn at_most(&self, word: Word<'_>, max: u64) -> Result<u64> {
        match self.int(word)? {
            value if value <= max => Ok(value),
            _ => self.error(word, format!("a number from 0 to {max}")),
        }
    }

    /// A PSN or another number of 24 bits; wraps, so that `0xffffff+1` is 0.
    pub(super) fn u24(&self, word: Word<'_>) -> Result<u32> {
        Ok((self.int(word)? & 0xFF_FFFF) as u32)
    }

    /// A number of 32 bits.
    pub(super) fn u32(&self, word: Word<'_>) -> Result<u32> {
        Ok(self.at_most(word, u32::MAX.into())? as u32)
    }

    /// 0 or 1.
    pub(super) fn bit(&self, word: Word<'_>) -> Result<bool> {
        match word.text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => self.error(word, "0 or 1"),
        }
    }

    /// A number in which names of regions may stand.
    pub(super) fn num(&self, word: Word<'_>) -> Result<Num> {
        let mut list = Vec::new();
        for (join, term) in terms(word, &['+', '-', '^']) {
            let join = match join {
                '-' => Join::Sub,
                '^' => Join::Xor,
                _ => Join::Add,
            };
            let is_name = term.text.starts_with(|c: char| c.is_ascii_alphabetic());
            list.push((
                join,
                if is_name { Term::Region(term.text.to_owned()) } else { Term::Number(self.literal(term)?) },
            ));
        }
        Ok(Num { terms: list })
    }

    /// `pat`, `pat+1024`, `fill(0xab)`, `zero`, `u64(40)`, or hex digits.
    pub(super) fn data(&self, word: Word<'_>) -> Result<Data> {
        let text = word.text;
        let argument = |name: &str| {
            let inner = text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
            Some(Word { text: inner, column: word.column + name.len() + 1 })
        };
        if text == "zero" {
            return Ok(Data::Fill(0));
        }
        if text == "pat" {
            return Ok(Data::Pattern(0));
        }
        if text.starts_with("pat+") {
            return Ok(Data::Pattern(self.int(word.from(4))?));
        }
        if let Some(inner) = argument("fill") {
            return Ok(Data::Fill(self.at_most(inner, 255)? as u8));
        }
        if let Some(inner) = argument("u64") {
            return Ok(Data::Word(self.int(inner)?));
        }
        let byte = |i: usize| u8::from_str_radix(text.get(i..i + 2)?, 16).ok();
        match (0..text.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>() {
            Some(bytes) if !bytes.is_empty() => Ok(Data::Bytes(bytes)),
            _ => self
                .error(word, "bytes: pat, pat+OFFSET, zero, fill(BYTE), u64(NUMBER) or an even number of hex digits"),
        }
    }

    /// `name[start..end]`
    pub(super) fn span(&self, word: Word<'_>) -> Result<Span> {
        let expected = "a piece of a region: name[start..end]";
        let Some((mr, rest)) = word.split("[") else { return self.error(word, expected) };
        let inner = match rest.text.strip_suffix(']') {
            Some(inner) => rest.to(inner.len()),
            None => return self.error(word, expected),
        };
        let Some((start, end)) = inner.split("..") else { return self.error(word, expected) };
        let (start, end) = (self.int(start)?, self.int(end)?);
        if end < start {
            return self.error(inner, "an end that is not before the start");
        }
        Ok(Span { mr: mr.text.to_owned(), start, end })
    }

    /// Pieces, separated by commas; `piece*n` stands for it n times.
    pub(super) fn spans(&self, word: Word<'_>) -> Result<Vec<Span>> {
        let mut list = Vec::new();
        if word.text == "nothing" {
            return Ok(list);
        }
        for (_, item) in terms(word, &[',']) {
            let (piece, times) = match item.split("]*") {
                Some((piece, times)) => (item.to(piece.text.len() + 1), self.at_most(times, 64)?),
                None => (item, 1),
            };
            let span = self.span(piece)?;
            list.extend((0..times).map(|_| span.clone()));
        }
        Ok(list)
    }

    /// One of a table's words.
    pub(super) fn one_of<T: Copy>(&self, word: Word<'_>, table: Table<T>, what: &str) -> Result<T> {
        match names::find(table, word.text) {
            Some(value) => Ok(value),
            None => self.unknown(word, what, table.iter().map(|(name, _)| *name)),
        }
    }

    /// Rights, separated by commas.
    pub(super) fn rights(&self, word: Word<'_>) -> Result<Access> {
        let mut all = Access::empty();
        for (_, right) in terms(word, &[',']) {
            all |= self.one_of(right, names::RIGHTS, "a right")?;
        }
        Ok(all)
    }

    /// An IP address.
    pub(super) fn address(&self, word: Word<'_>) -> Result<Gid> {
        match word.text.parse() {
            Ok(ip) => Ok(Gid::from_ip(ip)),
            Err(_) => self.error(word, "an IPv4 or IPv6 address"),
        }
    }

    /// `"text"`, without the quotes.
    pub(super) fn quoted(&self, word: Word<'_>) -> Result<String> {
        match word.text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
            Some(text) => Ok(text.to_owned()),
            None => self.error(word, "a text in double quotes"),
        }
    }

    /// `+5us`, `+T`, `+2T..4T`, `+rnr(12)`.
    pub(super) fn when(&self, word: Word<'_>) -> Result<When> {
        let body = word.from(1);
        match body.split("..") {
            Some((from, to)) => Ok(When { from: self.delay(from)?, to: Some(self.delay(to)?) }),
            None => Ok(When { from: self.delay(body)?, to: None }),
        }
    }

    fn delay(&self, word: Word<'_>) -> Result<Delay> {
        let expected = "a time: 0, 10ns, 5us, 1.5ms, 2s, T (the ACK timeout), 3T or rnr(CODE)";
        let text = word.text;
        if text == "0" {
            return Ok(Delay::Ns(0));
        }
        if let Some(code) = text.strip_prefix("rnr(").and_then(|t| t.strip_suffix(')')) {
            let code = self.at_most(Word { text: code, column: word.column + 4 }, 31)?;
            return Ok(Delay::Rnr(code as u8));
        }
        let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let Some(thousandths) = (if number.is_empty() { Some(1000) } else { thousandths(number) }) else {
            return self.error(word, expected);
        };
        let per_unit = match unit {
            "T" if thousandths > LONGEST_IN_T * 1000 => return self.error(word, "a time of at most 1000T"),
            "T" => return Ok(Delay::Timeout(thousandths)),
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return self.error(word, expected),
        };
        if number.is_empty() {
            return self.error(word, expected);
        }
        match thousandths.checked_mul(per_unit).map(|n| n / 1000) {
            Some(ns) if ns <= LONGEST_NS => Ok(Delay::Ns(ns)),
            _ => self.error(word, "a time of at most 3600s"),
        }
    }
}

/// The longest time in a script: an hour. Sums of them stay far from what 64 bits of nanoseconds hold.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// The longest time in ACK timeouts.
const LONGEST_IN_T: u64 = 1000;

/// A decimal number with up to three places, times 1000.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part = format!("{part:0<3}");
    if part.len() > 3 {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part.parse().ok()?)
}

/// The parts of a word between separators, each with the separator before it. Brackets are not looked into.
fn terms<'a>(word: Word<'a>, separators: &[char]) -> Vec<(char, Word<'a>)> {
    let mut list = Vec::new();
    let (mut start, mut join, mut depth) = (0, '+', 0);
    for (at, c) in word.text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            _ if depth == 0 && separators.contains(&c) => {
                list.push((join, word.from(start).to(at - start)));
                (start, join) = (at + c.len_utf8(), c);
            }
            _ => {}
        }
    }
    list.push((join, word.from(start)));
    list
}
