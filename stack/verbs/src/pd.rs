//! Protection domains: the wall between what different users of a device can reach.
//!
//! In: a context. Out: memory regions and queue pairs that belong together.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::context::{Context, ContextInner};
use crate::mr::{Mr, RegMrError};
use crate::qp::{CreateQpError, Qp, QpInitAttr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xroce_transport::memory::{self, Access, PdError};

/// A protection domain (`ibv_pd`). Regions and queue pairs made from it keep it alive after the handle is dropped;
/// [`dealloc`](Pd::dealloc) says instead whether there are any.
#[derive(Debug)]
pub struct Pd {
    inner: Arc<PdInner>,
}

#[derive(Debug)]
pub(crate) struct PdInner {
    context: Arc<ContextInner>,
    pd: memory::Pd,
    gone: AtomicBool,
}

impl PdInner {
    pub(crate) fn context(&self) -> &ContextInner {
        &self.context
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        if !self.gone.load(Ordering::Relaxed) {
            // Everything that belongs to it holds an Arc of it, so nothing does any more.
            let _ = self.context.engine.memory().dealloc_pd(self.pd);
        }
    }
}

/// The domain was not freed.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct DeallocPdError {
    /// Why: mostly that something still belongs to it.
    pub source: PdError,
    /// The handle, as before.
    pub pd: Pd,
}

impl Pd {
    pub(crate) fn alloc(context: &Context) -> Result<Pd, PdError> {
        let context = context.inner().clone();
        let pd = context.engine.memory().alloc_pd()?;
        Ok(Pd { inner: Arc::new(PdInner { context, pd, gone: AtomicBool::new(false) }) })
    }

    pub(crate) fn inner(&self) -> &Arc<PdInner> {
        &self.inner
    }

    pub(crate) fn raw(&self) -> memory::Pd {
        self.inner.pd
    }

    pub(crate) fn context(&self) -> &Arc<ContextInner> {
        &self.inner.context
    }

    /// Registers an owned buffer: a `Vec<u8>`, a `Box<[u8]>` or a [`Buffer`]. Its first byte is named by its own address, or
    /// by 0 with [`Access::ZERO_BASED`].
    ///
    /// # Errors
    /// See [`RegMrError`], which gives the buffer back.
    pub fn reg_mr(&self, buffer: impl Into<Buffer>, access: Access) -> Result<Mr, RegMrError> {
        Mr::owned(self, buffer.into(), None, access)
    }

    /// As [`reg_mr`](Pd::reg_mr), with the address `iova` for the first byte (`ibv_reg_mr_iova`).
    ///
    /// # Errors
    /// See [`RegMrError`], which gives the buffer back.
    pub fn reg_mr_iova(&self, buffer: impl Into<Buffer>, iova: u64, access: Access) -> Result<Mr, RegMrError> {
        Mr::owned(self, buffer.into(), Some(iova), access)
    }

    /// Registers foreign memory. `iova`: the address of the first byte; None is its own.
    ///
    /// # Safety
    /// Until the returned region is dropped or deregistered:
    /// - the `len` bytes at `start` stay allocated, initialised and readable, and writable if `access` gives any right to
    ///   write or [`Mr::write_at`], [`Mr::fill`] or [`Mr::atomic_u64`] are used;
    /// - no Rust reference to them is alive that the compiler may rely on: no `&mut [u8]`, and no `&[u8]` while anybody may
    ///   write.
    ///
    /// # Errors
    /// See [`RegMrError`].
    pub unsafe fn reg_mr_raw(
        &self,
        start: *mut u8,
        len: usize,
        iova: Option<u64>,
        access: Access,
    ) -> Result<Mr, RegMrError> {
        Mr::foreign(self, start, len, iova, access)
    }

    /// Creates a queue pair in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// See [`CreateQpError`].
    pub fn create_qp(&self, init: &QpInitAttr<'_>) -> Result<Qp, CreateQpError> {
        Qp::create(self, init)
    }

    /// Frees the domain (`ibv_dealloc_pd`).
    ///
    /// # Errors
    /// EBUSY in verbs: regions or queue pairs still belong to it. The handle comes back.
    pub fn dealloc(self) -> Result<(), DeallocPdError> {
        match self.context().engine.memory().dealloc_pd(self.raw()) {
            Ok(()) => {
                self.inner.gone.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(source) => Err(DeallocPdError { source, pd: self }),
        }
    }
}
