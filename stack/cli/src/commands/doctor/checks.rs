//! The checks: what this kernel and this process may do; nothing enters but the machine, [`Check`] values leave.

use std::fs;
use std::io;

use serde::Serialize;

use super::sys;

/// First kernel whose XDP programs take frames in several buffers (`xdp.frags`), as ours is marked.
const KERNEL_FLOOR: (u32, u32) = (5, 18);
/// First kernel whose AF_XDP sockets do (XDP_USE_SG).
const KERNEL_MULTI_BUFFER: (u32, u32) = (6, 6);
/// Locked memory that one socket's frames take, in bytes.
const MEMLOCK_NEEDED: u64 = 16 << 20;
const KERNEL_REMEDY: &str = "boot a newer kernel";
const SETCAP: &str =
    "run with sudo, or once: sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep $(command -v xroce)";

/// Capability numbers of linux/capability.h.
mod cap {
    pub const NET_ADMIN: u32 = 12;
    pub const NET_RAW: u32 = 13;
    pub const IPC_LOCK: u32 = 14;
    pub const SYS_ADMIN: u32 = 21;
    pub const BPF: u32 = 39;
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Short name, stable over versions.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// Whether an AF_XDP endpoint cannot be opened without it.
    pub required: bool,
    /// What was found.
    pub found: String,
    /// What to do if it is not ok.
    pub remedy: Option<String>,
}

impl Check {
    /// A check without which no AF_XDP endpoint can be opened.
    pub fn required(name: &'static str, ok: bool, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = (!ok).then(|| remedy.into());
        Check { name, ok, required: true, found: found.into(), remedy }
    }

    /// A check whose failure costs speed or comfort only.
    pub fn optional(name: &'static str, ok: bool, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Check { required: false, ..Check::required(name, ok, found, remedy) }
    }
}

/// All checks that concern the machine and not one netdev.
pub fn machine() -> Vec<Check> {
    let status = read("/proc/self/status");
    let capabilities = effective_capabilities(&status).unwrap_or(0);
    let mut checks = kernel(read("/proc/sys/kernel/osrelease").trim()).to_vec();
    checks.extend(capability_checks(capabilities));
    checks.push(af_xdp(sys::af_xdp_socket()));
    checks.push(bpf("bpf_map", "an XSKMAP", sys::xskmap()));
    checks.push(bpf("bpf_program", "an XDP program for frames of several buffers", sys::xdp_program()));
    checks.push(memlock(&read("/proc/self/limits"), capabilities));
    checks.push(bpf_jit(read("/proc/sys/net/core/bpf_jit_enable").trim()));
    checks.push(huge_pages(&read("/proc/meminfo")));
    checks.push(btf(fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false)));
    checks.push(cpus(std::thread::available_parallelism().map_or(1, usize::from)));
    checks
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn kernel(release: &str) -> [Check; 2] {
    let version = version(release);
    let at_least = |floor| version.is_some_and(|v| v >= floor);
    let found = if release.is_empty() { "unknown" } else { release };
    [
        Check::required("kernel", at_least(KERNEL_FLOOR), format!("{found} (needs 5.18)"), KERNEL_REMEDY),
        Check::optional(
            "multi_buffer",
            at_least(KERNEL_MULTI_BUFFER),
            format!("{found} (AF_XDP frames of several buffers need 6.6)"),
            "boot a kernel from 6.6 on for a path MTU of 4096; smaller ones work",
        ),
    ]
}

/// Major and minor number of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn capability_checks(capabilities: u64) -> [Check; 3] {
    let has = |bit: u32| capabilities & 1 << bit != 0;
    let check = |name, ok| Check::required(name, ok, if ok { "effective" } else { "not effective" }, SETCAP);
    [
        check("cap_net_raw", has(cap::NET_RAW)),
        check("cap_net_admin", has(cap::NET_ADMIN)),
        check("cap_bpf", has(cap::BPF) || has(cap::SYS_ADMIN)),
    ]
}

fn af_xdp(opened: io::Result<()>) -> Check {
    match opened {
        Ok(()) => Check::required("af_xdp_socket", true, "can be opened", ""),
        Err(e) => {
            let remedy = match e.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => SETCAP,
                Some(libc::EAFNOSUPPORT) => "boot a kernel with CONFIG_XDP_SOCKETS=y",
                _ => "see the error; in a container its seccomp profile may forbid the call",
            };
            Check::required("af_xdp_socket", false, format!("cannot be opened: {e}"), remedy)
        }
    }
}

fn bpf(name: &'static str, what: &str, made: io::Result<()>) -> Check {
    match made {
        Ok(()) => Check::required(name, true, format!("{what} can be made"), ""),
        Err(e) => {
            let remedy = match e.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => SETCAP,
                Some(libc::EINVAL) => "boot a kernel from 5.18 on with CONFIG_XDP_SOCKETS=y",
                Some(libc::ENOSYS) => "boot a kernel with CONFIG_BPF_SYSCALL=y",
                _ => "see the error; a locked-down kernel or a container may forbid the bpf call",
            };
            Check::required(name, false, format!("{what} cannot be made: {e}"), remedy)
        }
    }
}

fn memlock(limits: &str, capabilities: u64) -> Check {
    let soft = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max locked memory"))
        .and_then(|l| l.split_whitespace().next())
        .unwrap_or("unknown");
    let free = capabilities & 1 << cap::IPC_LOCK != 0;
    let enough = soft == "unlimited" || soft.parse::<u64>().is_ok_and(|b| b >= MEMLOCK_NEEDED);
    let note = if free && !enough { ", not binding with cap_ipc_lock" } else { "" };
    let unit = if soft.ends_with(|c: char| c.is_ascii_digit()) { " bytes" } else { "" };
    Check::required(
        "memlock",
        free || enough,
        format!("locked memory up to {soft}{unit}{note}"),
        "raise it: ulimit -l unlimited (or LimitMEMLOCK=infinity in the unit file)",
    )
}

fn bpf_jit(value: &str) -> Check {
    let found = match value {
        "0" => "off",
        // Shown in the first network namespace only.
        "" => "not told in this network namespace",
        _ => "on",
    };
    Check::optional("bpf_jit", value != "0", found, "sysctl net.core.bpf_jit_enable=1")
}

fn huge_pages(meminfo: &str) -> Check {
    let field = |name: &str| {
        meminfo.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map_or("0", |v| v.trim()).to_owned()
    };
    let (total, free, size) = (field("HugePages_Total"), field("HugePages_Free"), field("Hugepagesize"));
    Check::optional(
        "huge_pages",
        free != "0",
        format!("{free} of {total} free, {size} each"),
        "sysctl vm.nr_hugepages=64 (frames then take fewer TLB entries; ordinary pages work)",
    )
}

fn btf(there: bool) -> Check {
    let found = if there { "/sys/kernel/btf/vmlinux is there" } else { "the kernel has none" };
    Check::optional("btf", there, found, "nothing to do: xroce's program needs no BTF, only tools such as bpftool do")
}

fn cpus(count: usize) -> Check {
    Check::optional(
        "cpus",
        count >= 2,
        format!("{count} for this process"),
        "a poll thread and the application share one CPU: use inline progress",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_floors() {
        let ok = |release| kernel(release).map(|c| c.ok);
        assert_eq!(ok("5.17.99"), [false, false]);
        assert_eq!(ok("5.18.0-rc1"), [true, false]);
        assert_eq!(ok("6.1.0-57-amd64"), [true, false]);
        assert_eq!(ok("6.6.1"), [true, true]);
        assert_eq!(ok("7.0"), [true, true]);
        assert_eq!(ok(""), [false, false]);
    }

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        let status = "Name:\txroce\nCapPrm:\tffffffffffffffff\nCapEff:\t0000008000003000\nCapBnd:\t0\n";
        let capabilities = effective_capabilities(status).unwrap();
        assert_eq!(capability_checks(capabilities).map(|c| c.ok), [true, true, true]);
        assert_eq!(capability_checks(1 << cap::SYS_ADMIN).map(|c| c.ok), [false, false, true]);
        let missing = &capability_checks(0)[0];
        assert!(!missing.ok && missing.required && missing.remedy.as_deref() == Some(SETCAP));
    }

    #[test]
    fn memlock_binds_only_without_the_capability() {
        let limits =
            |value: &str| format!("Limit  Soft Limit  Hard Limit  Units\nMax locked memory  {value}  {value}  bytes\n");
        assert!(!memlock(&limits("8388608"), 0).ok);
        assert!(memlock(&limits("8388608"), 1 << cap::IPC_LOCK).ok);
        assert!(memlock(&limits("unlimited"), 0).ok);
        assert!(memlock(&limits("16777216"), 0).ok);
        assert!(!memlock("", 0).ok);
    }

    #[test]
    fn errors_name_their_own_remedy() {
        let refused = |errno| Err(io::Error::from_raw_os_error(errno));
        assert_eq!(af_xdp(refused(libc::EPERM)).remedy.as_deref(), Some(SETCAP));
        assert!(af_xdp(refused(libc::EAFNOSUPPORT)).remedy.unwrap().contains("CONFIG_XDP_SOCKETS"));
        assert!(bpf("bpf_map", "a map", refused(libc::ENOSYS)).remedy.unwrap().contains("CONFIG_BPF_SYSCALL"));
        assert_eq!(af_xdp(Ok(())).remedy, None);
    }

    #[test]
    fn the_jit_is_missed_only_where_it_is_off() {
        assert_eq!(["0", "1", "2", ""].map(|v| bpf_jit(v).ok), [false, true, true, true]);
    }

    #[test]
    fn huge_pages_are_optional() {
        let check = huge_pages("HugePages_Total:       4\nHugePages_Free:        3\nHugepagesize:       2048 kB\n");
        assert!(check.ok && check.found == "3 of 4 free, 2048 kB each");
        let none = huge_pages("MemTotal: 1 kB\n");
        assert!(!none.ok && !none.required && none.remedy.is_some());
    }
}
