//! Hints to the processor: memory that is needed soon.
//!
//! In: a reference. Out: nothing that a program could see; the lines it covers are on their way into the cache meanwhile. With a few
//! queue pairs all of them are there anyway, with thousands each packet waits for those of its own.
#![allow(unsafe_code, reason = "the instruction takes a pointer")]

/// Bytes of a cache line.
const LINE: usize = 64;

/// Fetches all that `value` itself lies in, but not what it points to.
#[inline]
pub(crate) fn whole<T: ?Sized>(value: &T) {
    let first = core::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of_val(value)).step_by(LINE) {
        line(first.wrapping_add(at));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn line(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing that the program could see and never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn line(_: *const u8) {}
