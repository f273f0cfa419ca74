//! The netdev, its addresses, the neighbour and the route change under load. Each ends as it would with a NIC: the connection goes
//! on when the way is there again within the retry budget, or it ends with status 12; what it carried is right to the last byte;
//! and nothing is sent for ever.

use std::time::Duration;

use xroce::{AsyncEventKind, ConnectOptions, Context, PathMtu, Progress, Psn, QpType, WcStatus};
use xroce_hostile::attack::Seen;
use xroce_hostile::field::{Field, IPV4, MAC, NETDEV, eventually, gid_of};
use xroce_hostile::flow::{End, Failure, Load, Shape, exchange, join};

/// Longer than the retry budget of [`LASTING`].
const PATIENCE: Duration = Duration::from_secs(60);
/// ACK timeout 0.54 s; with 7 retries, doubled twice, a way may be away for 14 s.
const LASTING: u8 = 17;
/// ACK timeout 8.4 ms: without a way it is over after 0.23 s.
const SHORT: u8 = 11;

/// How a test connects.
#[derive(Clone, Copy)]
struct Wanted {
    timeout: u8,
    path_mtu: PathMtu,
    address_of_b: std::net::Ipv4Addr,
}

const USUAL: Wanted = Wanted { timeout: LASTING, path_mtu: PathMtu::Mtu1024, address_of_b: IPV4[1] };

fn end(contexts: &[Context; 2], which: usize, wanted: Wanted) -> Result<End, Failure> {
    let address = [IPV4[0], wanted.address_of_b][which];
    let gid_index = gid_of(&contexts[which], address.into()).expect("the field's address").index;
    let options = ConnectOptions {
        gid_index,
        timeout: wanted.timeout,
        path_mtu: Some(wanted.path_mtu),
        psn: Psn::new(0xff_ff00 + which as u32),
        ..ConnectOptions::default()
    };
    End::new(&contexts[which], Shape { kind: QpType::Rc, max_len: 8192, depth: 16 }, options)
}

fn load(contexts: &[Context; 2], wanted: Wanted) -> Load {
    let [mut a, mut b] = [0, 1].map(|which| end(contexts, which, wanted).expect("an end"));
    join(&mut a, &mut b).expect("a way");
    let (load, _) = Load::start([a, b]).moves(50, PATIENCE, "before anything has happened");
    load
}

fn open(field: &Field) -> [Context; 2] {
    field.open(|_, builder| builder.progress(Progress::Event))
}

/// What is outstanding ends well, and then nothing is sent any more.
#[track_caller]
fn ends_in_silence(contexts: &[Context; 2], load: Load) -> [End; 2] {
    let ([mut a, mut b], failures) = load.stop();
    assert!(failures.iter().all(Option::is_none), "{failures:?}");
    exchange(&mut a, &mut b, 10, PATIENCE).expect("what was outstanding");
    let sent = || [0, 1].map(|i: usize| Seen::by(&contexts[i]).transport.packets_out);
    let settled = sent();
    std::thread::sleep(Duration::from_millis(100));
    let later = sent();
    assert!(later.iter().zip(settled).all(|(later, before)| later - before <= 2), "{settled:?} and then {later:?}");
    [a, b]
}

/// Both ends are told 12, in bounded time.
#[track_caller]
fn ends_with_12(load: Load, what: &str) -> [End; 2] {
    let completed = load.completed();
    let mut still_since = std::time::Instant::now();
    let mut last = completed;
    // A dead way completes nothing: twice the budget of `SHORT`, and a machine that is busy.
    while still_since.elapsed() < Duration::from_secs(3) {
        let now = load.completed();
        if now != last {
            (last, still_since) = (now, std::time::Instant::now());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let (ends, failures) = load.stop();
    for failure in &failures {
        let status = failure.as_ref().and_then(Failure::status);
        assert_eq!(status, Some(WcStatus::RetryExcErr), "{what}: {failures:?}");
    }
    ends
}

/// The same ends, connected anew, work again.
#[track_caller]
fn begins_anew(mut ends: [End; 2]) {
    let [a, b] = &mut ends;
    for end in [&mut *a, &mut *b] {
        end.recycle(Psn::new(7)).expect("RESET to INIT");
    }
    join(a, b).expect("the way is there again");
    exchange(a, b, 50, PATIENCE).expect("the flow");
}

#[track_caller]
fn expect_event(context: &Context, kind: AsyncEventKind) {
    eventually(&format!("{kind:?}"), PATIENCE, || {
        std::iter::from_fn(|| context.try_get_async_event()).any(|event| event.kind == kind)
    });
}

#[test]
fn the_link_goes_down_and_up_at_either_end() {
    let Some(field) = Field::new("the_link_goes_down_and_up_at_either_end", 1500) else { return };
    let contexts = open(&field);
    let mut load = load(&contexts, USUAL);
    for which in [0, 1] {
        for pause_ms in [1, 50, 1200] {
            field.ends[which].ip(&format!("link set {NETDEV} down"));
            std::thread::sleep(Duration::from_millis(pause_ms));
            field.ends[which].ip(&format!("link set {NETDEV} up"));
            (load, _) = load.moves(50, PATIENCE, &format!("end {which} was down for {pause_ms} ms"));
        }
        // A veth has no carrier while its other end is down, so both are told.
        for context in &contexts {
            expect_event(context, AsyncEventKind::PortErr);
            expect_event(context, AsyncEventKind::PortActive);
        }
    }
    drop(ends_in_silence(&contexts, load));
    field.assert_pings();
}

#[test]
fn a_link_that_stays_down_ends_with_12_and_serves_again_when_it_is_back() {
    let test = "a_link_that_stays_down_ends_with_12_and_serves_again_when_it_is_back";
    let Some(field) = Field::new(test, 1500) else { return };
    let contexts = open(&field);
    for which in [0, 1] {
        let load = load(&contexts, Wanted { timeout: SHORT, ..USUAL });
        field.ends[which].ip(&format!("link set {NETDEV} down"));
        let ends = ends_with_12(load, &format!("end {which} down"));
        field.ends[which].ip(&format!("link set {NETDEV} up"));
        begins_anew(ends);
    }
}

#[test]
fn the_mtu_changes() {
    let Some(field) = Field::new("the_mtu_changes", 4300) else { return };
    let contexts = open(&field);
    let large = Wanted { path_mtu: PathMtu::Mtu4096, ..USUAL };
    let mut running = load(&contexts, large);
    let set = |which: usize, mtu: u32| field.ends[which].ip(&format!("link set {NETDEV} mtu {mtu}"));
    for which in [0, 1] {
        set(which, 9000);
        (running, _) = running.moves(50, PATIENCE, "a larger MTU");
        set(which, 1500);
        std::thread::sleep(Duration::from_millis(300));
        set(which, 4300);
        (running, _) = running.moves(50, PATIENCE, "a smaller MTU for a while");
    }
    drop(ends_in_silence(&contexts, running));

    let running = load(&contexts, Wanted { timeout: SHORT, ..large });
    set(1, 1500);
    // Packets of 4096 bytes do not pass any more; what is short enough does, until one of the others is due.
    let ends = ends_with_12_at(running, 0);
    eventually("the device knows its MTU", PATIENCE, || contexts[1].query_port().active_mtu == Some(PathMtu::Mtu1024));
    let refused = end(&contexts, 1, large).and_then(|mut end| end.connect(&ends[0].offer()?)).expect_err("no room");
    assert!(refused.to_string().contains("path MTU 4096"), "{refused}");
    // A new connection takes what there is.
    let small = load(&contexts, USUAL);
    drop(ends_in_silence(&contexts, small));
    set(1, 4300);
    begins_anew(ends);
}

/// End `which` is told 12; the other may be, or may have lost its peer in silence.
#[track_caller]
fn ends_with_12_at(load: Load, which: usize) -> [End; 2] {
    let mut last = load.completed();
    let mut still_since = std::time::Instant::now();
    while still_since.elapsed() < Duration::from_secs(3) {
        let now = load.completed();
        if now != last {
            (last, still_since) = (now, std::time::Instant::now());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let (ends, failures) = load.stop();
    let status = failures[which].as_ref().and_then(Failure::status);
    assert_eq!(status, Some(WcStatus::RetryExcErr), "{failures:?}");
    ends
}

#[test]
fn an_address_goes_and_returns() {
    let Some(field) = Field::new("an_address_goes_and_returns", 1500) else { return };
    let contexts = open(&field);
    let mut running = load(&contexts, USUAL);
    for which in [0, 1] {
        let address = format!("{}/24", IPV4[which]);
        for pause_ms in [20, 700] {
            field.ends[which].ip(&format!("addr del {address} dev {NETDEV}"));
            std::thread::sleep(Duration::from_millis(pause_ms));
            field.ends[which].ip(&format!("addr add {address} dev {NETDEV}"));
            (running, _) = running.moves(50, PATIENCE, &format!("end {which} without its address for {pause_ms} ms"));
        }
        expect_event(&contexts[which], AsyncEventKind::GidChange);
    }
    drop(ends_in_silence(&contexts, running));

    let running = load(&contexts, Wanted { timeout: SHORT, ..USUAL });
    field.ends[1].ip(&format!("addr del {}/24 dev {NETDEV}", IPV4[1]));
    let ends = ends_with_12(running, "the address stays away");
    field.ends[1].ip(&format!("addr add {}/24 dev {NETDEV}", IPV4[1]));
    eventually("the address is a GID again", PATIENCE, || gid_of(&contexts[1], IPV4[1].into()).is_some());
    begins_anew(ends);
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

#[test]
fn the_neighbour_gets_another_mac_address() {
    let Some(field) = Field::new("the_neighbour_gets_another_mac_address", 1500) else { return };
    let contexts = open(&field);
    let mut running = load(&contexts, USUAL);
    // The kernel hears of it, as by a gratuitous ARP.
    let new = mac([2, 0, 0, 0, 9, 0x12]);
    field.ends[1].ip(&format!("link set {NETDEV} address {new}"));
    field.ends[0].ip(&format!("neigh replace {} lladdr {new} nud reachable dev {NETDEV}", IPV4[1]));
    (running, _) = running.moves(50, PATIENCE, "the kernel knows the new address");
    // Nobody says a word: that nothing is answered any more makes us ask.
    field.ends[1].ip(&format!("link set {NETDEV} address {}", mac(MAC[1])));
    (running, _) = running.moves(50, PATIENCE, "nobody told of the new address");
    drop(ends_in_silence(&contexts, running));
    let seen = Seen::by(&contexts[1]);
    assert!(seen.other_station > 0, "frames to the old address were not noticed");
}

#[test]
fn the_route_changes() {
    let Some(field) = Field::new("the_route_changes", 1500) else { return };
    let far = std::net::Ipv4Addr::new(10, 77, 0, 2);
    field.ends[1].ip(&format!("addr add {far}/32 dev {NETDEV}"));
    let route = |what: &str| field.ends[0].ip(&format!("route replace {what}"));
    route(&format!("{far} via {}", IPV4[1]));
    let contexts = open(&field);
    let mut running = load(&contexts, Wanted { address_of_b: far, ..USUAL });
    for detour in [
        format!("{far} via 10.9.0.99"),
        format!("unreachable {far}"),
        format!("{far} dev lo"),
        format!("{far} dev {NETDEV}"),
    ] {
        route(&detour);
        std::thread::sleep(Duration::from_millis(400));
        if detour.starts_with("unreachable") {
            field.ends[0].ip(&format!("route del {detour}"));
        }
        route(&format!("{far} via {}", IPV4[1]));
        (running, _) = running.moves(50, PATIENCE, &detour);
    }
    drop(ends_in_silence(&contexts, running));

    let running = load(&contexts, Wanted { address_of_b: far, timeout: SHORT, ..USUAL });
    route(&format!("{far} via 10.9.0.99"));
    let ends = ends_with_12(running, "a gateway that is not there");
    route(&format!("{far} via {}", IPV4[1]));
    begins_anew(ends);
}
