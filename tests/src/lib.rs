//! Helpers of the tests that cross rooms.

pub mod interop;
pub mod rxe;
