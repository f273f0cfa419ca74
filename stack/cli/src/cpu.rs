//! CPUs: on which one this thread runs, and how much time was spent.
//!
//! In: a CPU number. Out: nanoseconds of CPU time.

use std::io;

use rustix::thread::CpuSet;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Keeps the calling thread on CPU `cpu`.
///
/// # Errors
/// What the system says: mostly that there is no such CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// CPU time of all threads of this process so far, in nanoseconds.
pub fn process_ns() -> u64 {
    ns(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time of the calling thread so far, in nanoseconds.
pub fn thread_ns() -> u64 {
    ns(clock_gettime(ClockId::ThreadCPUTime))
}

fn ns(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        assert!(pin(100_000).is_err());
    }

    #[test]
    fn work_takes_time() {
        let before = thread_ns();
        let mut x = 1_u64;
        while thread_ns() < before + 1_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(process_ns() >= 1_000_000);
    }
}
