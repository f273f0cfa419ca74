//! Socket options that rustix has no door for. What enters: a socket. What leaves: nothing, or the system's error.

#![allow(unsafe_code)]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

// linux/udp.h
#[cfg(test)]
const UDP_NO_CHECK6_TX: libc::c_int = 101;
const UDP_NO_CHECK6_RX: libc::c_int = 102;

/// Has an IPv6 socket take datagrams without a UDP checksum, which the kernel drops otherwise (RFC 6935: allowed where something else
/// guards the payload, here the ICRC). `rdma_rxe` and hardware send RoCE v2 so.
pub(crate) fn take_without_checksum(socket: &UdpSocket) -> io::Result<()> {
    switch_on(socket, UDP_NO_CHECK6_RX)
}

/// Has an IPv6 socket send without a UDP checksum.
#[cfg(test)]
pub(crate) fn send_without_checksum(socket: &UdpSocket) -> io::Result<()> {
    switch_on(socket, UDP_NO_CHECK6_TX)
}

fn switch_on(socket: &UdpSocket, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    // SAFETY: `on` lives through the call and `len` is its size.
    let status =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_UDP, option, (&raw const on).cast(), len) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn over_ipv6_a_datagram_without_checksum_comes_through() {
        let Ok(receiver) = UdpSocket::bind("[::1]:0") else {
            return println!("SKIP over_ipv6_a_datagram_without_checksum_comes_through: no ::1 here");
        };
        let sender = UdpSocket::bind("[::1]:0").expect("a socket");
        send_without_checksum(&sender).expect("Linux 3.16");
        take_without_checksum(&receiver).expect("Linux 3.16");
        receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        sender.send_to(b"RoCE", receiver.local_addr().expect("bound")).expect("sent");
        let mut bytes = [0; 16];
        assert_eq!(receiver.recv(&mut bytes).expect("it is not dropped"), 4);
    }
}
