//! The commands between two network namespaces, over AF_XDP.

mod ends;

use std::time::Instant;

use ends::{Ends, NETDEV, SERVER, SERVER6, Said, Scratch};
use serde_json::Value;

const MTU: u32 = 1500;

#[test]
fn pingpong_both_services_both_ways_of_waiting() {
    let Some(ends) = Ends::new("pingpong_both_services_both_ways_of_waiting", MTU) else { return };
    for program in ["rc_pingpong", "uc_pingpong"] {
        for options in
            [["-n", "200", "-c"].as_slice(), &["-n", "200", "-e"], &["-n", "50", "-m", "256", "-s", "0x2001"]]
        {
            let args: Vec<&str> = [program].iter().chain(options).copied().collect();
            let (client, server) = ends.both(&args, &[]);
            for said in [&client, &server] {
                assert_eq!(said.err, "", "{args:?}");
                assert_eq!(said.out.lines().count(), 4, "{args:?} {said:?}");
            }
            // Each side prints the other's address as the other does.
            let address = |text: &str, label: &str| {
                text.split_once(label).map(|(_, rest)| rest.lines().next().map(str::to_owned))
            };
            assert_eq!(address(&client.out, "local address:  "), address(&server.out, "remote address: "));
            assert_eq!(address(&server.out, "local address:  "), address(&client.out, "remote address: "));
        }
    }
}

#[test]
fn pingpong_over_ipv6() {
    let Some(ends) = Ends::new("pingpong_over_ipv6", MTU) else { return };
    let info = ends.client(&["devinfo", "-d", NETDEV, "--json"]);
    let info: Value = serde_json::from_str(&info.out).expect("JSON");
    let gids = info["gids"].as_array().expect("an array");
    let index = gids.iter().find(|gid| gid["gid"] == "2001:db8::1").expect("the address is a GID")["index"].to_string();
    for program in ["rc_pingpong", "uc_pingpong"] {
        let args = [program, "-g", &index, "-n", "100", "-d", NETDEV];
        let server = ends.server(&args);
        let client = ends.client(&args.iter().copied().chain([SERVER6]).collect::<Vec<_>>());
        let server = server.wait();
        assert_eq!((client.code, server.code), (Some(0), Some(0)), "{client:?} {server:?}");
        assert!(client.out.contains("GID 2001:db8::2"), "{client:?}");
    }
}

#[test]
fn a_capture_of_real_frames() {
    let Some(ends) = Ends::new("a_capture_of_real_frames", MTU) else { return };
    let file = Scratch::new("netns.pcapng");
    ends.both(&["rc_pingpong", "-n", "5", "-s", "3000"], &["--pcap", file.path()]);
    let decoded = ends.client(&["decode", file.path()]);
    assert_eq!(decoded.code, Some(0), "{decoded:?}");
    assert!(decoded.out.contains("RC_SEND_FIRST") && decoded.out.contains("RC_ACKNOWLEDGE"), "{decoded:?}");
}

#[test]
fn the_receive_ring_is_as_long_as_asked_for() {
    let Some(ends) = Ends::new("the_receive_ring_is_as_long_as_asked_for", MTU) else { return };
    ends.both(&["uc_pingpong", "-n", "5"], &["--rx-ring", "64"]);
    let said = ends.client(&["devinfo", "-d", NETDEV, "--rx-ring", "100"]);
    assert!(said.code == Some(1) && said.err.contains("rx_ring is 100"), "{said:?}");
}

#[test]
fn devinfo_tells_what_the_others_get() {
    let Some(ends) = Ends::new("devinfo_tells_what_the_others_get", MTU) else { return };
    let said = ends.client(&["devinfo", "-d", NETDEV, "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let info: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((&info["version"], &info["device"]), (&1.into(), &NETDEV.into()));
    assert_eq!(
        (&info["port_state"], &info["mtu"], &info["active_mtu"]),
        (&"PORT_ACTIVE".into(), &MTU.into(), &1024.into())
    );
    let gids: Vec<&str> = info["gids"].as_array().expect("an array").iter().filter_map(|g| g["gid"].as_str()).collect();
    assert!(gids.contains(&"::ffff:192.0.2.1") && gids.contains(&"2001:db8::1"), "{info}");
    assert!(info["gids"].as_array().is_some_and(|gids| gids.iter().all(|gid| gid["index"].is_u64())), "{info}");
    assert!(info["xdp"]["mode"] == "native" || info["xdp"]["mode"] == "generic", "{info}");
    assert!(info["xdp"]["zero_copy"].is_boolean() && info["xdp"]["multi_buffer"].is_boolean(), "{info}");
    assert_eq!(info["xdp"]["queues"], 1);
    assert!(info["limits"]["max_qp"].is_u64() && info["limits"]["max_msg_sz"].is_u64(), "{info}");
    let text = ends.client(&["devinfo"]);
    assert!(text.out.starts_with(&format!("{NETDEV}\n")) && text.err.contains(NETDEV), "the only netdev: {text:?}");
}

#[test]
fn doctor_says_what_devinfo_gets() {
    let Some(ends) = Ends::new("doctor_says_what_devinfo_gets", MTU) else { return };
    // A veth takes no program while its peer has more transmit queues than it receives on.
    for (queues, mode) in [("1", "native"), ("2", "generic")] {
        ends.replace_veth(MTU, &format!("numtxqueues {queues} numrxqueues {queues}"));
        let json = |args: &[&str]| {
            let said = ends.client(&[args, &["-d", NETDEV, "--json"]].concat());
            assert_eq!(said.code, Some(0), "{said:?}");
            serde_json::from_str::<Value>(&said.out).expect("JSON")
        };
        let (report, info) = (json(&["doctor"]), json(&["devinfo"]));
        assert_eq!(report["netdevs"][0]["opened"], info["xdp"]);
        assert_eq!(
            (&info["xdp"]["mode"], &info["xdp"]["generic_because"].is_string()),
            (&mode.into(), &(queues == "2"))
        );
        let check = |name: &str| {
            let checks = report["checks"].as_array().expect("an array").iter();
            checks.filter(|check| check["name"] == name).map(|check| check["found"].clone()).collect::<Vec<_>>()
        };
        let text = ends.client(&["devinfo", "-d", NETDEV]).out;
        assert!(check("opened").iter().any(|found| text.contains(found.as_str().expect("text"))), "{report} {text}");
    }
    let all: Value = serde_json::from_str(&ends.client(&["doctor", "--json"]).out).expect("JSON");
    let netdevs = all["netdevs"].as_array().expect("an array");
    assert!(netdevs.iter().all(|netdev| netdev["opened"].is_null()), "nobody asked to open any: {all}");
    let server = ends.start_client(&["agent", "-d", NETDEV, "-p", "0"]);
    let said = ends.client(&["doctor", "-d", NETDEV]);
    assert!(said.code == Some(1) && said.out.contains("MISSING  opened "), "another has it: {said:?}");
    server.kill();
}

#[test]
fn perf_every_test() {
    let Some(ends) = Ends::new("perf_every_test", MTU) else { return };
    for test in ["send_bw", "write_bw", "read_bw", "atomic_bw", "send_lat", "write_lat", "read_lat", "atomic_lat"] {
        let server = ends.server(&["perf", test, "-d", NETDEV]);
        let client = ends.client(&["perf", test, "-d", NETDEV, "-n", "100", "--json", SERVER]);
        let server = server.wait();
        assert_eq!((client.code, server.code), (Some(0), Some(0)), "{test}: {client:?} {server:?}");
        let figures: Value = serde_json::from_str(&client.out).expect("JSON");
        assert_eq!((&figures["test"], &figures["iters"]), (&test.into(), &100.into()));
        if test.ends_with("_bw") {
            assert_eq!((&figures["mtu"], &figures["qps"]), (&1024.into(), &1.into()));
        }
        assert!(server.out.contains("100 messages"), "{server:?}");
    }
}

#[test]
fn perf_on_uc_with_several_queue_pairs() {
    let Some(ends) = Ends::new("perf_on_uc_with_several_queue_pairs", MTU) else { return };
    let server = ends.server(&["perf", "send_bw", "-d", NETDEV]);
    let client =
        ends.client(&["perf", "send_bw", "--uc", "-q", "3", "-n", "50", "-s", "2000", "-d", NETDEV, "--json", SERVER]);
    assert_eq!((client.code, server.wait().code), (Some(0), Some(0)), "{client:?}");
    let figures: Value = serde_json::from_str(&client.out).expect("JSON");
    assert_eq!((&figures["transport"], &figures["messages"]), (&"UC".into(), &150.into()));
    assert!(figures["lost"].is_u64(), "{figures}");
}

#[test]
fn ends_that_disagree_say_so() {
    let Some(ends) = Ends::new("ends_that_disagree_say_so", MTU) else { return };
    let server = ends.server(&["perf", "send_bw", "-s", "64", "-d", NETDEV]);
    let client = ends.client(&["perf", "send_bw", "-s", "128", "-d", NETDEV, SERVER]);
    let server = server.wait();
    assert_eq!((client.code, server.code), (Some(1), Some(2)), "{client:?} {server:?}");
    assert!(client.err.contains("another -s") && server.err.contains("another -s"), "{client:?} {server:?}");
}

#[test]
fn path_mtu_4096_needs_room_and_says_how_much() {
    let Some(ends) = Ends::new("path_mtu_4096_needs_room_and_says_how_much", MTU) else { return };
    let server = ends.server(&["rc_pingpong", "-d", NETDEV, "-m", "4096"]);
    let client = ends.client(&["rc_pingpong", "-d", NETDEV, "-m", "4096", SERVER]);
    let server = server.wait();
    assert_eq!((client.code, server.code), (Some(1), Some(1)), "{client:?} {server:?}");
    assert!(server.err.contains("the largest is 1024"), "{server:?}");
}

#[test]
fn path_mtu_4096_where_there_is_room() {
    let Some(ends) = Ends::new("path_mtu_4096_where_there_is_room", 4200) else { return };
    let info = ends.client(&["devinfo", "-d", NETDEV, "--json"]);
    let info: Value = serde_json::from_str(&info.out).expect("JSON");
    // Without multi-buffer a frame must fit one chunk.
    let mtu = info["active_mtu"].to_string();
    ends.both(&["rc_pingpong", "-m", &mtu, "-s", "100000", "-n", "20", "-c"], &[]);
}

/// What a client says whose server is killed in the middle of a game; no status where it did not end by itself.
fn killed_server(ends: &Ends) -> Said {
    let server = ends.server(&["rc_pingpong", "-d", NETDEV, "-n", "100000000"]);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| ends.client(&["rc_pingpong", "-d", NETDEV, "-n", "100000000", SERVER]));
        std::thread::sleep(std::time::Duration::from_secs(2));
        server.kill();
        client.join().expect("no panic")
    })
}

#[test]
fn a_peer_that_was_killed_is_reported_as_the_originals_do() {
    let Some(ends) = Ends::new("a_peer_that_was_killed_is_reported_as_the_originals_do", MTU) else { return };
    // A server that dies between its ACK and its answer leaves a client with nothing to miss, which waits for ever, as the originals do.
    const ATTEMPTS: usize = 3;
    let mut start = Instant::now();
    let mut client = killed_server(&ends);
    for _ in 1..ATTEMPTS {
        if client.code.is_some() {
            break;
        }
        start = Instant::now();
        client = killed_server(&ends);
    }
    assert_eq!(client.code, Some(1), "{client:?}");
    let line = "Failed status transport retry counter exceeded (12) for wr_id 2";
    assert!(client.err.lines().any(|said| said == line), "{client:?}");
    // And in one line who, what, which packet, how often and how long.
    let why =
        client.err.lines().find_map(|said| said.trim().strip_prefix("RETRY_EXC_ERR (status 12): SEND wr_id 2, QP 0x"));
    let why = why.unwrap_or_else(|| panic!("{client:?}"));
    for part in [&format!(" at {SERVER}: PSN 0x"), " not acknowledged after 7 retries in ", " (ACK timeout 67.1 ms)"] {
        assert!(why.contains(part), "{part:?} in {why}");
    }
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[test]
fn faults_on_purpose_are_made_and_told_and_do_no_harm() {
    let Some(ends) = Ends::new("faults_on_purpose_are_made_and_told_and_do_no_harm", MTU) else { return };
    let faults = ["--drop", "5", "--corrupt", "2%", "--reorder", "3"];
    let (client, server) = ends.both(&["rc_pingpong", "-n", "300", "-c"], &faults);
    let report = client.err.lines().find_map(|line| line.strip_prefix("xroce: faults: "));
    let numbers: Vec<u64> = report.iter().flat_map(|r| r.split_whitespace()).filter_map(|w| w.parse().ok()).collect();
    let [dropped, corrupted, received] = numbers[..] else { panic!("three numbers: {client:?}") };
    assert!(dropped > 0 && corrupted > 0 && received > dropped, "{client:?}");
    assert_eq!(server.err, "", "only who was asked to makes faults");
}

#[test]
fn as_another_user_once_the_device_is_open() {
    let Some(ends) = Ends::new("as_another_user_once_the_device_is_open", MTU) else { return };
    ends.both(&["rc_pingpong", "-n", "200", "-c", "--user", "nobody"], &[]);
    let args = ["perf", "write_bw", "-n", "200", "-d", NETDEV, "--user", "nobody", "--progress", "event"];
    let server = ends.server(&args);
    let client = ends.client(&args.iter().copied().chain([SERVER]).collect::<Vec<_>>());
    let server = server.wait();
    assert_eq!((client.code, server.code), (Some(0), Some(0)), "{client:?} {server:?}");
    let said = ends.client(&["rc_pingpong", "-d", NETDEV, "--user", "no-such-user"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("there is no user \"no-such-user\""), "{said:?}");
}

#[test]
fn nobody_listens() {
    let Some(ends) = Ends::new("nobody_listens", MTU) else { return };
    let client = ends.client(&["rc_pingpong", "-d", NETDEV, "-p", "18599", SERVER]);
    assert_eq!(client.code, Some(1));
    assert!(client.err.contains("Couldn't connect to 192.0.2.2:18599"), "{client:?}");
}
