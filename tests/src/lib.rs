//! Helpers of the tests that cross rooms.
