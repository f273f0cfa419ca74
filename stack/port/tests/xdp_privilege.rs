//! What is missing is named. Capabilities and user ids are a thread's in Linux, and each test has its own thread.

#![allow(unsafe_code)]

mod xdp_common;

use std::time::Duration;
use xdp_common::{IP_B, Net, config, run};
use xroce_port::xdp::XdpPort;

const LIMIT: Duration = Duration::from_secs(20);

const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_BPF: u32 = 39;

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// Takes capabilities from this thread's effective and permitted sets.
fn drop_capabilities(list: &[u32]) {
    let header = CapHeader { version: 0x2008_0522, pid: 0 };
    let mut sets = [[0u32; 3]; 2]; // effective, permitted, inheritable: low and high halves
    // SAFETY: version 3 reads and writes two blocks of three u32.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()), 0);
        for &cap in list {
            let half = &mut sets[cap as usize / 32];
            half[0] &= !(1 << (cap % 32));
            half[1] &= !(1 << (cap % 32));
        }
        assert_eq!(libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()), 0);
    }
}

fn refusal() -> String {
    XdpPort::open(&config("vb", IP_B)).expect_err("it must be refused").to_string()
}

/// Opens a port without the given capabilities.
fn refusal_without(test: &str, list: &'static [u32], check: fn(&str)) {
    run(test, LIMIT, move || {
        let net = Net::new(1500);
        net.b.enter();
        drop_capabilities(list);
        check(&refusal());
    });
}

#[test]
fn h31_without_cap_net_raw() {
    refusal_without("h31_without_cap_net_raw", &[CAP_NET_RAW], |text| {
        assert!(text.contains("AF_XDP socket") && text.contains("missing CAP_NET_RAW:"), "{text}");
    });
}

#[test]
fn h31_without_cap_net_admin() {
    refusal_without("h31_without_cap_net_admin", &[CAP_NET_ADMIN, CAP_SYS_ADMIN], |text| {
        assert!(text.contains("XDP program") && text.contains("missing CAP_NET_ADMIN:"), "{text}");
    });
}

#[test]
fn h31_without_cap_bpf() {
    refusal_without("h31_without_cap_bpf", &[CAP_BPF, CAP_SYS_ADMIN], |text| {
        assert!(text.contains("XDP program") && text.contains("missing CAP_BPF:"), "{text}");
    });
}

#[test]
fn h31_as_an_ordinary_user() {
    run("h31_as_an_ordinary_user", LIMIT, || {
        let net = Net::new(1500);
        net.b.enter();
        // SAFETY: no pointers; the raw call changes this thread only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 1000, 1000, 1000) }, 0);
        let text = refusal();
        assert!(text.contains("missing CAP_NET_ADMIN, CAP_BPF:") && text.contains("setcap"), "{text}");
    });
}

#[test]
fn h31_with_a_low_memlock_limit() {
    run("h31_with_a_low_memlock_limit", LIMIT, || {
        let net = Net::new(1500);
        net.b.enter();
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limits live through the calls.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut before), 0);
            let low = libc::rlimit { rlim_cur: 65536, ..before };
            assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const low), 0);
        }
        drop_capabilities(&[CAP_IPC_LOCK, CAP_SYS_RESOURCE]);
        let text = refusal();
        // SAFETY: as above. Raising the soft limit to what it was needs no privilege.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const before) }, 0);
        assert!(text.contains("RLIMIT_MEMLOCK is 65536 bytes") && text.contains("queue 0 of vb"), "{text}");
    });
}

#[test]
fn h31_the_capabilities_named_are_enough() {
    run("h31_the_capabilities_named_are_enough", LIMIT, || {
        let net = Net::new(1500);
        net.b.enter();
        let kept = [CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_IPC_LOCK];
        let others: Vec<u32> = (0..=40).filter(|c| !kept.contains(c)).collect();
        drop_capabilities(&others);
        XdpPort::open(&config("vb", IP_B)).unwrap();
    });
}
