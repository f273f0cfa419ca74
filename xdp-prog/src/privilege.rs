//! Which privilege a refused system call lacks. What enters: the capabilities an operation needs. What leaves: a
//! sentence that names those the calling thread does not have, for error texts.

use crate::sys;
use std::fmt;

/// A Linux capability that AF_XDP or XDP needs (capabilities(7); numbers from `linux/capability.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// To attach a program to a netdev and to make the socket map.
    NetAdmin,
    /// To open an AF_XDP socket.
    NetRaw,
    /// To load a program and make maps (kernel 5.8 and later; CAP_SYS_ADMIN stands in).
    Bpf,
}

const CAP_SYS_ADMIN: u32 = 21;

impl Capability {
    /// All that opening an AF_XDP port needs.
    pub const ALL: [Capability; 3] = [Capability::NetRaw, Capability::NetAdmin, Capability::Bpf];

    const fn bit(self) -> u32 {
        match self {
            Capability::NetAdmin => 12,
            Capability::NetRaw => 13,
            Capability::Bpf => 39,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::Bpf => "CAP_BPF",
        })
    }
}

/// The effective capabilities of the calling thread as a bit mask, from `/proc/thread-self/status`; `None` when that
/// cannot be read.
fn effective() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

fn missing_from(effective: u64, needed: &[Capability]) -> Vec<Capability> {
    let has = |bit: u32| effective >> bit & 1 == 1;
    let stands_in = |c: Capability| c == Capability::Bpf && has(CAP_SYS_ADMIN);
    needed.iter().copied().filter(|&c| !has(c.bit()) && !stands_in(c)).collect()
}

/// The calling thread holds all of `needed`, as far as can be told.
pub(crate) fn holds_all(needed: &[Capability]) -> bool {
    effective().is_some_and(|mask| missing_from(mask, needed).is_empty())
}

fn list(capabilities: &[Capability]) -> String {
    capabilities.iter().map(Capability::to_string).collect::<Vec<_>>().join(", ")
}

/// A sentence that says why an operation which needs `needed` was refused with EPERM or EACCES, and what to do. It
/// names the capabilities that are missing from the calling thread's effective set.
#[must_use]
pub fn explain_denied(needed: &[Capability]) -> String {
    explain(effective(), needed)
}

fn explain(effective: Option<u64>, needed: &[Capability]) -> String {
    let all = Capability::ALL.map(|c| c.to_string().to_lowercase()).join(",");
    let missing = effective.map(|mask| missing_from(mask, needed));
    match missing {
        Some(missing) if !missing.is_empty() => {
            // The kernel does not ask for the last one here, but without it the frames' memory may exceed RLIMIT_MEMLOCK.
            let remedy = format!("`setcap {all},cap_ipc_lock+ep PROGRAM`");
            format!("missing {}: run as root, or grant it with {remedy}", list(&missing))
        }
        _ => format!(
            "{} is needed and held, yet the kernel refuses: it must be held in the initial user namespace, and a \
             container's seccomp filter or kernel lockdown must not forbid bpf()",
            list(needed)
        ),
    }
}

/// RLIMIT_MEMLOCK of this process in bytes; `None` when it is unlimited or cannot be read.
#[must_use]
pub fn memlock_limit() -> Option<u64> {
    sys::memlock_soft_limit().ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_missing_and_only_that() {
        let all_but_raw = !(1u64 << 13);
        let text = explain(Some(all_but_raw), &Capability::ALL);
        assert!(text.starts_with("missing CAP_NET_RAW: "), "{text}");
        assert!(text.contains("setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep"), "{text}");
        let text = explain(Some(0), &Capability::ALL);
        assert!(text.starts_with("missing CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF: "), "{text}");
    }

    #[test]
    fn sys_admin_stands_in_for_bpf_only() {
        assert!(missing_from(1 << CAP_SYS_ADMIN, &[Capability::Bpf]).is_empty());
        assert_eq!(missing_from(1 << CAP_SYS_ADMIN, &[Capability::NetRaw]), [Capability::NetRaw]);
    }

    #[test]
    fn says_so_when_nothing_is_missing() {
        let text = explain(Some(u64::MAX), &[Capability::NetAdmin]);
        assert!(text.contains("CAP_NET_ADMIN is needed and held"), "{text}");
    }
}
