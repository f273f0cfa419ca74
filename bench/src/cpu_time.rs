//! CPU time, which other programs on the machine do not add to.

/// CPU time of this thread in nanoseconds.
#[allow(unsafe_code, reason = "a system call without a safe wrapper among our dependencies")]
pub fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable and of the type that the call fills.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "CLOCK_THREAD_CPUTIME_ID: since Linux 2.6");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of all child processes that ended and were waited for, in user mode and in the kernel, in nanoseconds.
#[allow(unsafe_code, reason = "a system call without a safe wrapper among our dependencies")]
pub fn children_ns() -> (u64, u64) {
    // SAFETY: a `rusage` is integers only, for which all zeros are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable and of the type that the call fills.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    assert_eq!(failed, 0, "RUSAGE_CHILDREN is in POSIX");
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    (ns(usage.ru_utime), ns(usage.ru_stime))
}
