//! Where the peer is: its agent, its GIDs, and which of our addresses face them.
//!
//! In: what the user says, what the agent says, and what the kernel knows of routes. Out: a pair of addresses for each IP
//! version that works.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use xroce::{Gid, GidEntry};
use xroce_script::agent::{Agent, AgentError, number};
use xroce_script::live::{Pair, Peer};

use super::wire::{WireError, XdpWire};
use crate::commands::agent::PORT;

/// Host and TCP port of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    host: String,
    port: u16,
}

/// Why no peer can be reached.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The name of the host is not known.
    #[error("--peer {host}: {why}")]
    Host {
        /// As given by the user.
        host: String,
        /// What the system says.
        why: String,
    },
    /// The agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The way to the peer.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The device has no such address.
    #[error("the peer's device has no RoCE v2 GID for {address}; it has: {have}. Name one of them with --roce")]
    NoGid {
        /// What was looked for.
        address: IpAddr,
        /// What there is.
        have: String,
    },
    /// We have no address to send from.
    #[error(
        "{netdev} has no usable address of the family of {address} (with -g: no such GID, or one of the other family)"
    )]
    NoOwnGid {
        /// Our netdev.
        netdev: String,
        /// The peer's address.
        address: IpAddr,
    },
    /// The peer's port is down.
    #[error("the peer's port is not active: bring its netdev up")]
    Down,
}

impl FromStr for PeerAddress {
    type Err = String;

    /// `host`, `host:port`, `[v6]:port` or a bare IPv6 address.
    fn from_str(text: &str) -> Result<PeerAddress, String> {
        let whole = |host: &str| PeerAddress { host: host.to_owned(), port: PORT };
        if text.is_empty() {
            return Err("a host is needed".into());
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if bare.parse::<std::net::Ipv6Addr>().is_ok() {
            return Ok(whole(bare));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() => (host, Some(port)),
            Some(_) => return Err("a host is needed before the port".into()),
            None => (text, None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match port.map(crate::number::number::<u16>) {
            None => Ok(whole(host)),
            Some(Ok(port)) => Ok(PeerAddress { host: host.to_owned(), port }),
            Some(Err(why)) => Err(format!("the port: {why}")),
        }
    }
}

impl PeerAddress {
    /// The address of the agent.
    pub fn resolve(&self) -> Result<SocketAddr, PeerError> {
        let failed = |why: String| PeerError::Host { host: self.host.clone(), why };
        let mut found = (self.host.as_str(), self.port).to_socket_addrs().map_err(|e| failed(e.to_string()))?;
        found.next().ok_or_else(|| failed("no address".into()))
    }
}

/// Asks the agent where its device is, and the kernel how to get there.
pub fn find(
    wire: &mut XdpWire,
    agent: SocketAddr,
    device: Option<&str>,
    roce: IpAddr,
    own: Option<u8>,
) -> Result<Peer, PeerError> {
    let mut agent = Agent::connect(agent)?;
    let open = device.map_or("open".to_owned(), |name| format!("open dev={name}"));
    let ctx = agent.call(&open)?.number("ctx")?;
    let port = agent.call(&format!("query_port ctx={ctx}"))?;
    if port.number("state")? != 4 {
        return Err(PeerError::Down);
    }
    let gids = agent.call(&format!("gids ctx={ctx}"))?;
    let gids: Vec<(u32, Gid)> = gids.all("gid").filter_map(gid).collect();
    let named = gids.iter().find(|(_, gid)| gid.to_ip() == roce).copied();
    let named = named.ok_or_else(|| {
        let have: Vec<String> = gids.iter().map(|(_, gid)| gid.to_ip().to_string()).collect();
        PeerError::NoGid { address: roce, have: have.join(", ") }
    })?;
    let mtu = wire.path_mtu().min(port.number("active_mtu")? as usize);
    let mut peer = Peer { ipv4: None, ipv6: None, mtu, lacking_events: Vec::new() };
    let pair = face(wire, named, own)?;
    let pair = pair.ok_or_else(|| PeerError::NoOwnGid { netdev: wire.name().to_owned(), address: roce })?;
    put(&mut peer, pair);
    // The other family is a bonus: scripts that need it say so where there is none.
    let others = gids.iter().filter(|(_, gid)| gid.is_v4_mapped() != named.1.is_v4_mapped() && !gid.is_link_local());
    for other in others {
        if let Ok(Some(pair)) = face(wire, *other, None) {
            put(&mut peer, pair);
            break;
        }
    }
    Ok(peer)
}

fn put(peer: &mut Peer, pair: Pair) {
    let place = if pair.device.is_v4_mapped() { &mut peer.ipv4 } else { &mut peer.ipv6 };
    *place = Some(pair);
}

/// `INDEX:32DIGITS:TYPE`, if it is one of RoCE v2.
fn gid(text: &str) -> Option<(u32, Gid)> {
    let mut fields = text.split(':');
    let index = number(fields.next()?)?;
    let gid = Gid::from_hex32(fields.next()?).ok()?;
    (fields.next()? == "v2").then_some((index as u32, gid))
}

/// Our address that faces the peer's, and the way between them.
fn face(wire: &mut XdpWire, (device_index, device): (u32, Gid), own: Option<u8>) -> Result<Option<Pair>, PeerError> {
    let fits = |entry: &&GidEntry| {
        entry.gid.is_v4_mapped() == device.is_v4_mapped()
            && entry.gid.is_link_local() == device.is_link_local()
            && own.is_none_or(|index| index == entry.index)
    };
    let Some(script) = wire.gids().iter().find(fits).map(|entry| entry.gid) else { return Ok(None) };
    wire.connect(script, device)?;
    Ok(Some(Pair { script, device, device_index }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        let parsed = |text: &str| text.parse::<PeerAddress>().map(|a| (a.host, a.port));
        let is = |host: &str, port| Ok((host.to_owned(), port));
        assert_eq!(parsed("192.0.2.2"), is("192.0.2.2", PORT));
        assert_eq!(parsed("192.0.2.2:2502"), is("192.0.2.2", 2502));
        assert_eq!(parsed("host.example:2502"), is("host.example", 2502));
        assert_eq!(parsed("2001:db8::2"), is("2001:db8::2", PORT));
        assert_eq!(parsed("[2001:db8::2]:2502"), is("2001:db8::2", 2502));
        assert_eq!(parsed("[2001:db8::2]"), is("2001:db8::2", PORT));
        assert!(
            parsed("").is_err() && parsed(":1").is_err() && parsed("host:").is_err() && parsed("host:70000").is_err()
        );
    }

    #[test]
    fn gids_of_other_kinds_are_left_out() {
        let digits = "00000000000000000000ffffc0000202";
        let found = gid(&format!("1:{digits}:v2")).unwrap();
        assert_eq!((found.0, found.1.to_ip()), (1, "192.0.2.2".parse().unwrap()));
        assert!(gid(&format!("1:{digits}:v1")).is_none() && gid("1").is_none());
    }
}
