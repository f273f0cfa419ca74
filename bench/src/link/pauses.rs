//! How often the machine stops a thread that does nothing but spin: what no stack can make shorter in a p99.
//!
//! In: for how long to look. Out: pauses a second on the CPUs of both ends.

use std::time::{Duration, Instant};

use super::net::{Net, Side};
use crate::pair::Result;

/// A gap between two looks at the clock that counts: more than a round trip, less than what a timer interrupt of a virtual
/// machine takes.
const PAUSE: Duration = Duration::from_micros(20);

/// Pauses of 20 µs and more in a second, on both CPUs together, while both ends spin for `time`.
///
/// # Errors
/// When a namespace cannot be entered or a CPU not be had.
pub fn per_second(net: &Net, time: Duration) -> Result<f64> {
    let watch = move |side| {
        move || {
            net.take_cpu(side)?;
            Ok(count(time))
        }
    };
    let (a, b) = net.both(watch(Side::A), watch(Side::B))?;
    Ok((a + b) as f64 / time.as_secs_f64())
}

fn count(time: Duration) -> u64 {
    let start = Instant::now();
    let (mut last, mut pauses) = (start, 0);
    while last - start < time {
        let now = Instant::now();
        pauses += u64::from(now - last >= PAUSE);
        last = now;
    }
    pauses
}
