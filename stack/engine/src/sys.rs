//! The few system calls of the engine: event descriptors, waiting, CPU affinity.
//!
//! In: nothing but arguments. Out: owned descriptors and `io::Error`. This is the only file of the poll loop with `unsafe`.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::sync::OnceLock;

/// An `eventfd(2)`: a counter that makes a descriptor readable while it is not zero.
#[derive(Debug)]
pub struct EventFd {
    file: File,
}

/// How a read of an [`EventFd`] takes from its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// A read takes everything: the descriptor says "something happened".
    All,
    /// A read takes one (`EFD_SEMAPHORE`): the descriptor counts entries of a queue beside it.
    One,
}

impl EventFd {
    /// A new, close-on-exec, non-blocking descriptor with counter 0.
    ///
    /// # Errors
    /// What `eventfd(2)` says: mostly EMFILE (raise `ulimit -n`).
    pub fn new(take: Take) -> io::Result<EventFd> {
        let semaphore = if take == Take::One { libc::EFD_SEMAPHORE } else { 0 };
        // SAFETY: eventfd takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK | semaphore) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by the kernel and belongs to nobody else.
        Ok(EventFd { file: unsafe { File::from_raw_fd(fd) } })
    }

    /// Adds one to the counter; never blocks. A saturated counter is as readable as any other, so that error is no error.
    pub fn signal(&self) {
        let _ = (&self.file).write(&1u64.to_ne_bytes());
    }

    /// Takes from the counter; false when it was zero.
    pub fn take(&self) -> bool {
        (&self.file).read(&mut [0u8; 8]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// An entry for [`wait`] that asks for readability of `fd`.
pub fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Sleeps until a descriptor of `fds` is readable (or in error), a signal arrives, or `timeout_ns` passed (None: for ever).
/// Returns how many descriptors are ready; a signal counts as none.
///
/// # Errors
/// What `ppoll(2)` says except EINTR.
pub fn wait(fds: &mut [libc::pollfd], timeout_ns: Option<u64>) -> io::Result<usize> {
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000).min(i32::MAX as u64) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let timeout_ptr = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `fds` is a valid array of its own length, `timeout_ptr` is null or points at `timeout`, which outlives the
    // call, and a null signal mask is allowed.
    let n = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ptr, std::ptr::null()) };
    if n >= 0 {
        return Ok(n as usize);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        e => Err(e),
    }
}

/// Ties the calling thread to one CPU.
///
/// # Errors
/// EINVAL when the CPU does not exist or the thread may not run there.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: an all-zero cpu_set_t is an empty set; CPU_SET writes inside it since `cpu` is below CPU_SETSIZE.
    let rc = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sixteen bytes that nobody can guess.
///
/// # Errors
/// What `getrandom(2)` says; since Linux 5.6 only on systems that have just started.
pub fn random() -> io::Result<[u64; 2]> {
    let mut words = [0u64; 2];
    let len = std::mem::size_of_val(&words);
    // SAFETY: `words` is `len` writable bytes, and any bytes make valid integers.
    let got = unsafe { libc::getrandom(words.as_mut_ptr().cast(), len, 0) };
    if got == len as isize { Ok(words) } else { Err(io::Error::last_os_error()) }
}

/// The names of all interfaces of the calling thread's network namespace, by index.
///
/// # Errors
/// What the kernel says.
pub fn interface_names() -> io::Result<Vec<String>> {
    // SAFETY: if_nameindex takes nothing; its result is freed below.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut names = Vec::new();
    let mut at = list;
    // SAFETY: the list ends with an entry whose name is null, every other name is a C string, and none is used after the
    // list is freed.
    unsafe {
        while !(*at).if_name.is_null() {
            names.push(CStr::from_ptr((*at).if_name).to_string_lossy().into_owned());
            at = at.add(1);
        }
        libc::if_freenameindex(list);
    }
    Ok(names)
}

/// Lets sleeps of the calling thread end up to `late_ns` nanoseconds after their time (50 µs unless told), when the CPU has an
/// interrupt anyway: prctl(2), PR_SET_TIMERSLACK. Best effort.
pub fn let_sleeps_be_late(late_ns: u64) {
    // 0 means the default.
    let slack = late_ns.max(1) as libc::c_ulong;
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack, 0, 0, 0) };
}

/// Has `last` called once more before the process ends by `exit(3)`. Best effort: there may be too many of these already.
pub fn at_exit(last: fn()) {
    static LAST: OnceLock<fn()> = OnceLock::new();
    extern "C" fn call() {
        if let Some(last) = LAST.get() {
            // Unwinding must not reach the C library. What a panic has to say it has said.
            let _ = std::panic::catch_unwind(last);
        }
    }
    LAST.get_or_init(|| last);
    // SAFETY: the function lives as long as the program and touches nothing but statics.
    unsafe { libc::atexit(call) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_signal_makes_it_readable_and_take_clears_it() {
        let e = EventFd::new(Take::All).unwrap();
        assert!(!e.take());
        e.signal();
        e.signal();
        assert_eq!(wait(&mut [readable(e.as_raw_fd())], Some(0)).unwrap(), 1);
        assert!(e.take());
        assert!(!e.take());
        assert_eq!(wait(&mut [readable(e.as_raw_fd())], Some(0)).unwrap(), 0);
    }

    #[test]
    fn a_semaphore_gives_one_at_a_time() {
        let e = EventFd::new(Take::One).unwrap();
        e.signal();
        e.signal();
        assert!(e.take() && e.take());
        assert!(!e.take());
    }

    #[test]
    fn a_wait_ends_at_its_time() {
        let start = Instant::now();
        assert_eq!(wait(&mut [], Some(2_000_000)).unwrap(), 0);
        assert!(start.elapsed().as_nanos() >= 2_000_000);
    }

    #[test]
    fn there_is_a_loopback_interface() {
        assert!(interface_names().unwrap().contains(&"lo".to_owned()));
    }

    #[test]
    fn a_cpu_that_cannot_exist_is_refused() {
        assert!(pin_to_cpu(usize::MAX).is_err());
    }
}
