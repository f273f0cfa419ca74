//! A numbered tour of xroce; the examples are in the `examples` folder beside this one.
//!
//! Every example runs anywhere and without rights, on two devices joined by a wire in memory. With `--device IF` it runs on a
//! real interface instead (which needs the rights for AF_XDP): then both ends are queue pairs of that one device, and packets
//! take its inner wire. This file has what they share, so that each example shows its one idea only.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use xroce::port::sim::{PipeConfig, loop_pair};
use xroce::{Access, ConnectOptions, Context, Cq, Device, Mr, Pd, Psn, Qp, QpInitAttr, QpType, Wc, WcStatus};

/// What an example's `main` returns.
pub type Outcome = Result<(), Failure>;

/// Any error, shown in words: `main` prints what it returns by `Debug`.
pub struct Failure(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The value of `--device`, if it was given.
pub fn device_argument() -> Option<String> {
    let mut arguments = std::env::args().skip_while(|a| a != "--device");
    arguments.next()?;
    // Without a name no device opens, and the error lists those that would.
    Some(arguments.next().unwrap_or_default())
}

/// Two open devices that can reach each other.
///
/// # Errors
/// What opening the device given by `--device` says.
pub fn two_devices() -> Result<(Context, Context), Box<dyn Error>> {
    if let Some(name) = device_argument() {
        let device = Device::open(&name)?;
        return Ok((device.clone(), device));
    }
    let (left, right) = loop_pair(&PipeConfig::default())?;
    let (left_ip, right_ip): (IpAddr, IpAddr) = ("192.0.2.1".parse()?, "192.0.2.2".parse()?);
    // On a real device the kernel knows the neighbours. Here we have to name them.
    let left = Device::on_port(Box::new(left), &[left_ip]).neighbour(right_ip, [2, 0, 0, 0, 0, 2]).open()?;
    let right = Device::on_port(Box::new(right), &[right_ip]).neighbour(left_ip, [2, 0, 0, 0, 0, 1]).open()?;
    Ok((left, right))
}

/// What one end of a conversation holds.
pub struct End {
    /// The queue pair.
    pub qp: Qp,
    /// A registered buffer.
    pub mr: Mr,
    /// Where completions arrive.
    pub cq: Cq,
    /// What queue pair and buffer belong to.
    pub pd: Pd,
    /// The device.
    pub device: Context,
}

impl End {
    /// The objects that every example needs, with a buffer of `bytes` zeros that the peer may use in every way.
    ///
    /// # Errors
    /// What making them says.
    pub fn new(device: &Context, kind: QpType, bytes: usize) -> Result<End, Box<dyn Error>> {
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(256)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mr = pd.reg_mr(vec![0; bytes], access)?;
        let qp = pd.create_qp(&QpInitAttr::new(kind, &cq))?;
        Ok(End { device: device.clone(), pd, cq, mr, qp })
    }

    /// How this end wants to be connected: from its first routable address, with a PSN of its own.
    pub fn options(&self) -> ConnectOptions {
        let gid_index = self.device.default_gid().map_or(0, |entry| entry.index);
        ConnectOptions { gid_index, psn: Psn::new(self.qp.qpn().value() * 17), ..ConnectOptions::default() }
    }

    /// The next completion; waits up to ten seconds for it and takes nothing but success.
    ///
    /// # Errors
    /// No completion, or one that failed.
    pub fn wait(&self) -> Result<Wc, Box<dyn Error>> {
        let wc = self.cq.poll_timeout(Duration::from_secs(10))?.ok_or("no completion within ten seconds")?;
        if wc.status != WcStatus::Success {
            return Err(format!("work request {} on QP {}: {}", wc.wr_id, wc.qpn, wc.status).into());
        }
        Ok(wc)
    }
}

/// Two connected ends.
///
/// # Errors
/// What opening, making and connecting them says.
pub fn two_ends(kind: QpType, bytes: usize) -> Result<(End, End), Box<dyn Error>> {
    let (left, right) = two_devices()?;
    let (left, right) = (End::new(&left, kind, bytes)?, End::new(&right, kind, bytes)?);
    connect(&left, &right)?;
    Ok((left, right))
}

/// Connects two ends. Between two machines the two [`endpoint`](Qp::endpoint)s would travel by some other way, a TCP connection
/// mostly: they have a text form for that.
///
/// # Errors
/// What connecting says.
pub fn connect(left: &End, right: &End) -> Result<(), Box<dyn Error>> {
    let (of_left, of_right) = (left.options(), right.options());
    let (at_left, at_right) = (left.qp.endpoint(&of_left)?, right.qp.endpoint(&of_right)?);
    left.qp.connect(&at_right, &of_left)?;
    right.qp.connect(&at_left, &of_right)?;
    Ok(())
}
