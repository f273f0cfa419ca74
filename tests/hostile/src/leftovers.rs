//! What a process leaves in the kernel when it dies. In: the process while it lives, and its network namespace. Out: which
//! of its BPF objects and AF_XDP sockets are still there.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use crate::field::Namespace;
use crate::sys::{BpfKind, bpf_exists};

/// The BPF objects that a process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// By kind and number.
    pub objects: Vec<(BpfKind, u32)>,
}

/// What was still there when patience ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("left behind: BPF objects {objects:?}, {sockets} AF_XDP sockets more than before")]
pub struct Leftovers {
    /// BPF objects that still exist.
    pub objects: Vec<(BpfKind, u32)>,
    /// AF_XDP sockets of the namespace beyond the number there should be.
    pub sockets: u64,
}

impl Held {
    /// What process `pid` holds now, from `/proc/PID/fdinfo`.
    ///
    /// # Errors
    /// When the process is not there.
    pub fn by(pid: u32) -> io::Result<Held> {
        let mut objects = Vec::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))?.flatten() {
            // A descriptor that was closed meanwhile is no loss.
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            for (kind, label) in BpfKind::ALL {
                let id = text.lines().find_map(|line| line.strip_prefix(label)?.trim().parse().ok());
                objects.extend(id.map(|id| (kind, id)));
            }
        }
        objects.sort_unstable();
        objects.dedup();
        Ok(Held { objects })
    }

    /// Waits until all of it is gone and `namespace` has no more than `sockets` AF_XDP sockets; how long that took. The
    /// kernel frees sockets, maps and programs after a grace period.
    ///
    /// # Errors
    /// [`Leftovers`] after `patience`.
    pub fn gone(&self, namespace: &Namespace, sockets: u64, patience: Duration) -> Result<Duration, Leftovers> {
        let start = Instant::now();
        loop {
            let exists = |object: &&(BpfKind, u32)| bpf_exists(object.0, object.1).unwrap_or(true);
            let objects: Vec<_> = self.objects.iter().filter(exists).copied().collect();
            let more = xdp_sockets(namespace).saturating_sub(sockets);
            if objects.is_empty() && more == 0 {
                return Ok(start.elapsed());
            }
            if start.elapsed() >= patience {
                return Err(Leftovers { objects, sockets: more });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// AF_XDP sockets of a network namespace (the `XDP` row of `/proc/net/protocols`).
pub fn xdp_sockets(namespace: &Namespace) -> u64 {
    let table = namespace.run(|| fs::read_to_string("/proc/thread-self/net/protocols")).unwrap_or_default();
    let row = table.lines().find(|line| line.starts_with("XDP "));
    row.and_then(|row| row.split_whitespace().nth(2)?.parse().ok()).unwrap_or(0)
}
