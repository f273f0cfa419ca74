//! A device goes on to tell what it does after its process was short of descriptors. Alone in its program: the limit is the
//! process's.

mod common;

use common::devices;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::time::Duration;
use xroce::Progress;
use xroce::stat::{self, Which};

fn client() -> OwnedFd {
    socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap()
}

/// Lets the server meet the limit, under which there is not one descriptor more: it waits for a client with one in hand already, and
/// asks for the next when that one has hung up.
fn run_short(path: &Path, client: OwnedFd) {
    let limit = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    connect(&client, &SocketAddrUnix::new(path).unwrap()).unwrap();
    drop(client);
    std::thread::sleep(Duration::from_millis(50));
    assert!(std::fs::File::open("/dev/null").is_err(), "all are in use");
}

#[test]
fn a_process_short_of_descriptors_answers_when_it_has_some_again() {
    let (ca, _cb) = devices(Progress::Inline { helper: false });
    let server = ca.serve_stat().unwrap();
    let found = stat::endpoints().into_iter().find(|found| found.path == server.path()).expect("on offer");
    let (usual, clients) = (getrlimit(Resource::Nofile), [client(), client()]);
    let [first, second] = clients;
    run_short(server.path(), first);
    setrlimit(Resource::Nofile, usual).unwrap();
    assert_eq!(found.ask(Which::None).unwrap().device.name, "sim0");
    // The offer ends also while there are none.
    run_short(server.path(), second);
    drop(server);
    setrlimit(Resource::Nofile, usual).unwrap();
}
