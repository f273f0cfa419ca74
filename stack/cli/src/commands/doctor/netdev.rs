//! The network devices of this network namespace: names from /sys/class/net enter, [`Netdev`] values with hints leave.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use xroce_wire::PathMtu;

use super::sys;
use super::xdp_features::{self, XdpFeatures};
use crate::xdp::Xdp;

/// One network device and what it is good for here.
#[derive(Debug, Clone, Serialize)]
pub struct Netdev {
    /// Name as `ip link` prints it.
    pub name: String,
    /// Whether it is the loopback device, which carries no RoCE.
    pub loopback: bool,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether a carrier is there; `null` while it is down.
    pub carrier: Option<bool>,
    /// Driver as `ethtool -i` prints it.
    pub driver: Option<String>,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// Largest RoCE path MTU that fits, in bytes of payload; `null` if not even 256 does.
    pub path_mtu: Option<usize>,
    /// Receive queues; each gets a socket.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// What the driver says it can do with XDP, of which opening may get less; `null` if the kernel does not tell (before 6.3).
    pub xdp: Option<XdpFeatures>,
    /// What opening it got; `null` if it was not opened.
    pub opened: Option<Xdp>,
    /// The kernel's own RDMA devices on it.
    pub rdma: Vec<String>,
    /// What to know or to set before it is used.
    pub hints: Vec<String>,
}

impl Netdev {
    /// Whether an endpoint can be opened on it as it is.
    pub fn usable(&self) -> bool {
        self.up && !self.loopback && self.path_mtu.is_some()
    }

    /// Takes down what opening it got, and what that says beyond the driver's word.
    pub fn opened_as(&mut self, got: Xdp) {
        let offers = self.xdp.unwrap_or_default();
        if let Some(why) = got.generic_because.as_ref().filter(|_| offers.native) {
            self.hints.push(format!("generic mode, slower, because {why}"));
        } else if offers.zero_copy && !got.zero_copy {
            self.hints
                .push("the driver offers zero-copy, but no socket was bound so: frames are copied, slower".into());
        }
        self.opened = Some(got);
    }
}

impl fmt::Display for Netdev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.up, self.carrier) {
            (false, _) => "down",
            (true, Some(false)) => "no carrier",
            (true, _) => "up",
        };
        let driver = self.driver.as_deref().unwrap_or("driver unknown");
        write!(f, "{:<14} {state}, {driver}, MTU {}", self.name, self.mtu)?;
        if let Some(path) = self.path_mtu.filter(|_| !self.loopback) {
            write!(f, " (path MTU {path})")?;
        }
        write!(f, ", queues {} rx {} tx", self.rx_queues, self.tx_queues)?;
        // A driver may refuse what it says it can: only who opened it knows.
        if let Some(opened) = &self.opened {
            return write!(f, ", AF_XDP {opened}");
        }
        match self.xdp {
            None => write!(f, ", XDP features not told by this kernel"),
            Some(xdp) if !xdp.native => write!(f, ", XDP generic"),
            Some(xdp) => {
                let more = [(xdp.zero_copy, ", zero-copy"), (xdp.multi_buffer, ", multi-buffer")];
                let more: String = more.into_iter().filter_map(|(has, word)| has.then_some(word)).collect();
                write!(f, ", XDP native{more} by its driver's word")
            }
        }
    }
}

/// Where the kernel shows its devices; another root serves the tests.
pub struct Sys {
    root: PathBuf,
}

impl Default for Sys {
    fn default() -> Self {
        Sys { root: PathBuf::from("/sys") }
    }
}

impl Sys {
    /// Names of all network devices, sorted.
    pub fn netdevs(&self) -> Vec<String> {
        // Besides devices the folder may hold control files such as bonding_masters.
        names(&self.root.join("class/net")).into_iter().filter(|n| self.net(n).join("ifindex").exists()).collect()
    }

    /// Looks at one device; `None` if there is none of that name.
    pub fn netdev(&self, name: &str) -> Option<Netdev> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return None;
        }
        let dir = self.net(name);
        let ifindex: u32 = number(&dir.join("ifindex"))?;
        let flags = text(&dir.join("flags")).and_then(|f| u32::from_str_radix(f.trim_start_matches("0x"), 16).ok());
        let mtu = number(&dir.join("mtu")).unwrap_or(0);
        let queues = names(&dir.join("queues"));
        let count = |kind: &str| queues.iter().filter(|q| q.starts_with(kind)).count() as u32;
        let mut netdev = Netdev {
            name: name.to_owned(),
            loopback: flags.unwrap_or(0) & libc::IFF_LOOPBACK as u32 != 0,
            up: flags.unwrap_or(0) & libc::IFF_UP as u32 != 0,
            carrier: number::<u8>(&dir.join("carrier")).map(|c| c == 1),
            driver: sys::driver(name).ok().filter(|d| !d.is_empty()),
            mtu,
            path_mtu: PathMtu::largest_for_netdev(mtu).map(PathMtu::bytes),
            rx_queues: count("rx-"),
            tx_queues: count("tx-"),
            xdp: xdp_features::query(ifindex).ok(),
            opened: None,
            rdma: self.rdma_on(name),
            hints: Vec::new(),
        };
        let offloads = sys::offloads(name).unwrap_or_default();
        let has_hardware = dir.join("device").exists();
        netdev.hints = hints(&netdev, offloads, has_hardware);
        Some(netdev)
    }

    /// RDMA devices that sit on a netdev: software ones name it in `parent`, hardware ones in `device/net/`.
    fn rdma_on(&self, netdev: &str) -> Vec<String> {
        let class = self.root.join("class/infiniband");
        let sits = |device: &String| {
            let dir = class.join(device);
            text(&dir.join("parent")).as_deref() == Some(netdev) || dir.join("device/net").join(netdev).exists()
        };
        names(&class).into_iter().filter(sits).collect()
    }

    fn net(&self, name: &str) -> PathBuf {
        self.root.join("class/net").join(name)
    }
}

/// What stands between this netdev and good service; what makes it unusable comes first.
fn hints(netdev: &Netdev, offloads: sys::Offloads, has_hardware: bool) -> Vec<String> {
    let name = &netdev.name;
    let mut hints = Vec::new();
    if netdev.loopback {
        hints.push("the loopback device carries no RoCE; a QP to an address of this host loops inside xroce".into());
        return hints;
    }
    if !netdev.up {
        hints.push(format!("down: ip link set {name} up"));
    }
    match netdev.path_mtu {
        None => hints.push(format!("MTU {} is too small for RoCE: ip link set {name} mtu 1500", netdev.mtu)),
        Some(4096) => {}
        Some(path) => {
            hints.push(format!(
                "path MTU {path}; for 4096 both ends and the switches need: ip link set {name} mtu 4200"
            ));
        }
    }
    for device in &netdev.rdma {
        hints.push(format!(
            "the kernel's {device} sits on it; XDP takes RoCE packets away from it: rdma link delete {device}, \
             or use another netdev"
        ));
    }
    if let Some(xdp) = netdev.xdp {
        if !xdp.native {
            hints.push("the driver has no native XDP: generic mode, slower".into());
        } else if !xdp.redirect {
            hints.push("the driver's XDP does not redirect: generic mode, slower".into());
        }
        if netdev.path_mtu == Some(4096) && !xdp.multi_buffer {
            hints.push("the driver takes no frames of several buffers: a path MTU of 4096 may be refused".into());
        }
    }
    if offloads.lro {
        hints.push(format!("LRO joins packets before XDP sees them: ethtool -K {name} lro off"));
    }
    if has_hardware && offloads.rxvlan {
        hints.push(format!("for peers in a VLAN the tag must stay in the frame: ethtool -K {name} rxvlan off"));
    }
    if netdev.rx_queues > 1 && has_hardware {
        let steering = if offloads.ntuple { "" } else { " (steering by ntuple rules is off)" };
        hints.push(format!(
            "{} receive queues, all are served{steering}; fewer save memory: ethtool -L {name} combined 1",
            netdev.rx_queues
        ));
    }
    hints
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Netdev {
        Netdev {
            name: "eth7".into(),
            loopback: false,
            up: true,
            carrier: Some(true),
            driver: Some("veth".into()),
            mtu: 4200,
            path_mtu: Some(4096),
            rx_queues: 1,
            tx_queues: 1,
            xdp: Some(XdpFeatures { native: true, redirect: true, multi_buffer: true, ..XdpFeatures::default() }),
            opened: None,
            rdma: Vec::new(),
            hints: Vec::new(),
        }
    }

    #[test]
    fn each_trouble_has_its_hint() {
        let off = sys::Offloads::default();
        assert_eq!(hints(&plain(), off, true), Vec::<String>::new());
        let with = |change: fn(&mut Netdev), offloads: sys::Offloads, expected: &str| {
            let mut netdev = plain();
            change(&mut netdev);
            let hints = hints(&netdev, offloads, true);
            assert!(hints.len() == 1 && hints[0].contains(expected), "{expected}: {hints:?}");
        };
        with(|n| n.up = false, off, "ip link set eth7 up");
        with(|n| n.rdma.push("rxe0".into()), off, "rdma link delete rxe0");
        with(|n| n.path_mtu = Some(1024), off, "mtu 4200");
        with(|n| n.path_mtu = None, off, "too small");
        with(|n| n.xdp = Some(XdpFeatures { multi_buffer: true, ..XdpFeatures::default() }), off, "no native XDP");
        with(|n| n.rx_queues = 4, off, "4 receive queues");
        with(|_| (), sys::Offloads { lro: true, ..off }, "lro off");
        with(|_| (), sys::Offloads { rxvlan: true, ..off }, "rxvlan off");
        with(|n| n.loopback = true, sys::Offloads { lro: true, ..off }, "loopback");
    }

    fn opened(mode: &'static str, zero_copy: bool, generic_because: Option<&str>) -> Xdp {
        let generic_because = generic_because.map(str::to_owned);
        Xdp { mode, zero_copy, multi_buffer: true, queues: 1, need_wakeup: true, huge_pages: false, generic_because }
    }

    #[test]
    fn what_opening_got_goes_before_the_drivers_word() {
        let claims = Netdev { xdp: Some(XdpFeatures { zero_copy: true, ..plain().xdp.unwrap() }), ..plain() };
        let word = "XDP native, zero-copy, multi-buffer by its driver's word";
        assert!(claims.to_string().ends_with(word), "{claims}");
        let (generic, copied) = (opened("generic", false, Some("it refuses")), opened("native", false, None));
        for (got, line, hint) in [
            (
                generic.clone(),
                "AF_XDP generic, copy, multi-buffer, 1 queue(s)",
                Some("generic mode, slower, because it refuses"),
            ),
            (copied.clone(), "AF_XDP native, copy, multi-buffer, 1 queue(s)", Some("frames are copied")),
            (opened("native", true, None), "AF_XDP native, zero-copy, multi-buffer, 1 queue(s)", None),
        ] {
            let mut netdev = claims.clone();
            netdev.opened_as(got);
            let told = netdev.to_string();
            assert!(told.ends_with(line) && !told.contains("word"), "{told}");
            assert_eq!(netdev.hints.len(), usize::from(hint.is_some()), "{:?}", netdev.hints);
            assert!(hint.is_none_or(|hint| netdev.hints[0].contains(hint)), "{:?}", netdev.hints);
        }
        // Nobody had been promised more.
        let (mut generic_only, mut copying) = (Netdev { xdp: Some(XdpFeatures::default()), ..plain() }, plain());
        generic_only.opened_as(generic);
        copying.opened_as(copied);
        assert_eq!((generic_only.hints.len(), copying.hints.len()), (0, 0));
    }

    #[test]
    fn rdma_devices_are_found_by_parent_and_by_device() {
        let root = std::env::temp_dir().join(format!("xroce-doctor-{}", std::process::id()));
        let class = root.join("class");
        fs::create_dir_all(class.join("net/eth7/queues/rx-0")).unwrap();
        fs::create_dir_all(class.join("net/eth7/queues/rx-1")).unwrap();
        fs::create_dir_all(class.join("net/eth7/queues/tx-0")).unwrap();
        for (file, value) in [("ifindex", "2147483000"), ("flags", "0x1003"), ("mtu", "1500"), ("carrier", "1")] {
            fs::write(class.join("net/eth7").join(file), format!("{value}\n")).unwrap();
        }
        fs::write(class.join("net/bonding_masters"), "\n").unwrap();
        fs::create_dir_all(class.join("infiniband/rxe0")).unwrap();
        fs::write(class.join("infiniband/rxe0/parent"), "eth7\n").unwrap();
        fs::create_dir_all(class.join("infiniband/mlx5_0/device/net/eth7")).unwrap();
        fs::create_dir_all(class.join("infiniband/mlx5_1/device/net/eth8")).unwrap();
        let sys = Sys { root: root.clone() };
        let names = sys.netdevs();
        let netdev = sys.netdev("eth7");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(names, ["eth7"]);
        let netdev = netdev.unwrap();
        assert_eq!(netdev.rdma, ["mlx5_0", "rxe0"]);
        assert_eq!((netdev.rx_queues, netdev.tx_queues, netdev.mtu), (2, 1, 1500));
        assert_eq!((netdev.up, netdev.carrier, netdev.path_mtu), (true, Some(true), Some(1024)));
        assert!(netdev.xdp.is_none(), "no such interface index");
        assert!(sys.netdev("eth8").is_none() && sys.netdev("../net").is_none());
    }
}
