//! Helpers of the tests that cross rooms.

pub mod evidence;
pub mod interop;
pub mod rxe;
