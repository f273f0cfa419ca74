//! The kernel's own sockets over the same veth.
//!
//! In: sizes and times. Out: Gbit/s that arrive, or the times of round trips.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::WARM_UP;
use super::net::{Net, Side};
use crate::pair::Result;

const PORT: u16 = 7000;
/// Bytes of one write to a TCP socket.
const WRITE: usize = 64 << 10;

/// Gbit/s of payload that a UDP receiver gets, of datagrams with `size` bytes.
///
/// # Errors
/// What the sockets say.
pub fn udp(net: &Net, size: usize, time: Duration) -> Result<f64> {
    let (received, stop, ready) = (AtomicU64::new(0), AtomicBool::new(false), Barrier::new(2));
    let (received, stop, ready) = (&received, &stop, &ready);
    let send = move || {
        net.take_cpu(Side::A)?;
        let socket = UdpSocket::bind((Side::A.address(), 0))?;
        ready.wait();
        socket.connect((Side::B.address(), PORT))?;
        let (bytes, start) = (vec![7; size], Instant::now());
        while start.elapsed() < time {
            for _ in 0..64 {
                // A full buffer at the other end is a lost datagram, which the receiver does not count.
                let _ = socket.send(&bytes);
            }
        }
        let (bytes, elapsed) = (received.load(Ordering::Relaxed), start.elapsed());
        stop.store(true, Ordering::Relaxed);
        Ok(bytes as f64 * 8.0 / elapsed.as_nanos() as f64)
    };
    let receive = move || {
        net.take_cpu(Side::B)?;
        let socket = UdpSocket::bind((Side::B.address(), PORT))?;
        socket.set_nonblocking(true)?;
        let mut bytes = vec![0; 65536];
        ready.wait();
        while !stop.load(Ordering::Relaxed) {
            match socket.recv(&mut bytes) {
                Ok(count) => _ = received.fetch_add(count as u64, Ordering::Relaxed),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    };
    Ok(net.both(send, receive)?.0)
}

/// Gbit/s of a TCP stream with segments of at most `mss` bytes.
///
/// # Errors
/// What the sockets say.
pub fn tcp(net: &Net, mss: usize, time: Duration) -> Result<f64> {
    let ready = Barrier::new(2);
    let ready = &ready;
    let send = move || {
        net.take_cpu(Side::A)?;
        ready.wait();
        let mut stream = connect_with_mss(mss)?;
        let (bytes, start) = (vec![7; WRITE], Instant::now());
        while start.elapsed() < time {
            stream.write_all(&bytes)?;
        }
        Ok(())
    };
    let receive = move || {
        net.take_cpu(Side::B)?;
        let listener = TcpListener::bind((Side::B.address(), PORT))?;
        ready.wait();
        let mut stream = listener.accept()?.0;
        let (mut bytes, mut total, start) = (vec![0; 4 * WRITE], 0_u64, Instant::now());
        loop {
            match stream.read(&mut bytes)? {
                0 => return Ok(total as f64 * 8.0 / start.elapsed().as_nanos() as f64),
                count => total += count as u64,
            }
        }
    };
    Ok(net.both(send, receive)?.1)
}

/// TCP_MAXSEG has to be set before the connection is made, which std has no call for.
#[allow(unsafe_code, reason = "a socket option has to be set before connect")]
fn connect_with_mss(mss: usize) -> Result<TcpStream> {
    use std::os::fd::FromRawFd;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Side::B.address()).to_be() },
        sin_zero: [0; 8],
    };
    let value = mss as i32;
    // SAFETY: the calls read a value and an address of the sizes given; the stream owns the descriptor from the start, so
    // that it is closed whatever fails.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        let stream = TcpStream::from_raw_fd(fd);
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_MAXSEG);
        let failed = libc::setsockopt(stream.as_raw_fd(), level, option, (&raw const value).cast(), 4) != 0
            || libc::connect(stream.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) != 0;
        if failed { Err(std::io::Error::last_os_error().into()) } else { Ok(stream) }
    }
}

/// The times of `rounds` round trips of datagrams, in nanoseconds; both ends spin.
///
/// # Errors
/// What the sockets say, or that a datagram was lost.
pub fn udp_ping_pong(net: &Net, size: usize, rounds: usize) -> Result<Vec<u64>> {
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(2));
    let (stop, ready) = (&stop, &ready);
    let ping = move || {
        net.take_cpu(Side::A)?;
        let socket = UdpSocket::bind((Side::A.address(), PORT))?;
        socket.set_nonblocking(true)?;
        ready.wait();
        let (bytes, mut times) = (vec![1; size], Vec::with_capacity(WARM_UP + rounds));
        for _ in 0..WARM_UP + rounds {
            let start = Instant::now();
            socket.send_to(&bytes, (Side::B.address(), PORT))?;
            if spin(&socket, stop)?.is_none() {
                break;
            }
            times.push(start.elapsed().as_nanos() as u64);
        }
        stop.store(true, Ordering::Relaxed);
        if times.len() == WARM_UP + rounds { Ok(times.split_off(WARM_UP)) } else { Err("a datagram was lost".into()) }
    };
    let pong = move || {
        net.take_cpu(Side::B)?;
        let socket = UdpSocket::bind((Side::B.address(), PORT))?;
        socket.set_nonblocking(true)?;
        let bytes = vec![1; size];
        ready.wait();
        while spin(&socket, stop)?.is_some() {
            socket.send_to(&bytes, (Side::A.address(), PORT))?;
        }
        Ok(())
    };
    Ok(net.both(ping, pong)?.0)
}

/// Waits for a datagram. `None` when it is time to stop, or none came for two seconds.
fn spin(socket: &UdpSocket, stop: &AtomicBool) -> Result<Option<usize>> {
    let (start, mut bytes) = (Instant::now(), [0; 2048]);
    loop {
        match socket.recv(&mut bytes) {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if stop.load(Ordering::Relaxed) || start.elapsed() > Duration::from_secs(2) {
            return Ok(None);
        }
    }
}
