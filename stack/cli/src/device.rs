//! Opening the device that a command works on.
//!
//! In: the options `-d`, `-g`, `--pcap`, `--user` and the faults. Out: an open [`Context`], a GID of it, and a capture that is
//! being written.

use std::fs::File;
use std::io::{self, BufWriter};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xroce::stat::StatServer;
use xroce::{Context, Device, DeviceBuilder, GidEntry, NoSuchGid, OpenError, Progress};
use xroce_port::pcap::{Capture, Pcap};

use crate::commands::doctor;
use crate::complete;
use crate::faults::FaultArgs;

/// Which device, and whether its frames are to be captured.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct DeviceArgs {
    /// Netdev to open [default: the first that is up and can carry RoCE]. udp:ADDRESS takes a plain UDP socket on that address
    /// of this host instead, which needs no rights
    #[arg(short = 'd', long = "device", visible_alias = "ib-dev", value_name = "NETDEV", add = complete::devices())]
    pub device: Option<String>,
    /// Capture every RoCE frame of this end, in pcapng (xroce decode and Wireshark read it)
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Descriptors of each receive ring, a power of two from 64 to 32768 [default: 2048]; long UC messages need many
    #[arg(long, value_name = "COUNT")]
    pub rx_ring: Option<u32>,
}

/// What `-d` names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    Netdev(String),
    Udp(IpAddr),
}

/// What stands before an address that plain UDP sockets are opened on.
const UDP: &str = "udp:";

impl Named {
    fn parse(text: &str) -> Result<Named, DeviceError> {
        match text.strip_prefix(UDP) {
            None => Ok(Named::Netdev(text.to_owned())),
            Some(text) => {
                // Brackets around an IPv6 address as before a port.
                let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
                bare.parse().map(Named::Udp).map_err(|_| DeviceError::NotAnAddress { text: text.to_owned() })
            }
        }
    }
}

/// How a command runs its device.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub faults: FaultArgs,
    /// Become this user and give up all capabilities once the device is open (nobody will do)
    #[arg(long, value_name = "NAME", add = complete::users())]
    pub user: Option<String>,
}

/// Why there is no device to work with.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No netdev was named and none can be chosen.
    #[error(
        "no netdev here is up and can carry RoCE; name one with -d (`xroce doctor` says what is missing), or try without \
         one: --sim"
    )]
    None,
    /// Not an address behind udp:.
    #[error("-d udp:{text}: {text:?} is no IPv4 or IPv6 address; -d udp:127.0.0.1, say")]
    NotAnAddress {
        /// What was given.
        text: String,
    },
    /// The netdev does not open.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// Faults of the XDP program where there is none.
    #[error(
        "{name} has no XDP program to make --drop and --corrupt: name a netdev with -d (--reorder works everywhere)"
    )]
    NoXdp {
        /// As given by the user.
        name: String,
    },
    /// There is no such GID.
    #[error("{0}; `xroce devinfo -d {name}` lists them", name = .0.name)]
    Gid(#[from] NoSuchGid),
    /// Nothing but link-local addresses, or none.
    #[error(
        "{name} has no routable GID: give it an address (`ip addr add 192.0.2.1/24 dev {name}`), or choose a link-local \
         one with -g (`xroce devinfo -d {name}` lists them)"
    )]
    NoRoutableGid {
        /// The netdev.
        name: String,
    },
    /// The capture cannot be written.
    #[error("{}: {source}", file.display())]
    Capture {
        /// As given by the user.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A capture that is being written.
#[derive(Debug)]
pub struct CaptureFile {
    capture: Capture,
    file: PathBuf,
    _flusher: Flusher,
}

/// Writes out now and then what is in memory: a command that is ended by a signal leaves a capture without its last moment, and
/// one that runs can be looked at.
#[derive(Debug)]
struct Flusher {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Between two writes.
    const EVERY: Duration = Duration::from_millis(250);

    fn start(capture: &Capture) -> io::Result<Flusher> {
        let (stop, stopped) = channel();
        let capture = capture.clone();
        let thread = thread::Builder::new().name("capture".to_owned()).spawn(move || {
            while stopped.recv_timeout(Flusher::EVERY) == Err(RecvTimeoutError::Timeout) {
                // How it fares is asked at the end.
                capture.flush();
            }
        })?;
        Ok(Flusher { stop, thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl CaptureFile {
    /// Begins a capture.
    pub fn create(file: &Path) -> Result<CaptureFile, DeviceError> {
        let failed = |source| DeviceError::Capture { file: file.to_owned(), source };
        let sink = BufWriter::with_capacity(256 << 10, File::create(file).map_err(failed)?);
        let capture = Capture::new(sink).map_err(failed)?;
        let _flusher = Flusher::start(&capture).map_err(failed)?;
        Ok(CaptureFile { capture, file: file.to_owned(), _flusher })
    }

    /// To wrap a port with.
    pub fn handle(&self) -> &Capture {
        &self.capture
    }

    /// Writes what is still in memory; an error if anything got lost.
    pub fn finish(self) -> Result<(), DeviceError> {
        let status = self.capture.flush();
        match status.error {
            None if status.lost == 0 => Ok(()),
            error => {
                let why = error.unwrap_or_else(|| format!("{} packets were lost", status.lost));
                Err(DeviceError::Capture { file: self.file, source: io::Error::other(why) })
            }
        }
    }
}

/// A device that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The device.
    pub context: Context,
    /// For `xroce stat` and `xroce top`.
    offer: Option<StatServer>,
    capture: Option<CaptureFile>,
    faults: FaultArgs,
}

impl Opened {
    /// Closes the device and ends the capture.
    pub fn close(self) -> Result<(), DeviceError> {
        let counters = self.context.counters().unwrap_or_default();
        if let Some(report) = counters.first().and_then(|(port, ..)| self.faults.report(port)) {
            eprintln!("{report}");
        }
        drop(self.offer);
        drop(self.context);
        self.capture.map_or(Ok(()), CaptureFile::finish)
    }
}

impl DeviceArgs {
    /// Opens the netdev of `-d`, or the first that can be used.
    pub fn open(&self, progress: Progress) -> Result<Opened, DeviceError> {
        let (builder, name) = self.builder()?;
        self.open_as(builder.progress(progress), &name, FaultArgs::default())
    }

    /// The device of `-d`, or the first that can be used, and its name.
    fn builder(&self) -> Result<(DeviceBuilder, String), DeviceError> {
        let name = self.name()?;
        let builder = match Named::parse(&name)? {
            Named::Netdev(netdev) => Device::builder(&netdev),
            Named::Udp(address) => Device::on_udp(&[address]),
        };
        Ok((builder, name))
    }

    /// Opens `builder`'s device, captured if asked for.
    fn open_as(&self, builder: DeviceBuilder, name: &str, faults: FaultArgs) -> Result<Opened, DeviceError> {
        let builder = match self.rx_ring {
            Some(count) => builder.xdp(|config| config.rx_ring = count),
            None => builder,
        };
        let capture = self.pcap.as_deref().map(CaptureFile::create).transpose()?;
        // The capture hands a way in to the faults around it, for their comments.
        let tap = Arc::new(OnceLock::new());
        let builder = match &capture {
            None => builder,
            Some(file) => {
                let (capture, name, tap) = (file.capture.clone(), name.to_owned(), Arc::clone(&tap));
                builder.wrap(move |port| {
                    let port = Pcap::new(port, &capture, &name);
                    // It is set once: here.
                    let _ = tap.set(port.tap());
                    Box::new(port)
                })
            }
        };
        // Around the capture, which shows what is on the wire.
        let context = faults.apply(builder, tap).open()?;
        let offer = offer(&context);
        Ok(Opened { context, offer, capture, faults })
    }

    fn name(&self) -> Result<String, DeviceError> {
        if let Some(name) = &self.device {
            return Ok(name.clone());
        }
        let name = doctor::candidates().into_iter().next().ok_or(DeviceError::None)?;
        eprintln!("xroce: on netdev {name} (-d takes another)");
        Ok(name)
    }
}

impl RunArgs {
    /// Opens the netdev of `-d`, or the first that can be used.
    pub fn open(&self, progress: Progress) -> Result<Opened, DeviceError> {
        let (builder, name) = self.device.builder()?;
        if self.faults.needs_xdp() && name.starts_with(UDP) {
            return Err(DeviceError::NoXdp { name });
        }
        self.open_as(builder.progress(progress), &name)
    }

    /// Opens `builder`'s device: captured, with faults, as another user, if asked for.
    pub fn open_as(&self, builder: DeviceBuilder, name: &str) -> Result<Opened, DeviceError> {
        let builder = match &self.user {
            Some(user) => builder.drop_privileges(user),
            None => builder,
        };
        self.device.open_as(builder, name, self.faults)
    }
}

/// Lets `xroce stat` and `xroce top` look. Where that cannot be, the command does its work all the same.
pub fn offer(context: &Context) -> Option<StatServer> {
    context.serve_stat().inspect_err(|error| tracing::info!(%error, "xroce stat will not find this process")).ok()
}

/// The GID at `index`, or the first that can be reached from beyond the link. An address whose duplicate detection still runs
/// is waited for.
pub fn choose_gid(context: &Context, index: Option<u8>) -> Result<GidEntry, DeviceError> {
    /// The kernel takes one to two seconds for it.
    const PATIENCE: Duration = Duration::from_secs(3);
    let start = Instant::now();
    loop {
        match gid_now(context, index) {
            Err(_) if start.elapsed() < PATIENCE && is_any_tentative(&context.name()) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            chosen => return chosen,
        }
    }
}

/// Whether the kernel is still looking for another owner of an address of this netdev.
fn is_any_tentative(netdev: &str) -> bool {
    const IFA_F_TENTATIVE: u32 = 0x40;
    // One address a line: address, interface index, prefix length, scope, flags, name; the numbers in hexadecimal.
    let table = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let flags = fields.get(4).and_then(|flags| u32::from_str_radix(flags, 16).ok()).unwrap_or(0);
        fields.get(5) == Some(&netdev) && flags & IFA_F_TENTATIVE != 0
    })
}

fn gid_now(context: &Context, index: Option<u8>) -> Result<GidEntry, DeviceError> {
    let table = context.gid_table();
    match index {
        Some(index) => {
            context.query_gid(index)?;
            table.into_iter().find(|entry| entry.index == index)
        }
        None => table.into_iter().find(|entry| !entry.gid.is_link_local()),
    }
    .ok_or_else(|| DeviceError::NoRoutableGid { name: context.name() })
}

/// Drives the device until nothing has happened for `quiet`: the acknowledgement of what came last has then left, and what
/// the peer had to send again was answered. A NIC in hardware would go on doing so by itself.
pub fn linger(context: &Context, quiet: Duration) {
    /// So many times `quiet` at the most.
    const LONGEST: u32 = 25;
    let start = Instant::now();
    let mut last = start;
    loop {
        let worked = context.drive();
        let now = Instant::now();
        if worked {
            last = now;
        } else if now - last >= quiet {
            return;
        }
        if now - start >= quiet * LONGEST {
            return;
        }
        if !worked {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_is_called() {
        assert_eq!(Named::parse("eth0").unwrap(), Named::Netdev("eth0".to_owned()));
        assert_eq!(Named::parse("udp:::1").unwrap(), Named::Udp("::1".parse().unwrap()));
        assert_eq!(Named::parse("udp:[::1]").unwrap(), Named::Udp("::1".parse().unwrap()));
        let error = Named::parse("udp:localhost").unwrap_err().to_string();
        assert!(error.contains("\"localhost\" is no IPv4"), "{error}");
    }

    #[test]
    fn a_capture_that_cannot_be_written_is_named() {
        let error = CaptureFile::create(Path::new("/nonexistent/x.pcapng")).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/x.pcapng: "), "{error}");
    }
}
