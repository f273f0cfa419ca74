//! One line of a script: its words with their columns, and errors that point at them.

use crate::error::{ParseError, nearest};

/// A piece of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    /// In characters, from 1.
    pub(super) column: usize,
}

impl<'a> Word<'a> {
    /// What stands behind the first `n` bytes.
    pub(super) fn from(self, n: usize) -> Word<'a> {
        let column = self.column + self.text[..n].chars().count();
        Word { text: &self.text[n..], column }
    }

    /// The first `n` bytes.
    pub(super) fn to(self, n: usize) -> Word<'a> {
        Word { text: &self.text[..n], column: self.column }
    }

    /// Splits at the first `separator`: before and behind.
    pub(super) fn split(self, separator: &str) -> Option<(Word<'a>, Word<'a>)> {
        let at = self.text.find(separator)?;
        Some((self.to(at), self.from(at + separator.len())))
    }

    /// `name=value`, or a name alone.
    pub(super) fn field(self) -> (Word<'a>, Option<Word<'a>>) {
        match self.split("=") {
            Some((name, value)) => (name, Some(value)),
            None => (self, None),
        }
    }
}

/// A line without its comment, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) file: &'a str,
    pub(super) number: u32,
    pub(super) text: &'a str,
    /// What a reader is told about it.
    pub(super) comment: &'a str,
}

pub(super) type Result<T> = std::result::Result<T, ParseError>;

impl<'a> Line<'a> {
    /// The words; what stands between double quotes is one, or part of one.
    pub(super) fn words(&self) -> Words<'a> {
        let mut words = Vec::new();
        let mut start = None;
        let mut quoted = false;
        let text = self.text;
        for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
            quoted ^= c == '"';
            match (c.is_whitespace() && !quoted || at == text.len(), start) {
                (true, Some(from)) => {
                    words.push(Word { text: &text[from..at], column: text[..from].chars().count() + 1 });
                    start = None;
                }
                (false, None) => start = Some(at),
                _ => {}
            }
        }
        let end = Word { text: "", column: text.trim_end().chars().count() + 1 };
        Words { line: *self, words, next: 0, end }
    }

    /// `expected` is not what stands at `word`.
    pub(super) fn error<T>(&self, word: Word<'_>, expected: impl Into<String>) -> Result<T> {
        Err(ParseError {
            file: self.file.to_owned(),
            line: self.number,
            column: word.column,
            expected: expected.into(),
            found: word.text.to_owned(),
            text: self.text.trim_end().to_owned(),
        })
    }

    /// `word` is none of `names`: proposes the nearest, or lists them if they are few.
    pub(super) fn unknown<'n, T>(
        &self,
        word: Word<'_>,
        what: &str,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<T> {
        let expected = match nearest(word.text, names.clone()) {
            Some(name) => format!("{what} (did you mean {name}?)"),
            None => format!("{what} ({})", names.collect::<Vec<_>>().join(" ")),
        };
        self.error(word, expected)
    }
}

/// The words of a line, taken one by one.
pub(super) struct Words<'a> {
    pub(super) line: Line<'a>,
    words: Vec<Word<'a>>,
    next: usize,
    /// Where the line ends, for errors.
    pub(super) end: Word<'a>,
}

impl<'a> Words<'a> {
    pub(super) fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.next).copied()
    }

    pub(super) fn take(&mut self) -> Option<Word<'a>> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    pub(super) fn need(&mut self, expected: &str) -> Result<Word<'a>> {
        match self.take() {
            Some(word) => Ok(word),
            None => self.line.error(self.end, expected),
        }
    }

    /// Nothing may follow.
    pub(super) fn done(&mut self) -> Result<()> {
        match self.take() {
            Some(word) => self.line.error(word, "the end of the line"),
            None => Ok(()),
        }
    }

    /// The line from the next word on, as written.
    pub(super) fn rest(&self) -> String {
        let from = self.peek().map_or(self.end.column, |word| word.column) - 1;
        self.line.text.chars().skip(from).collect::<String>().trim_end().to_owned()
    }
}
