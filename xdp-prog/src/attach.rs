//! Putting the program on a netdev and taking it off again. What enters: a loaded program, an interface index, a
//! wanted mode. What leaves: an [`Attachment`] that says which mode was got and why.

use crate::privilege::{Capability, explain_denied};
use crate::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

// linux/if_link.h
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Where on the netdev's receive path the program is to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// In the driver when it can, else on the socket buffer; the reason for falling back is kept.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// On the socket buffer: every netdev can, at the price of one more copy.
    Generic,
}

/// Why the program could not be put on the netdev.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The thread may not attach programs.
    #[error("attaching the XDP program was refused: {why}")]
    Denied {
        /// What is missing.
        why: String,
    },
    /// Another program is there.
    #[error(
        "the interface already carries an XDP program (id {program_id}): stop the process that put it there (another \
         xroce: one process owns an interface), or, where none holds it, `ip link set dev IF xdp off`"
    )]
    InUse {
        /// The kernel's id of that program as `bpftool prog` lists it, 0 when it could not be read.
        program_id: u32,
    },
    /// The MTU is larger than the driver takes for this program.
    #[error(
        "the driver refuses the XDP program at this MTU ({errno}): lower the MTU (veth: 3506 at most), allow \
         multi-buffer so that the program takes frames in pieces, or use generic mode"
    )]
    MtuTooLarge {
        /// The kernel's errno as text.
        errno: String,
    },
    /// The driver has no native XDP, or not as it is set now.
    #[error(
        "the driver takes no XDP program ({errno}): it has no native XDP, or none while the NIC joins packets \
         (`ethtool -K IF rx-gro-hw off`, where that can be set); generic mode works"
    )]
    Unsupported {
        /// The kernel's errno as text.
        errno: String,
    },
    /// The driver does not take the program in its present configuration.
    #[error(
        "the driver refuses the XDP program ({errno}): common reasons are an MTU too large for one buffer, LRO or \
         GRO-HW that is on (`ethtool -K IF lro off`), or too few queues; the kernel log may say which"
    )]
    Refused {
        /// The kernel's errno as text.
        errno: String,
    },
    /// The interface is not there, or not in this thread's network namespace.
    #[error("there is no interface with index {ifindex} in this network namespace")]
    NoInterface {
        /// The index asked for.
        ifindex: u32,
    },
}

impl AttachError {
    fn from_errno(error: &io::Error, ifindex: u32) -> AttachError {
        let errno = error.to_string();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                AttachError::Denied { why: explain_denied(&[Capability::NetAdmin, Capability::Bpf]) }
            }
            Some(libc::EBUSY | libc::EEXIST) => AttachError::InUse { program_id: program_on(ifindex) },
            Some(libc::ERANGE | libc::E2BIG | libc::EMSGSIZE) => AttachError::MtuTooLarge { errno },
            Some(libc::EOPNOTSUPP) => AttachError::Unsupported { errno },
            Some(libc::ENODEV) => AttachError::NoInterface { ifindex },
            _ => AttachError::Refused { errno },
        }
    }

    /// Generic mode may work where native gave this error.
    fn allows_generic(&self) -> bool {
        matches!(self, AttachError::MtuTooLarge { .. } | AttachError::Unsupported { .. } | AttachError::Refused { .. })
    }
}

fn program_on(ifindex: u32) -> u32 {
    if ifindex == 0 {
        return 0;
    }
    let query = |flags| sys::query_program_id(ifindex as i32, flags).unwrap_or(0);
    match query(XDP_FLAGS_DRV_MODE) {
        0 => query(XDP_FLAGS_SKB_MODE),
        id => id,
    }
}

/// The program on a netdev. Dropping it takes the program off; so does the end of the process.
#[derive(Debug)]
pub struct Attachment {
    link: OwnedFd,
    ifindex: u32,
    native: bool,
    fallback: Option<AttachError>,
}

impl Attachment {
    pub(crate) fn new(program: BorrowedFd<'_>, ifindex: u32, mode: AttachMode) -> Result<Attachment, AttachError> {
        let attach = |flags| {
            sys::link_create_xdp(program, ifindex as i32, flags).map_err(|e| AttachError::from_errno(&e, ifindex))
        };
        let mut fallback = None;
        if mode != AttachMode::Generic {
            match attach(XDP_FLAGS_DRV_MODE) {
                Ok(link) => return Ok(Attachment { link, ifindex, native: true, fallback: None }),
                Err(e) if mode == AttachMode::Auto && e.allows_generic() => fallback = Some(e),
                Err(e) => return Err(e),
            }
        }
        let link = attach(XDP_FLAGS_SKB_MODE)?;
        Ok(Attachment { link, ifindex, native: false, fallback })
    }

    /// The program runs in the driver.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.native
    }

    /// Why native mode was not got, when [`AttachMode::Auto`] fell back to generic mode.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<&AttachError> {
        self.fallback.as_ref()
    }

    /// The index of the interface the program was put on.
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The program is still there: the link was not detached from outside and the netdev still exists. One system
    /// call.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        sys::link_ifindex(self.link.as_fd()).is_ok_and(|ifindex| ifindex != 0)
    }
}

impl AsFd for Attachment {
    /// The link's descriptor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: i32) -> AttachError {
        AttachError::from_errno(&io::Error::from_raw_os_error(errno), 0)
    }

    #[test]
    fn every_errno_says_what_to_do() {
        for (errno, words) in [
            (libc::ERANGE, "lower the MTU"),
            (libc::EOPNOTSUPP, "generic mode works"),
            (libc::EINVAL, "LRO"),
            (libc::EBUSY, "already carries an XDP program"),
            (libc::ENODEV, "no interface with index 0"),
            (libc::EPERM, "CAP_NET_ADMIN"),
        ] {
            let text = of(errno).to_string();
            assert!(text.contains(words), "errno {errno}: {text}");
        }
    }

    /// Report H45.
    #[test]
    fn auto_does_not_hide_a_program_or_a_missing_right() {
        assert!(of(libc::ERANGE).allows_generic() && of(libc::EINVAL).allows_generic());
        assert!(!of(libc::EBUSY).allows_generic() && !of(libc::EPERM).allows_generic());
    }
}
