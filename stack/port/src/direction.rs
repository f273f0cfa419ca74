//! Which way a frame goes, seen from the engine.

/// Which way a frame goes, seen from the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the wire to the engine.
    Rx,
    /// From the engine to the wire.
    Tx,
}

impl Direction {
    /// `"rx"` or `"tx"`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Rx => "rx",
            Direction::Tx => "tx",
        }
    }
}
