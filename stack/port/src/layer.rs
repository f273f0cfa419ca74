//! Ports around other ports.
//!
//! What enters: a port, and what is to be done otherwise than there. What leaves: a port. A [`Layer`] says only what it does
//! itself; all else goes to the port below it.

#![forbid(unsafe_code)]

use std::os::fd::RawFd;

use crate::{Capabilities, LinkChange, Port, PortCounters, RxFrame, TxClass, TxFrame};

/// A port around another: a [`Port`] whose methods hand on to the one below, but for those that it has itself.
pub trait Layer: Send {
    /// The port below.
    type Below: Port + ?Sized;

    /// The port below, to ask.
    fn below(&self) -> &Self::Below;

    /// The port below, to act.
    fn below_mut(&mut self) -> &mut Self::Below;

    /// As [`Port::capabilities`].
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        self.below().capabilities()
    }

    /// As [`Port::rx_burst`].
    #[inline]
    fn rx_burst(&mut self, max: usize) -> usize {
        self.below_mut().rx_burst(max)
    }

    /// As [`Port::rx_frame`].
    #[inline]
    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        self.below().rx_frame(i)
    }

    /// As [`Port::rx_dropped`].
    #[inline]
    fn rx_dropped(&mut self, i: usize, reason: &'static str) {
        self.below_mut().rx_dropped(i, reason);
    }

    /// As [`Port::rx_release`].
    #[inline]
    fn rx_release(&mut self) {
        self.below_mut().rx_release();
    }

    /// As [`Port::tx_reserve`].
    #[inline]
    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        self.below_mut().tx_reserve(len, class)
    }

    /// As [`Port::tx_commit`].
    #[inline]
    fn tx_commit(&mut self, len: usize) {
        self.below_mut().tx_commit(len);
    }

    /// As [`Port::tx_flush`].
    #[inline]
    fn tx_flush(&mut self) {
        self.below_mut().tx_flush();
    }

    /// As [`Port::tx_idle`].
    #[inline]
    fn tx_idle(&self) -> bool {
        self.below().tx_idle()
    }

    /// As [`Port::wait_fds`].
    #[inline]
    fn wait_fds(&self, out: &mut Vec<RawFd>) {
        self.below().wait_fds(out);
    }

    /// As [`Port::before_wait`].
    #[inline]
    fn before_wait(&mut self) {
        self.below_mut().before_wait();
    }

    /// As [`Port::after_wait`].
    #[inline]
    fn after_wait(&mut self) {
        self.below_mut().after_wait();
    }

    /// As [`Port::counters`].
    #[inline]
    fn counters(&self) -> PortCounters {
        self.below().counters()
    }

    /// As [`Port::link`].
    #[inline]
    fn link(&mut self) -> Option<LinkChange> {
        self.below_mut().link()
    }

    /// As [`Port::now_hint`].
    #[inline]
    fn now_hint(&self) -> Option<u64> {
        self.below().now_hint()
    }
}

impl<L: Layer> Port for L {
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        Layer::capabilities(self)
    }

    #[inline]
    fn rx_burst(&mut self, max: usize) -> usize {
        Layer::rx_burst(self, max)
    }

    #[inline]
    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        Layer::rx_frame(self, i)
    }

    #[inline]
    fn rx_dropped(&mut self, i: usize, reason: &'static str) {
        Layer::rx_dropped(self, i, reason);
    }

    #[inline]
    fn rx_release(&mut self) {
        Layer::rx_release(self);
    }

    #[inline]
    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        Layer::tx_reserve(self, len, class)
    }

    #[inline]
    fn tx_commit(&mut self, len: usize) {
        Layer::tx_commit(self, len);
    }

    #[inline]
    fn tx_flush(&mut self) {
        Layer::tx_flush(self);
    }

    #[inline]
    fn tx_idle(&self) -> bool {
        Layer::tx_idle(self)
    }

    #[inline]
    fn wait_fds(&self, out: &mut Vec<RawFd>) {
        Layer::wait_fds(self, out);
    }

    #[inline]
    fn before_wait(&mut self) {
        Layer::before_wait(self);
    }

    #[inline]
    fn after_wait(&mut self) {
        Layer::after_wait(self);
    }

    #[inline]
    fn counters(&self) -> PortCounters {
        Layer::counters(self)
    }

    #[inline]
    fn link(&mut self) -> Option<LinkChange> {
        Layer::link(self)
    }

    #[inline]
    fn now_hint(&self) -> Option<u64> {
        Layer::now_hint(self)
    }
}

impl<P: Port + ?Sized> Layer for Box<P> {
    type Below = P;

    fn below(&self) -> &P {
        self
    }

    fn below_mut(&mut self) -> &mut P {
        self
    }
}
