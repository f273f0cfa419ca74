//! A port around another, for what happens in the middle of a step.
//!
//! In: a port, and what to do before each of its bursts. Out: a port.

use xroce::Port;
use xroce_port::Layer;

/// A port that does something of the test's before each burst.
pub struct Before<P, F>(pub P, pub F);

impl<P: Port, F: FnMut() + Send> Layer for Before<P, F> {
    type Below = P;

    fn below(&self) -> &P {
        &self.0
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.0
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        (self.1)();
        self.0.rx_burst(max)
    }
}
