//! What a manual page says beyond its command's arguments, a table for each command.
//!
//! In: a command's name. Out: exit statuses, environment, files, examples, other pages.

/// A term and what it means, a row each.
pub type Rows<'a> = &'a [(&'a str, &'a str)];

/// One page.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// What exit status 0 means.
    pub done: &'static str,
    /// What exit status 1 means.
    pub failed: &'static str,
    /// Variables and what they do.
    pub environment: Rows<'static>,
    /// Paths and what lies there.
    pub files: Rows<'static>,
    /// What is done, and the lines that do it.
    pub examples: &'static [(&'static str, &'static [&'static str])],
    /// Pages of others, with their sections.
    pub see_also: Rows<'static>,
}

impl Page {
    /// What each exit status means.
    pub fn exit_status(&self) -> [(&'static str, &'static str); 4] {
        [
            ("0", self.done),
            ("1", self.failed),
            ("2", "The arguments are wrong."),
            ("130", "As the shell tells it: ended by Ctrl-C."),
        ]
    }
}

/// The page of a command that is not in the table.
const PLAIN: Page =
    Page { done: DONE, failed: FAILED, environment: LOG_ONLY, files: &[], examples: &[], see_also: &[] };

const DONE: &str = "Done.";
const FAILED: &str = "Failed; standard error says why, and what to do.";

const RUST_LOG: (&str, &str) = ("RUST_LOG", "The filter of `--log`, where that is not given.");
const RUN_DIR: (&str, &str) =
    ("XROCE_RUN_DIR", "The directory of the sockets (below, FILES), in place of the usual ones.");
const RUNTIME_DIR: (&str, &str) = ("XDG_RUNTIME_DIR", "Below it lies that directory for others than root.");

const LOG_ONLY: Rows<'static> = &[RUST_LOG];
/// Of the commands that open a device or look at those of others.
const WITH_SOCKETS: Rows<'static> = &[RUST_LOG, RUN_DIR, RUNTIME_DIR];

const SOCKETS: Rows<'static> = &[(
    "/run/xroce, $XDG_RUNTIME_DIR/xroce, /run/user/UID/xroce, /tmp/xroce-UID",
    "Where a process that has a device open leaves a socket for `xroce stat` and `xroce top`: the first for root, for others the first of \
     the rest that can be had. It is closed to other users.",
)];

const PINGPONG: Page = Page {
    done: "All messages went to and fro; with `--chk` their bytes were right, too.",
    environment: WITH_SOCKETS,
    files: SOCKETS,
    ..PLAIN
};

/// What the page of `command` says; `xroce` for that of the whole.
pub fn of(command: &str) -> &'static Page {
    TABLE.iter().find(|(name, _)| *name == command).map_or(&PLAIN, |(_, page)| page)
}

static TABLE: &[(&str, Page)] = &[
    ("xroce", XROCE),
    ("agent", AGENT),
    ("completions", COMPLETIONS),
    ("decode", DECODE),
    ("devinfo", DEVINFO),
    ("doctor", DOCTOR),
    ("lab", LAB),
    ("man", MAN),
    ("perf", PERF),
    ("rc_pingpong", RC_PINGPONG),
    ("script", SCRIPT),
    ("stat", STAT),
    ("top", TOP),
    ("uc_pingpong", UC_PINGPONG),
];

const XROCE: Page = Page {
    environment: WITH_SOCKETS,
    files: SOCKETS,
    examples: &[
        ("What this machine can do, and the remedy for what it cannot:", &["xroce doctor"]),
        (
            "A ping-pong between two hosts, the server first:",
            &["server# xroce rc_pingpong -d eth0", "client# xroce rc_pingpong -d eth0 192.0.2.2"],
        ),
        ("The same in one process, without rights and without a netdev:", &["xroce rc_pingpong --sim"]),
        (
            "What goes over the wire, packet by packet:",
            &["xroce rc_pingpong --sim -n 5 --pcap talk.pcapng", "xroce decode talk.pcapng"],
        ),
    ],
    see_also: &[("ibv_rc_pingpong", "1"), ("ethtool", "8"), ("ip-link", "8"), ("capabilities", "7")],
    ..PLAIN
};

const AGENT: Page = Page {
    done: "Never: a signal ends it.",
    failed: "The device does not open, or nobody can listen on the TCP port.",
    environment: WITH_SOCKETS,
    files: SOCKETS,
    examples: &[
        (
            "Packet scripts against an xroce on another host:",
            &[
                "192.0.2.2# xroce agent -d eth0",
                "192.0.2.1# xroce script -d eth0 --peer 192.0.2.2 --all tests/scripts/rc",
            ],
        ),
        ("Its protocol, by hand:", &["echo help | nc 192.0.2.2 18516"]),
    ],
    ..PLAIN
};

const COMPLETIONS: Page = Page {
    examples: &[
        ("Bash, for one user:", &["xroce completions bash > ~/.local/share/bash-completion/completions/xroce"]),
        ("Zsh, in a directory of $fpath:", &["xroce completions zsh > ~/.zfunc/_xroce"]),
        ("Fish:", &["xroce completions fish > ~/.config/fish/completions/xroce.fish"]),
    ],
    ..PLAIN
};

const DECODE: Page = Page {
    done: "Every RoCE v2 packet is well-formed and its ICRC is right.",
    failed: "A packet is malformed or has a wrong ICRC, or the file cannot be read to its end.",
    examples: &[
        ("A file of Wireshark, tcpdump or --pcap:", &["xroce decode talk.pcapng"]),
        ("While it is being captured:", &["tcpdump -i eth0 -U -w - udp port 4791 | xroce decode -"]),
        ("Packets with a wrong ICRC:", &["xroce decode --json talk.pcapng | grep '\"icrc_ok\":false'"]),
    ],
    see_also: &[("tcpdump", "8"), ("wireshark", "1")],
    ..PLAIN
};

const DEVINFO: Page = Page {
    environment: WITH_SOCKETS,
    files: SOCKETS,
    examples: &[
        ("GIDs and MTUs of a netdev:", &["xroce devinfo -d eth0"]),
        ("Of plain UDP sockets, without rights:", &["xroce devinfo -d udp:127.0.0.1"]),
        ("For a program:", &["xroce devinfo -d eth0 --json"]),
    ],
    see_also: &[("ibv_devinfo", "1"), ("ip-address", "8")],
    ..PLAIN
};

const DOCTOR: Page = Page {
    done: "An AF_XDP endpoint can be opened here.",
    failed: "It cannot; the remedies are printed.",
    examples: &[
        ("All netdevs:", &["xroce doctor"]),
        ("One, in another network namespace:", &["ip netns exec blue xroce doctor -d veth0"]),
    ],
    see_also: &[("capabilities", "7"), ("ethtool", "8"), ("ip-netns", "8")],
    ..PLAIN
};

const LAB: Page = Page {
    examples: &[
        ("A page on what a lost packet sets going, to look at in a browser:", &["xroce lab lost-packet"]),
        ("The same in the terminal:", &["xroce lab lost-packet --text"]),
        (
            "A conversation of one's own:",
            &["xroce rc_pingpong --sim -n 3 --pcap talk.pcapng", "xroce lab --from talk.pcapng"],
        ),
    ],
    ..PLAIN
};

const MAN: Page = Page {
    examples: &[
        ("A page without installing it:", &["xroce man rc_pingpong | man -l -"]),
        ("All of them, for one user:", &["xroce man --dir ~/.local/share/man/man1"]),
    ],
    see_also: &[("man", "1")],
    ..PLAIN
};

const PERF: Page = Page {
    environment: WITH_SOCKETS,
    files: SOCKETS,
    examples: &[
        (
            "Bandwidth of SEND between two hosts, the server first:",
            &["server# xroce perf send_bw -d eth0", "client# xroce perf send_bw -d eth0 192.0.2.2"],
        ),
        ("Latency of 64 bytes, in one process over a wire in memory:", &["xroce perf send_lat --sim -s 64"]),
        ("UC for five seconds with eight queue pairs, as JSON:", &["xroce perf write_bw --sim --uc -q 8 -D 5 --json"]),
    ],
    see_also: &[("ib_send_bw", "1")],
    ..PLAIN
};

const RC_PINGPONG: Page = Page {
    examples: &[
        (
            "Two hosts, the server first; either side may be ibv_rc_pingpong:",
            &["server# xroce rc_pingpong -d eth0 -c", "client# xroce rc_pingpong -d eth0 -c 192.0.2.2"],
        ),
        (
            "Without rights, between two addresses of one host:",
            &["xroce rc_pingpong -d udp:127.0.0.2 &", "xroce rc_pingpong -d udp:127.0.0.1 127.0.0.2"],
        ),
        ("With one packet in a hundred overtaken by others:", &["xroce rc_pingpong --sim --reorder 1 -n 10000"]),
    ],
    see_also: &[("ibv_rc_pingpong", "1")],
    ..PINGPONG
};

const UC_PINGPONG: Page = Page {
    examples: &[
        (
            "Two hosts, the server first; either side may be ibv_uc_pingpong:",
            &["server# xroce uc_pingpong -d eth0", "client# xroce uc_pingpong -d eth0 192.0.2.2"],
        ),
        ("In one process, with the packets in a file:", &["xroce uc_pingpong --sim -n 5 --pcap talk.pcapng"]),
    ],
    see_also: &[("ibv_uc_pingpong", "1")],
    ..PINGPONG
};

const SCRIPT: Page = Page {
    done: "Every script that was played found what it expects, or a deviation that `--known` lists.",
    failed: "A script found something else, or there is no way to the peer.",
    environment: LOG_ONLY,
    examples: &[
        ("The rules of RC against this stack, in virtual time:", &["xroce script tests/scripts/rc"]),
        ("One script, and what happened in it:", &["xroce script -v tests/scripts/rc/ack_coalesced.roce"]),
        (
            "All of them against a peer whose machine runs a verbs agent:",
            &["xroce script -d eth0 --peer 192.0.2.2 --pcap talk.pcapng tests/scripts"],
        ),
    ],
    ..PLAIN
};

const STAT: Page = Page {
    failed: "No process runs such a device, or none tells.",
    environment: WITH_SOCKETS,
    files: SOCKETS,
    examples: &[
        ("Counters of all devices, every second with their change:", &["xroce stat --watch"]),
        ("Where a queue pair stands:", &["xroce stat qp 0x12345"]),
        (
            "For the textfile collector of a Prometheus node exporter:",
            &["xroce stat -f prometheus > /var/lib/node_exporter/xroce.prom"],
        ),
    ],
    see_also: &[("rdma-statistic", "8")],
    ..PLAIN
};

const TOP: Page = Page {
    done: "Ended by q or Ctrl-C on a terminal, or by `--once`.",
    failed: "With `--once`: no process runs such a device, or none tells.",
    environment: WITH_SOCKETS,
    files: SOCKETS,
    examples: &[
        ("On a terminal; q ends it:", &["xroce top"]),
        ("A line of JSON every five seconds, of one process:", &["xroce top --json -i 5 --pid 1234"]),
    ],
    see_also: &[("top", "1")],
};
