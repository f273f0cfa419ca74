//! A port around another, for what happens in the middle of a step.
//!
//! In: a port, and what to do before each of its bursts. Out: a port.

use xroce::Port;
use xroce_port::{Capabilities, LinkChange, PortCounters, RxFrame, TxClass, TxFrame};

/// A port that does something of the test's before each burst.
pub struct Before<P, F>(pub P, pub F);

impl<P: Port, F: FnMut() + Send> Port for Before<P, F> {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn rx_burst(&mut self, max: usize) -> usize {
        (self.1)();
        self.0.rx_burst(max)
    }
    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        self.0.rx_frame(i)
    }
    fn rx_release(&mut self) {
        self.0.rx_release();
    }
    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        self.0.tx_reserve(len, class)
    }
    fn tx_commit(&mut self, len: usize) {
        self.0.tx_commit(len);
    }
    fn tx_flush(&mut self) {
        self.0.tx_flush();
    }
    fn tx_idle(&self) -> bool {
        self.0.tx_idle()
    }
    fn wait_fds(&self, out: &mut Vec<std::os::fd::RawFd>) {
        self.0.wait_fds(out);
    }
    fn counters(&self) -> PortCounters {
        self.0.counters()
    }
    fn link(&mut self) -> Option<LinkChange> {
        self.0.link()
    }
}
