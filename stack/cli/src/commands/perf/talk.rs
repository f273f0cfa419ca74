//! What the two ends tell each other over TCP.
//!
//! In and out: lines of text, `xroce-perf1:` and a word, then fields in hexadecimal of fixed width. The client tells its plan,
//! the server agrees or says why not; each tells where its queue pairs and memory are; both say when they are ready; the client
//! says when it is done, and the server what it saw. While the test runs a thread listens for the other side, so that the data
//! path needs no system call to learn that it is over.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use xroce::{QpEndpoint, RemoteMr};

use super::plan::Plan;

/// What every line begins with: the name and version of this format.
const PREFIX: &str = "xroce-perf1:";

/// Bytes of the longest line; a longer one is none of ours.
const LINE_MAX: u64 = 1024;

/// How long the other side may take to get ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// What is to be measured.
    Plan(Plan),
    /// It cannot be, and why.
    Refuse(String),
    /// One queue pair, and its memory.
    Place(QpEndpoint, RemoteMr),
    /// Ready to send and receive.
    Ready,
    /// So many messages were sent.
    Done(u64),
    /// So many messages were received, at so much CPU time in nanoseconds.
    Result(u64, u64),
}

/// Why the two did not understand each other.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// The connection broke.
    #[error("the connection to the other end: {0}")]
    Broken(#[from] io::Error),
    /// The other end closed.
    #[error("the other end is gone; look there for the reason")]
    Gone,
    /// The other end refuses.
    #[error("the other end: {0}")]
    Refused(String),
    /// That is no line of ours.
    #[error("the other end sent {text:?}: it is no `xroce perf` of this version")]
    Unknown {
        /// What came.
        text: String,
    },
    /// A line of ours at the wrong time.
    #[error("the other end said {text:?} where {wanted} was due")]
    OutOfTurn {
        /// What came.
        text: String,
        /// What should have come.
        wanted: &'static str,
    },
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        match self {
            Message::Plan(plan) => write!(f, "plan:{plan}"),
            Message::Refuse(why) => write!(f, "refuse:{}", why.replace('\n', " ")),
            Message::Place(qp, mr) => write!(f, "place:{qp}/{mr}"),
            Message::Ready => f.write_str("ready:"),
            Message::Done(sent) => write!(f, "done:{sent:016x}"),
            Message::Result(received, cpu_ns) => write!(f, "result:{received:016x}:{cpu_ns:016x}"),
        }
    }
}

impl Message {
    fn parse(line: &str) -> Option<Message> {
        let (word, rest) = line.strip_prefix(PREFIX)?.split_once(':')?;
        Some(match word {
            "plan" => Message::Plan(Plan::parse(rest)?),
            "refuse" => Message::Refuse(rest.to_owned()),
            "place" => {
                let (qp, mr) = rest.split_once('/')?;
                Message::Place(qp.parse().ok()?, mr.parse().ok()?)
            }
            "ready" if rest.is_empty() => Message::Ready,
            "done" => Message::Done(hex16(rest)?),
            "result" => {
                let (received, cpu_ns) = rest.split_once(':')?;
                Message::Result(hex16(received)?, hex16(cpu_ns)?)
            }
            _ => return None,
        })
    }
}

/// The value of exactly 16 hexadecimal digits.
fn hex16(text: &str) -> Option<u64> {
    let fits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// The connection.
pub struct Talk {
    reader: BufReader<TcpStream>,
}

impl Talk {
    /// Takes over a connection.
    pub fn new(stream: TcpStream) -> Result<Talk, TalkError> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Talk { reader: BufReader::new(stream) })
    }

    /// Says something.
    pub fn say(&mut self, message: &Message) -> Result<(), TalkError> {
        Ok(self.reader.get_mut().write_all(format!("{message}\n").as_bytes())?)
    }

    /// Hears what is said next; a refusal is an error.
    pub fn hear(&mut self) -> Result<Message, TalkError> {
        let mut line = Vec::new();
        (&mut self.reader).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(TalkError::Gone);
        }
        let text = String::from_utf8_lossy(&line);
        match text.strip_suffix('\n').and_then(Message::parse) {
            Some(Message::Refuse(why)) => Err(TalkError::Refused(why)),
            Some(message) => Ok(message),
            None => Err(TalkError::Unknown { text: text.trim_end().to_owned() }),
        }
    }

    /// Hears a plan.
    pub fn hear_plan(&mut self) -> Result<Plan, TalkError> {
        match self.hear()? {
            Message::Plan(plan) => Ok(plan),
            other => Err(out_of_turn(&other, "the plan")),
        }
    }

    /// Hears where `count` queue pairs are.
    pub fn hear_places(&mut self, count: usize) -> Result<Vec<(QpEndpoint, RemoteMr)>, TalkError> {
        let place = |_| match self.hear()? {
            Message::Place(qp, mr) => Ok((qp, mr)),
            other => Err(out_of_turn(&other, "the place of a queue pair")),
        };
        (0..count).map(place).collect()
    }

    /// Hears that the other side is ready.
    pub fn hear_ready(&mut self) -> Result<(), TalkError> {
        match self.hear()? {
            Message::Ready => Ok(()),
            other => Err(out_of_turn(&other, "\"ready\"")),
        }
    }

    /// From now on a thread listens.
    pub fn listen(self) -> Result<Listener, TalkError> {
        let writer = self.reader.get_ref().try_clone()?;
        writer.set_read_timeout(None)?;
        let heard = Arc::new(AtomicBool::new(false));
        let (sender, messages) = channel();
        let flag = heard.clone();
        let mut talk = self;
        std::thread::Builder::new().name("listener".to_owned()).spawn(move || {
            loop {
                let message = talk.hear();
                let over = message.is_err();
                // The flag first: who sees it waits for the message.
                flag.store(true, Ordering::Release);
                // Nobody takes it any more when the test is over at this end.
                let unheard = sender.send(message).is_err();
                if over || unheard {
                    return;
                }
            }
        })?;
        Ok(Listener { writer, heard, messages })
    }
}

fn out_of_turn(message: &Message, wanted: &'static str) -> TalkError {
    TalkError::OutOfTurn { text: message.to_string(), wanted }
}

/// The connection while a test runs.
pub struct Listener {
    writer: TcpStream,
    heard: Arc<AtomicBool>,
    messages: Receiver<Result<Message, TalkError>>,
}

impl Listener {
    /// Whether the other side has ever said something, or gone: a look at memory.
    #[inline]
    pub fn heard(&self) -> bool {
        self.heard.load(Ordering::Acquire)
    }

    /// Says something.
    pub fn say(&mut self, message: &Message) -> Result<(), TalkError> {
        Ok(self.writer.write_all(format!("{message}\n").as_bytes())?)
    }

    /// What the other side says next; waits for it.
    pub fn next(&self) -> Result<Message, TalkError> {
        self.messages.recv().unwrap_or(Err(TalkError::Gone))
    }

    /// As [`next`](Listener::next), up to a while; None when it is over.
    pub fn next_within(&self, time: Duration) -> Option<Result<Message, TalkError>> {
        self.messages.recv_timeout(time).ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Ends the thread that reads it.
        let _ = self.writer.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn addresses_keep_all_their_bytes() {
        let qp = "xroce-qp1:00000000000000000000ffffc0000201:012345:fedcba";
        let mr = "xroce-mr1:f123456789abcdef:fedcba98:0000010000000000";
        let line = format!("xroce-perf1:place:{qp}/{mr}");
        let Some(Message::Place(endpoint, memory)) = Message::parse(&line) else { panic!("{line}") };
        assert_eq!((memory.addr, memory.rkey.0), (0xf123_4567_89ab_cdef, 0xfedc_ba98));
        assert_eq!(Message::Place(endpoint, memory).to_string(), line);
    }

    #[test]
    fn every_message_comes_back_as_it_was() {
        let messages = [
            Message::Refuse("no: such".to_owned()),
            Message::Ready,
            Message::Done(u64::MAX),
            Message::Result(7, 1 << 63),
        ];
        for message in messages {
            assert_eq!(Message::parse(&message.to_string()), Some(message));
        }
        for bad in ["", "xroce-perf2:ready:", "xroce-perf1:ready", "xroce-perf1:done:1", "xroce-perf1:other:"] {
            assert_eq!(Message::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_conversation_and_a_sudden_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = Talk::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        let mut server = Talk::new(listener.accept().unwrap().0).unwrap();
        client.say(&Message::Ready).unwrap();
        server.hear_ready().unwrap();
        server.say(&Message::Refuse("busy".to_owned())).unwrap();
        assert!(matches!(client.hear(), Err(TalkError::Refused(why)) if why == "busy"));
        client.say(&Message::Done(1)).unwrap();
        assert!(matches!(server.hear_plan(), Err(TalkError::OutOfTurn { .. })));
        let server = server.listen().unwrap();
        assert!(!server.heard());
        drop(client);
        let gone = server.next().unwrap_err();
        assert!(matches!(gone, TalkError::Gone) && gone.to_string().contains("look there"), "{gone}");
        assert!(server.heard());
    }

    #[test]
    fn foreign_text_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = Talk::new(listener.accept().unwrap().0).unwrap();
        stream.write_all(b"GET / HTTP/1.1\n").unwrap();
        let error = server.hear().unwrap_err().to_string();
        assert!(error.contains("GET / HTTP/1.1"), "{error}");
    }
}
