//! The kernel's routing decision. In: source, destination, interface. Out: [`Route`].

#![forbid(unsafe_code)]

use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::error::Refusal;
use crate::netdev::NetlinkError;
use crate::netdev::kernel::{Kernel, unexpected};

/// Where the kernel would send a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// To this host itself; the interface that holds the address, as far as the route tells.
    Local { oif: u32 },
    /// Out of an interface.
    Unicast(Unicast),
    /// A broadcast, multicast or anycast address.
    NotUnicast(&'static str),
    /// Nowhere, on purpose or for want of a route.
    Refused(Refusal),
}

/// A route out of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unicast {
    pub oif: u32,
    pub gateway: Option<IpAddr>,
    /// `hoplimit` of the route.
    pub hop_limit: Option<u8>,
    /// `mtu` of the route, bytes of IP packet; the kernel puts what path MTU discovery found here too.
    pub mtu: Option<u32>,
}

/// What a look-up is bound by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Query {
    pub source: Option<IpAddr>,
    pub oif: Option<u32>,
}

/// The kernel's decision.
pub(super) fn look_up(kernel: &Kernel, destination: IpAddr, query: Query) -> Result<Route, NetlinkError> {
    decision(kernel, message(destination, query, RouteFlags::empty()))
}

/// Whether the tables hold a route to `destination` out of `oif`. An IPv4 look-up that names an interface cannot tell:
/// where there is no route it takes the destination for on-link (`ip_route_output_key_hash_rcu`), so the entry that
/// matches is asked for instead.
pub(super) fn exists(kernel: &Kernel, destination: IpAddr, oif: u32) -> Result<bool, NetlinkError> {
    // With a source, an IPv6 look-up only prefers the interface; without, it insists (`ip6_route_output_flags`).
    let query = Query { source: None, oif: Some(oif) };
    let route = decision(kernel, message(destination, query, RouteFlags::FibMatch))?;
    Ok(match route {
        // A route over several next hops names no interface of its own (0); the look-up matched one through ours.
        Route::Unicast(unicast) => unicast.oif == oif || unicast.oif == 0,
        _ => false,
    })
}

fn decision(kernel: &Kernel, message: RouteMessage) -> Result<Route, NetlinkError> {
    let doing = "look up the route";
    match kernel.get(doing, RouteNetlinkMessage::GetRoute(message)) {
        Ok(RouteNetlinkMessage::NewRoute(answer)) => Ok(parse(&answer)),
        Ok(other) => Err(unexpected(doing, &other)),
        Err(e) => refusal(&e).map(Route::Refused).ok_or(e),
    }
}

/// The errors by which a look-up ends at a special or missing route (`fib_props` in `net/ipv4/fib_semantics.c`).
fn refusal(error: &NetlinkError) -> Option<Refusal> {
    match error.errno()? {
        libc::ENETUNREACH | libc::ESRCH => Some(Refusal::NoRoute),
        libc::EHOSTUNREACH => Some(Refusal::Unreachable),
        libc::EACCES => Some(Refusal::Prohibited),
        libc::EINVAL => Some(Refusal::Blackhole),
        libc::ENETDOWN | libc::ENODEV => Some(Refusal::InterfaceDown),
        _ => None,
    }
}

fn message(destination: IpAddr, query: Query, flags: RouteFlags) -> RouteMessage {
    let mut message = RouteMessage::default();
    let bits = if destination.is_ipv4() { 32 } else { 128 };
    message.header.address_family = if destination.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.destination_prefix_length = bits;
    message.header.flags = flags;
    message.attributes.push(RouteAttribute::Destination(destination.into()));
    if let Some(source) = query.source {
        message.header.source_prefix_length = bits;
        message.attributes.push(RouteAttribute::Source(source.into()));
    }
    if let Some(oif) = query.oif {
        message.attributes.push(RouteAttribute::Oif(oif));
    }
    message
}

fn parse(message: &RouteMessage) -> Route {
    let mut unicast = Unicast { oif: 0, gateway: None, hop_limit: None, mtu: None };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(oif) => unicast.oif = *oif,
            RouteAttribute::Gateway(RouteAddress::Inet(a)) => unicast.gateway = Some(IpAddr::V4(*a)),
            RouteAttribute::Gateway(RouteAddress::Inet6(a)) => unicast.gateway = Some(IpAddr::V6(*a)),
            // An IPv4 route whose gateway has an IPv6 address (RFC 8950).
            RouteAttribute::Via(RouteVia::Inet(a)) => unicast.gateway = Some(IpAddr::V4(*a)),
            RouteAttribute::Via(RouteVia::Inet6(a)) => unicast.gateway = Some(IpAddr::V6(*a)),
            RouteAttribute::Metrics(metrics) => read_metrics(metrics, &mut unicast),
            _ => {}
        }
    }
    match message.header.kind {
        RouteType::Unicast => Route::Unicast(unicast),
        RouteType::Local => Route::Local { oif: unicast.oif },
        RouteType::Broadcast => Route::NotUnicast("a broadcast address"),
        RouteType::Multicast => Route::NotUnicast("a multicast address"),
        RouteType::Anycast => Route::NotUnicast("an anycast address of this host"),
        RouteType::BlackHole => Route::Refused(Refusal::Blackhole),
        RouteType::Unreachable => Route::Refused(Refusal::Unreachable),
        RouteType::Prohibit => Route::Refused(Refusal::Prohibited),
        _ => Route::Refused(Refusal::NoRoute),
    }
}

fn read_metrics(metrics: &[RouteMetric], unicast: &mut Unicast) {
    for metric in metrics {
        match metric {
            // 0 stands for the default.
            RouteMetric::Hoplimit(n) => unicast.hop_limit = u8::try_from(*n).ok().filter(|&n| n > 0),
            RouteMetric::Mtu(n) => unicast.mtu = Some(*n).filter(|&n| n > 0),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: RouteType, attributes: Vec<RouteAttribute>) -> Route {
        let mut message = RouteMessage::default();
        message.header.kind = kind;
        message.attributes = attributes;
        parse(&message)
    }

    #[test]
    fn gateway_and_metrics_are_read() {
        let gateway: std::net::Ipv4Addr = "10.0.0.254".parse().unwrap();
        let metrics = vec![RouteMetric::Hoplimit(9), RouteMetric::Mtu(1400)];
        let route = answer(
            RouteType::Unicast,
            vec![
                RouteAttribute::Oif(4),
                RouteAttribute::Gateway(RouteAddress::Inet(gateway)),
                RouteAttribute::Metrics(metrics),
            ],
        );
        let expected = Unicast { oif: 4, gateway: Some(gateway.into()), hop_limit: Some(9), mtu: Some(1400) };
        assert_eq!(route, Route::Unicast(expected));
    }

    #[test]
    fn a_v4_route_may_have_a_v6_gateway() {
        let gateway: std::net::Ipv6Addr = "fe80::1".parse().unwrap();
        let route = answer(RouteType::Unicast, vec![RouteAttribute::Via(RouteVia::Inet6(gateway))]);
        assert!(matches!(route, Route::Unicast(u) if u.gateway == Some(gateway.into())), "{route:?}");
    }

    #[test]
    fn special_routes_are_refusals() {
        let cases = [
            (RouteType::BlackHole, Refusal::Blackhole),
            (RouteType::Unreachable, Refusal::Unreachable),
            (RouteType::Prohibit, Refusal::Prohibited),
            (RouteType::Throw, Refusal::NoRoute),
        ];
        for (kind, refusal) in cases {
            assert_eq!(answer(kind, vec![]), Route::Refused(refusal));
        }
    }
}
