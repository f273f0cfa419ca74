//! What the two programs tell each other over TCP before they play.
//!
//! In and out: the line of rdma-core's `ibv_rc_pingpong` and `ibv_uc_pingpong`, so that either side can be one of those. It is
//! `LID:QPN:PSN:GID` in hexadecimal digits of fixed number (4, 6, 6, 32) with a NUL behind it. The client speaks first, the
//! server answers with its own once it can receive, and the client says "done".

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use xroce::{Gid, Psn, Qpn};

use crate::tcp::TcpError;

/// Bytes of the line with its NUL.
const LINE: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;

/// What the client says last, with its NUL.
const DONE: &[u8; 5] = b"done\0";

/// How long the other side may take for its next word. The originals wait for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a queue pair is to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Local identifier: 0 with RoCE.
    pub lid: u16,
    /// Queue pair.
    pub qpn: Qpn,
    /// PSN of its first packet.
    pub psn: Psn,
    /// GID; all zero if the program was started without `-g`.
    pub gid: Gid,
}

/// As the originals print it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { lid, qpn, psn, gid } = self;
        write!(f, "LID {lid:#06x}, QPN {:#08x}, PSN {:#08x}, GID {gid}", qpn.value(), psn.value())
    }
}

/// Why the addresses were not exchanged.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// No connection.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// The connection broke.
    #[error("Couldn't read/write remote address: {0}; are both ends the same program?")]
    Talk(#[from] io::Error),
    /// The line is not one.
    #[error("the other side sent {text:?}, which is no address line of a pingpong program")]
    Line {
        /// What came.
        text: String,
    },
    /// The other side could not receive what we send to a GID that it does not name.
    #[error("the other side named no GID: with RoCE it has to be started with -g")]
    NoGid,
}

impl Address {
    /// The line with its NUL.
    fn line(&self) -> [u8; LINE] {
        let Address { lid, qpn, psn, gid } = self;
        let text = format!("{lid:04x}:{:06x}:{:06x}:{}\0", qpn.value(), psn.value(), gid.to_hex32());
        text.as_bytes().try_into().expect("every field has its width")
    }

    fn parse(line: &[u8; LINE]) -> Result<Address, ExchangeError> {
        let bad = || ExchangeError::Line { text: String::from_utf8_lossy(line).into_owned() };
        let text = std::str::from_utf8(line).ok().and_then(|text| text.split('\0').next()).ok_or_else(bad)?;
        let fields: Vec<&str> = text.split(':').collect();
        let &[lid, qpn, psn, gid] = fields.as_slice() else { return Err(bad()) };
        let hex = |field| u32::from_str_radix(field, 16).map_err(|_| bad());
        let lid = u16::try_from(hex(lid)?).map_err(|_| bad())?;
        let gid = Gid::from_hex32(gid).map_err(|_| bad())?;
        if gid == Gid::UNSPECIFIED {
            return Err(ExchangeError::NoGid);
        }
        Ok(Address { lid, qpn: Qpn::new(hex(qpn)?), psn: Psn::new(hex(psn)?), gid })
    }
}

fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))
}

/// The client's part: our address goes, the server's comes.
pub fn ask(mut stream: TcpStream, ours: &Address) -> Result<Address, ExchangeError> {
    configure(&stream)?;
    stream.write_all(&ours.line())?;
    let theirs = read_line(&mut stream)?;
    stream.write_all(DONE)?;
    Ok(theirs)
}

/// The server's part up to where it has to get ready: the client's address.
pub fn hear(stream: &mut TcpStream) -> Result<Address, ExchangeError> {
    configure(stream)?;
    read_line(stream)
}

/// The rest of the server's part: our address goes, "done" comes.
pub fn answer(mut stream: TcpStream, ours: &Address) -> Result<(), ExchangeError> {
    stream.write_all(&ours.line())?;
    stream.read_exact(&mut [0; DONE.len()])?;
    Ok(())
}

fn read_line(stream: &mut TcpStream) -> Result<Address, ExchangeError> {
    let mut line = [0; LINE];
    stream.read_exact(&mut line)?;
    Address::parse(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{accept, connect};
    use std::net::TcpListener;

    fn address() -> Address {
        let gid = Gid::from_ipv4("192.0.2.7".parse().unwrap());
        Address { lid: 0, qpn: Qpn::new(0x12), psn: Psn::new(0xfedcba), gid }
    }

    #[test]
    fn the_line_is_that_of_the_originals() {
        let line = address().line();
        assert_eq!(&line[..], b"0000:000012:fedcba:00000000000000000000ffffc0000207\0");
        assert_eq!(Address::parse(&line).unwrap(), address());
        assert_eq!(address().to_string(), "LID 0x0000, QPN 0x000012, PSN 0xfedcba, GID ::ffff:192.0.2.7");
    }

    #[test]
    fn other_lines_are_refused() {
        let mut no_gid = address();
        no_gid.gid = Gid::UNSPECIFIED;
        assert!(matches!(Address::parse(&no_gid.line()), Err(ExchangeError::NoGid)));
        let mut line = address().line();
        line[4] = b' ';
        assert!(matches!(Address::parse(&line), Err(ExchangeError::Line { .. })));
        line.fill(0xff);
        assert!(matches!(Address::parse(&line), Err(ExchangeError::Line { .. })));
    }

    #[test]
    fn the_conversation_over_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = std::thread::spawn(move || ask(connect("127.0.0.1", port).unwrap(), &address()).unwrap());
        let mut stream = accept(&listener).unwrap();
        assert_eq!(hear(&mut stream).unwrap(), address());
        let server = Address { qpn: Qpn::new(0x13), ..address() };
        answer(stream, &server).unwrap();
        assert_eq!(client.join().unwrap(), server);
    }
}
