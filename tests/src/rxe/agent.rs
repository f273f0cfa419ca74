//! The connection to the verbs agent (tests/rxe/agent/peer.c). Enters: one request line. Leaves: its reply, taken apart.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Beyond what a command is asked to wait, its answer must come within this.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The verbs call, or the agent, said no. The connection goes on.
    #[error("peer: {request}: {at}: {text} ({name})")]
    Refused {
        /// The request line.
        request: String,
        /// Linux error number.
        errno: i32,
        /// Its name ("EINVAL").
        name: String,
        /// The call or the argument that failed.
        at: String,
        /// For a person to read.
        text: String,
    },
    /// The connection broke: the guest ended, or the agent's process did.
    #[error("peer: {request}: connection lost: {source}")]
    Lost {
        /// The request line.
        request: String,
        /// What the socket said.
        source: io::Error,
    },
    /// The reply lacks something.
    #[error("peer: {request}: reply without a usable {key}: {reply}")]
    Reply {
        /// The request line.
        request: String,
        /// The missing key.
        key: String,
        /// The whole reply.
        reply: String,
    },
}

impl AgentError {
    /// The error number of a refusal.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

/// A reply "ok key=value ...".
#[derive(Clone, Debug)]
pub struct Reply {
    request: String,
    line: String,
}

impl Reply {
    /// All values of `key`, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs().filter(move |(k, _)| *k == key).map(|(_, v)| v)
    }

    /// All pairs, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.line.split_ascii_whitespace().skip(1).filter_map(|word| word.split_once('='))
    }

    /// The value of `key` as text.
    ///
    /// # Errors
    /// There is none.
    pub fn text<'a>(&'a self, key: &'a str) -> Result<&'a str, AgentError> {
        self.all(key).next().ok_or_else(|| self.lacks(key))
    }

    /// The value of `key` as a number, decimal or 0x.
    ///
    /// # Errors
    /// There is none, or it is no number.
    pub fn number(&self, key: &str) -> Result<u64, AgentError> {
        parse_number(self.text(key)?).ok_or_else(|| self.lacks(key))
    }

    /// All pairs whose value is a number.
    pub fn numbers(&self) -> BTreeMap<String, u64> {
        self.pairs().filter_map(|(k, v)| Some((k.to_owned(), parse_number(v)?))).collect()
    }

    pub(super) fn lacks(&self, key: &str) -> AgentError {
        AgentError::Reply { request: self.request.clone(), key: key.to_owned(), reply: self.line.clone() }
    }
}

pub(super) fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// One connection to the agent, with the objects made over it. The typed commands are in `commands.rs`.
pub struct PeerAgent {
    lines: BufReader<TcpStream>,
}

impl PeerAgent {
    /// Takes over a connected socket and makes sure that an agent is at its other end.
    ///
    /// # Errors
    /// None answers.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let mut agent = Self { lines: BufReader::new(stream) };
        agent.call("devices").map_err(io::Error::other)?;
        Ok(agent)
    }

    /// One command line, one reply.
    ///
    /// # Errors
    /// All of [`AgentError`].
    pub fn call(&mut self, request: &str) -> Result<Reply, AgentError> {
        self.call_waiting(request, Duration::ZERO)
    }

    /// The same for a command that waits up to `wait` by itself.
    ///
    /// # Errors
    /// All of [`AgentError`].
    pub fn call_waiting(&mut self, request: &str, wait: Duration) -> Result<Reply, AgentError> {
        let line =
            self.exchange(request, wait).map_err(|source| AgentError::Lost { request: request.to_owned(), source })?;
        if line == "ok" || line.starts_with("ok ") {
            return Ok(Reply { request: request.to_owned(), line });
        }
        let (head, text) = line.split_once(" text=").unwrap_or((&line, ""));
        let value = |key: &str| {
            let found = head.split(' ').filter_map(|w| w.split_once('=')).find(|(k, _)| *k == key);
            found.map_or_else(String::new, |(_, v)| v.to_owned())
        };
        Err(AgentError::Refused {
            request: request.to_owned(),
            errno: value("errno").parse().unwrap_or(0),
            name: value("name"),
            at: value("at"),
            text: text.to_owned(),
        })
    }

    fn exchange(&mut self, request: &str, wait: Duration) -> io::Result<String> {
        self.lines.get_ref().set_read_timeout(Some(wait + ANSWER_LIMIT))?;
        self.lines.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_apart() {
        let reply = Reply { request: "x".into(), line: "ok a=1 wc=p b=0x1F wc=q t=word".into() };
        assert_eq!((reply.number("a").unwrap(), reply.number("b").unwrap()), (1, 31));
        assert_eq!(reply.all("wc").collect::<Vec<_>>(), ["p", "q"]);
        assert_eq!(reply.numbers().len(), 2);
        assert!(matches!(reply.number("t"), Err(AgentError::Reply { .. })));
        assert!(reply.text("none").is_err());
    }
}
