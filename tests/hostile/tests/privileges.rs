//! Rights given up once the device is open: nothing is left of them, and the traffic goes on, through everything that the netdev
//! does meanwhile.

use std::path::Path;
use std::time::Duration;

use xroce_hostile::field::{Field, IPV4, NETDEV, Namespace, eventually};
use xroce_hostile::peer::{Peer, PeerOptions, introduce};

const PATIENCE: Duration = Duration::from_secs(60);
/// ACK timeout 0.54 s: the retry budget outlasts what this test does to the link.
const LASTING: u8 = 17;
const USER: &str = "nobody";

fn start(end: &Namespace, which: usize) -> Peer {
    let options = PeerOptions { user: Some(USER.into()), timeout: Some(LASTING) };
    let peer = Path::new(env!("CARGO_BIN_EXE_xroce-hostile-peer"));
    Peer::start(peer, end, which, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// The lines of every thread's status that tell of rights: user, group, capabilities.
fn rights(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let wanted =
        |line: &&str| ["Uid:", "Gid:", "Groups:", "CapPrm:", "CapEff:", "CapAmb:"].iter().any(|f| line.starts_with(f));
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .flat_map(|status| status.lines().filter(wanted).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

#[test]
fn without_rights_the_traffic_goes_on_through_all_that_happens() {
    let Some(field) = Field::new("without_rights_the_traffic_goes_on_through_all_that_happens", 1500) else { return };
    let mut peers = [0, 1].map(|which: usize| start(&field.ends[which], which));
    let ids = std::fs::read_to_string("/etc/passwd").expect("a user database");
    let ids: Vec<&str> = ids.lines().find(|line| line.starts_with("nobody:")).expect("nobody").split(':').collect();
    for peer in &peers {
        let rights = rights(peer.pid());
        // The main thread, the one that reads standard input, the helper and the watch on the netdev.
        assert!(rights.iter().filter(|line| line.starts_with("Uid:")).count() >= 4, "{rights:?}");
        for line in &rights {
            let mut fields = line.split_whitespace();
            let expected = match fields.next() {
                Some("Uid:") => ids[2],
                Some("Gid:") => ids[3],
                _ => "0000000000000000",
            };
            assert!(fields.all(|value| value == expected), "{line}");
        }
    }
    let [a, b] = &mut peers;
    introduce(a, b).unwrap_or_else(|e| panic!("{e}"));
    let mut both_move = |what: &str| {
        for peer in [&mut *a, &mut *b] {
            peer.moves(100).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    };
    both_move("at first");
    for (which, end) in field.ends.iter().enumerate() {
        end.ip(&format!("link set {NETDEV} down"));
        std::thread::sleep(Duration::from_millis(200));
        end.ip(&format!("link set {NETDEV} up"));
        both_move("after the link was down");
        end.ip(&format!("neigh flush dev {NETDEV}"));
        both_move("after the neighbours were forgotten");
        let address = format!("{}/24 dev {NETDEV}", IPV4[which]);
        end.ip(&format!("addr del {address}"));
        std::thread::sleep(Duration::from_millis(200));
        end.ip(&format!("addr add {address}"));
        both_move("after the address was away");
        end.ip(&format!("link set {NETDEV} mtu 3000"));
        both_move("at another MTU");
    }
    // An address that comes later is in the table, and frames to it are ours: without them there would be no flow above.
    field.ends[0].ip(&format!("addr add 10.99.0.1/24 dev {NETDEV}"));
    eventually("the new address is a GID", PATIENCE, || {
        a.ask("gids", "gids").is_ok_and(|list| list.split_whitespace().any(|address| address == "10.99.0.1"))
    });
}

#[test]
fn a_user_that_is_not_there_or_would_keep_all_rights_is_refused_before_anything_happens() {
    let test = "a_user_that_is_not_there_or_would_keep_all_rights_is_refused_before_anything_happens";
    let Some(field) = Field::new(test, 1500) else { return };
    let peer = Path::new(env!("CARGO_BIN_EXE_xroce-hostile-peer"));
    for (user, word) in [("root", "would keep every right"), ("no-such-user", "there is no user")] {
        let options = PeerOptions { user: Some(user.into()), timeout: None };
        let refused = Peer::start(peer, &field.ends[0], 0, &options).expect_err("no such user").to_string();
        assert!(refused.contains(user) && refused.contains(word), "{refused}");
    }
}
