//! S1: what the stack adds to the bare cost of the bytes, on one core and without a network.
//!
//! In: a path MTU. Out: time a packet of both ends together, ACKs included, against two copies and two CRCs of the same
//! bytes.

use std::time::Duration;

use xroce::PathMtu;

use crate::bare::Bare;
use crate::cpu_time::thread_ns;
use crate::pair::{Result, Shape, connected};
use crate::spread::{Ratio, alternate};
use crate::stream::Stream;

/// Bytes of a message.
const MESSAGE: u32 = 64 << 10;

/// Messages between two looks at the clock.
const MESSAGES: u64 = 64;

/// Nanoseconds of CPU a packet at `mtu`, ours and bare, over `rounds` rounds of about `time` a side.
///
/// # Errors
/// When the devices cannot be made, or a request fails.
pub fn measure(mtu: PathMtu, rounds: usize, time: Duration) -> Result<Ratio> {
    let (a, b) = connected(Shape::rc(mtu))?;
    let mut stream = Stream::new(&a, &b, MESSAGE, 16)?;
    stream.run(4 * MESSAGES)?;
    let mut bare = Bare::new(mtu.bytes());
    bare.measure(time / 4);
    let packets = u64::from(MESSAGE) / mtu.bytes() as u64;
    alternate(
        rounds,
        || {
            let start = thread_ns();
            let mut messages = 0;
            while u128::from(thread_ns() - start) < time.as_nanos() {
                stream.run(MESSAGES)?;
                messages += MESSAGES;
            }
            Ok((thread_ns() - start) as f64 / (messages * packets) as f64)
        },
        || Ok(bare.measure(time)),
    )
}
