//! The TCP connection over which two ends tell each other where they are.
//!
//! In: a host and a port. Out: a connected stream, or why there is none.

use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long a server that is only just starting is waited for.
const START_UP: Duration = Duration::from_secs(2);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// Nobody answers.
    #[error("Couldn't connect to {host}:{port}: {source}; is the server running, and its TCP port reachable?")]
    Connect {
        /// As given by the user.
        host: String,
        /// TCP port.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// The port is taken, mostly.
    #[error("Couldn't listen to port {port}: {source}; -p takes another")]
    Listen {
        /// TCP port.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody could be let in.
    #[error("accept() failed: {0}")]
    Accept(io::Error),
}

/// Connects; a server that refuses may be about to listen and is asked again for a short while.
pub fn connect(host: &str, port: u16) -> Result<TcpStream, TcpError> {
    let failed = |source| TcpError::Connect { host: host.to_owned(), port, source };
    let addresses: Vec<_> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    let start = Instant::now();
    loop {
        match TcpStream::connect(addresses.as_slice()) {
            Ok(stream) => return Ok(stream),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused && start.elapsed() < START_UP => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(source) => return Err(failed(source)),
        }
    }
}

/// A listener for both families where there are both.
pub fn listen(port: u16) -> Result<TcpListener, TcpError> {
    TcpListener::bind(("::", port))
        .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
        .map_err(|source| TcpError::Listen { port, source })
}

/// The first who comes.
pub fn accept(listener: &TcpListener) -> Result<TcpStream, TcpError> {
    Ok(listener.accept().map_err(TcpError::Accept)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_starts_late_is_found() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let client = std::thread::spawn(move || connect("127.0.0.1", port).map(drop));
        std::thread::sleep(Duration::from_millis(120));
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        accept(&listener).unwrap();
        client.join().unwrap().unwrap();
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = listen(0).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = listen(port).unwrap_err().to_string();
        assert!(error.contains(&port.to_string()) && error.contains("-p"), "{error}");
    }
}
