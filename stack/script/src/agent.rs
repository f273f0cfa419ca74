//! A verbs agent: somebody at another machine who makes verbs calls for us (the protocol: docs/agent.md).
//!
//! In: request lines. Out: their replies, taken apart.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Beyond what a request asks the agent to wait, its answer must come within this.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The connection is of no use any more, or the agent is not one.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody listens, or nobody answers.
    #[error(
        "the verbs agent at {address}: {source}; is one running there (`xroce agent`, or tests/rxe/agent), and its port open?"
    )]
    Connect {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The connection broke, or no answer came in time.
    #[error("the verbs agent: {request}: {source}")]
    Lost {
        /// The request line.
        request: String,
        /// What the system says.
        source: io::Error,
    },
    /// A reply that the protocol does not have.
    #[error("the verbs agent: {request}: a reply without a usable {key}: {reply}")]
    Reply {
        /// The request line.
        request: String,
        /// What is missing.
        key: String,
        /// The whole reply.
        reply: String,
    },
    /// A request that has to succeed was refused.
    #[error("the verbs agent: {request}: {refused}")]
    Refused {
        /// The request line.
        request: String,
        /// Why.
        refused: Refused,
    },
}

/// The verbs call, or the agent, said no. The connection goes on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {text} ({name})")]
pub struct Refused {
    /// The name of the error number: `EINVAL`.
    pub name: String,
    /// The call or the argument that failed.
    pub at: String,
    /// For a person to read.
    pub text: String,
}

/// A reply `ok key=value ...`.
#[derive(Clone, Debug)]
pub struct Reply {
    request: String,
    line: String,
}

impl Reply {
    /// All pairs, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.line.split_ascii_whitespace().skip(1).filter_map(|word| word.split_once('='))
    }

    /// All values of `key`, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs().filter(move |(k, _)| *k == key).map(|(_, value)| value)
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
        number(self.text(key)?).ok_or_else(|| self.lacks(key))
    }

    /// Of a reply to `help`: the agent has that command, and the command that key (empty: whatever keys).
    pub fn offers(&self, command: &str, key: &str) -> bool {
        let Some(at) = self.line.find(&format!(" {command}(")) else { return false };
        let keys = self.line[at..].split(['(', ')']).nth(1).unwrap_or("");
        key.is_empty() || keys.split(' ').any(|k| k == key)
    }

    /// What to say of a reply that lacks something.
    pub fn lacks(&self, key: &str) -> AgentError {
        AgentError::Reply { request: self.request.clone(), key: key.to_owned(), reply: self.line.clone() }
    }
}

/// A number of the protocol: decimal or 0x.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A connection to an agent, with the objects made over it: they are gone with it.
#[derive(Debug)]
pub struct Agent {
    lines: BufReader<TcpStream>,
}

impl Agent {
    /// Connects.
    ///
    /// # Errors
    /// Nobody is there.
    pub fn connect(address: SocketAddr) -> Result<Agent, AgentError> {
        let failed = |source| AgentError::Connect { address, source };
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).map_err(failed)?;
        stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(ANSWER_LIMIT))).map_err(failed)?;
        Ok(Agent { lines: BufReader::new(stream) })
    }

    /// One request, one reply; either may be a refusal.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn ask(&mut self, request: &str) -> Result<Result<Reply, Refused>, AgentError> {
        let mut replies = self.ask_all(&[request.to_owned()])?;
        Ok(replies.pop().expect("as many replies as requests"))
    }

    /// One request that has to succeed.
    ///
    /// # Errors
    /// The connection is lost, or the agent refuses.
    pub fn call(&mut self, request: &str) -> Result<Reply, AgentError> {
        self.ask(request)?.map_err(|refused| AgentError::Refused { request: short(request), refused })
    }

    /// Several requests at once, in order; as many replies.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn ask_all(&mut self, requests: &[String]) -> Result<Vec<Result<Reply, Refused>>, AgentError> {
        let lost = |source, request: &String| AgentError::Lost { request: short(request), source };
        let mut text = requests.join("\n");
        text.push('\n');
        self.lines.get_mut().write_all(text.as_bytes()).map_err(|e| lost(e, &requests[0]))?;
        let reply = |request: &String| self.reply(request).map_err(|e| lost(e, request));
        requests.iter().map(reply).collect()
    }

    fn reply(&mut self, request: &str) -> io::Result<Result<Reply, Refused>> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        if !["ok", "err"].contains(&line.split(' ').next().unwrap_or_default()) {
            let what = format!("{:?} is no reply of an agent: something else listens there", short(&line));
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(taken_apart(short(request), line))
    }
}

/// A request as it is shown: bytes in hexadecimal do not help a reader.
fn short(request: &str) -> String {
    const SHOWN: usize = 200;
    match request.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &request[..end]),
        None => request.to_owned(),
    }
}

fn taken_apart(request: String, line: String) -> Result<Reply, Refused> {
    if line == "ok" || line.starts_with("ok ") {
        return Ok(Reply { request, line });
    }
    let (head, text) = line.split_once(" text=").unwrap_or((&line, ""));
    let value = |key: &str| {
        let found = head.split(' ').filter_map(|word| word.split_once('=')).find(|(k, _)| *k == key);
        found.map_or_else(String::new, |(_, v)| v.to_owned())
    };
    Err(Refused { name: value("name"), at: value("at"), text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_no_agent_is_told_apart() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            stream
        });
        let error = Agent::connect(address).unwrap().call("open").unwrap_err().to_string();
        assert!(error.contains("\"HTTP/1.1 400 Bad Request\" is no reply of an agent"), "{error}");
        other.join().unwrap();
    }

    #[test]
    fn replies_are_taken_apart() {
        let reply = taken_apart("x".into(), "ok a=1 wc=p b=0x1F wc=q t=word".into()).unwrap();
        assert_eq!((reply.number("a").unwrap(), reply.number("b").unwrap()), (1, 31));
        assert_eq!(reply.all("wc").collect::<Vec<_>>(), ["p", "q"]);
        assert!(matches!(reply.number("t"), Err(AgentError::Reply { .. })));
        let help = taken_apart("help".into(), "ok help() mr_reg(pd buf) drops()".into()).unwrap();
        assert!(help.offers("mr_reg", "buf") && help.offers("drops", "") && !help.offers("mr_reg", "uf"));
        assert!(!help.offers("qp_create", "") && !help.offers("reg", "pd"));
        let refused =
            taken_apart("x".into(), "err errno=2 name=ENOENT at=scq text=handle 7 is no CQ".into()).unwrap_err();
        assert_eq!(refused.to_string(), "scq: handle 7 is no CQ (ENOENT)");
    }
}
