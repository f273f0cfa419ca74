//! How nodes find each other: a TCP connection for each pair, over which addresses are exchanged.
//!
//! The higher index connects to the lower: over the loopback where all nodes are in one process, else through the same network
//! that carries RoCE.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A TCP connection to each other node. Who connects says its index in the first byte.
pub fn meet(me: u32, listener: &TcpListener, at: &[SocketAddr]) -> Result<Vec<(u32, TcpStream)>, Failure> {
    let mut peers = Vec::new();
    for (index, address) in at.iter().enumerate().take(me as usize) {
        let mut stream = dial(address)?;
        stream.write_all(&[me as u8])?;
        peers.push((index as u32, stream));
    }
    while peers.len() + 1 < at.len() {
        let (mut stream, _) = listener.accept()?;
        let mut index = [0];
        stream.read_exact(&mut index)?;
        peers.push((index[0].into(), stream));
    }
    // The same order everywhere: lower pairs first, so that no two nodes wait for each other in a circle.
    peers.sort_by_key(|(index, _)| *index);
    Ok(peers)
}

fn dial(address: &SocketAddr) -> Result<TcpStream, Failure> {
    let deadline = Instant::now() + CONNECT_LIMIT;
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(e) if Instant::now() > deadline => return Err(format!("no node at {address}: {e}").into()),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}
