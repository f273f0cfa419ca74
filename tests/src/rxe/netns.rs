//! Running code inside a network namespace of this machine. Enters: its name, a closure. Leaves: what the closure returned.
//!
//! The one file here with `unsafe`: setns and what goes with it have no safe wrapper in std.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves the calling thread into network namespace `name`, with a /sys of its own that shows that namespace's devices, as
/// `ip netns exec` does. Nothing of it reaches other threads.
fn enter(name: &str) -> io::Result<()> {
    let path = format!("/run/netns/{name}");
    let file = File::open(&path).map_err(|e| io::Error::new(e.kind(), format!("network namespace {path}: {e}")))?;
    let mount = |source: &CStr, target: &CStr, kind: &CStr, flags| {
        // SAFETY: all strings are NUL-terminated and live across the call; the data argument may be null.
        check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) })
    };
    // SAFETY: the descriptor is open; both calls change only which namespaces this thread is in.
    unsafe {
        check(libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET))?;
        check(libc::unshare(libc::CLONE_NEWNS))?;
    }
    mount(c"", c"/", c"none", libc::MS_REC | libc::MS_SLAVE)?;
    // SAFETY: the string is NUL-terminated. What else is mounted below /sys stays with the old one.
    check(unsafe { libc::umount2(c"/sys".as_ptr(), libc::MNT_DETACH) })?;
    mount(c"sys", c"/sys", c"sysfs", 0)
}

/// Runs `f` on a fresh thread inside network namespace `name` (as in `ip netns`). Sockets that it opens, and threads that
/// it starts, belong to the namespace for good and may be handed out.
///
/// # Errors
/// No such namespace, or no right to enter it (needs root). A panic of `f` goes on in the caller.
pub fn in_namespace<T: Send>(name: &str, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        scope.spawn(|| enter(name).map(|()| f())).join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
