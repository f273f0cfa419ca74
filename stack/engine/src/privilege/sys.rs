//! The system calls that give up rights. In: user and group ids. Out: `io::Error` with the system's errno.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem;
use std::ptr;

fn check(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// User and group id of the user `name`; `None` when there is none.
pub(super) fn user_ids(name: &str) -> io::Result<Option<(u32, u32)>> {
    const LONGEST_ENTRY: usize = 1 << 20;
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0 as libc::c_char; 1024];
    loop {
        // SAFETY: all-zero is a valid value of this C struct of integers and pointers (null).
        let mut entry: libc::passwd = unsafe { mem::zeroed() };
        let mut found = ptr::null_mut();
        // SAFETY: name, entry, buffer and result live through the call, and the buffer has the length given.
        let errno = unsafe {
            libc::getpwnam_r(name.as_ptr(), &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
        };
        match errno {
            libc::ERANGE if buffer.len() < LONGEST_ENTRY => buffer.resize(buffer.len() * 4, 0),
            // "Not found" has many names (getpwnam(3)).
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM if found.is_null() => return Ok(None),
            0 => return Ok(Some((entry.pw_uid, entry.pw_gid))),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Whether real, effective and saved ids are these already.
pub(super) fn is(uid: u32, gid: u32) -> bool {
    let (mut users, mut groups) = ([0; 3], [0; 3]);
    let [r, e, s] = &mut users;
    // SAFETY: three pointers to integers that live through the call.
    let got_users = unsafe { libc::getresuid(r, e, s) } == 0;
    let [r, e, s] = &mut groups;
    // SAFETY: three pointers to integers that live through the call.
    let got_groups = unsafe { libc::getresgid(r, e, s) } == 0;
    got_users && got_groups && users == [uid; 3] && groups == [gid; 3]
}

/// No supplementary groups, in every thread (nptl(7)).
pub(super) fn set_no_groups() -> io::Result<()> {
    // SAFETY: an empty list; the pointer is not read.
    check(unsafe { libc::setgroups(0, ptr::null()) })
}

/// Real, effective and saved group, in every thread.
pub(super) fn set_gid(gid: u32) -> io::Result<()> {
    // SAFETY: takes three integers.
    check(unsafe { libc::setresgid(gid, gid, gid) })
}

/// Real, effective and saved user, in every thread. Leaving user id 0 takes all capabilities (capabilities(7)).
pub(super) fn set_uid(uid: u32) -> io::Result<()> {
    // SAFETY: takes three integers.
    check(unsafe { libc::setresuid(uid, uid, uid) })
}

/// No capability of any set but the bounding one, in the calling thread.
pub(super) fn clear_capabilities() -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h: sets of two words.
    const VERSION_3: u32 = 0x2008_0522;
    // struct __user_cap_header_struct: version, process (0: this thread).
    let header = [VERSION_3, 0];
    // Two of struct __user_cap_data_struct: effective, permitted, inheritable.
    let nothing = [0u32; 6];
    // SAFETY: both arrays have the layout that version 3 asks for and live through the call, which changes neither.
    let status = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), nothing.as_ptr()) };
    // What is inheritable and permitted no more is ambient no more.
    check(status as libc::c_int)
}

/// Running a set-user-ID program gives nothing back: for the calling thread and those it starts.
pub(super) fn set_no_new_privileges() -> io::Result<()> {
    // SAFETY: takes integers and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}
