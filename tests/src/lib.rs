//! Helpers of the tests that cross rooms.

pub mod rxe;
