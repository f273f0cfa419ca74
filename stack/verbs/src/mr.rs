//! Memory regions: bytes that the network may reach.
//!
//! In: owned buffers, or foreign memory that the caller vouches for. Out: keys and addresses for work requests and peers, and
//! safe ways to look at bytes that the peer may be changing.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::context::ContextInner;
use crate::pd::{Pd, PdInner};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use xroce_transport::memory::{Access, Grace, MrInfo, RegError, Region, Rereg};
use xroce_transport::wr::Sge;
use xroce_wire::{Lkey, Rkey};

/// The bytes behind a region.
#[derive(Debug)]
enum Backing {
    Owned(Buffer),
    Foreign { start: *mut u8, len: usize },
}

// SAFETY: the pointer of foreign memory is only used under the promise of `Pd::reg_mr_raw`, which holds for every thread.
unsafe impl Send for Backing {}
// SAFETY: as above; a shared Backing gives out addresses, no references.
unsafe impl Sync for Backing {}

impl Backing {
    fn start(&self) -> *mut u8 {
        match self {
            Backing::Owned(buffer) => buffer.as_ptr(),
            Backing::Foreign { start, .. } => *start,
        }
    }

    fn len(&self) -> usize {
        match self {
            Backing::Owned(buffer) => buffer.len(),
            Backing::Foreign { len, .. } => *len,
        }
    }
}

/// A registered memory region (`ibv_mr`).
///
/// The peer and the application race on its bytes by nature. [`read_at`](Mr::read_at), [`write_at`](Mr::write_at) and
/// [`atomic_u64`](Mr::atomic_u64) are safe whatever the peer does; what they see of bytes in flight is some mixture of old and
/// new. A slice is `unsafe`, because the compiler may rely on a slice not to change.
///
/// Dropping a region deregisters it: its key is dead at once, and the drop waits (for at most one step of the shards) until no
/// shard copies any more.
#[derive(Debug)]
pub struct Mr {
    pd: Arc<PdInner>,
    info: MrInfo,
    /// None only while `Drop` or `dereg` takes it apart.
    backing: Option<Backing>,
}

/// An access outside a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{len} bytes at offset {offset} do not lie in a memory region of {size} bytes")]
pub struct OutOfRange {
    /// Where it began.
    pub offset: usize,
    /// How long it was.
    pub len: usize,
    /// Bytes of the region.
    pub size: usize,
}

/// Why there is no atomic view of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AtomicViewError {
    /// It does not lie in the region.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// Its address is not a multiple of 8.
    #[error("the word at offset {offset} does not lie at a multiple of 8 in memory")]
    Misaligned {
        /// Where it began.
        offset: usize,
    },
}

impl Mr {
    pub(crate) fn owned(pd: &Pd, buffer: Buffer, iova: Option<u64>, access: Access) -> Result<Mr, RegMrError> {
        match register(pd, buffer.as_ptr(), buffer.len(), iova, access) {
            Ok(info) => Ok(Mr { pd: pd.inner().clone(), info, backing: Some(Backing::Owned(buffer)) }),
            Err(source) => Err(RegMrError { source, buffer: Some(buffer) }),
        }
    }

    pub(crate) fn foreign(
        pd: &Pd,
        start: *mut u8,
        len: usize,
        iova: Option<u64>,
        access: Access,
    ) -> Result<Mr, RegMrError> {
        let info = register(pd, start, len, iova, access).map_err(|source| RegMrError { source, buffer: None })?;
        Ok(Mr { pd: pd.inner().clone(), info, backing: Some(Backing::Foreign { start, len }) })
    }

    /// The address by which work requests and the peer name the first byte.
    pub fn addr(&self) -> u64 {
        self.info.iova
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.info.len as usize
    }

    /// Whether it has none (no region has).
    pub fn is_empty(&self) -> bool {
        self.info.len == 0
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> Lkey {
        self.info.lkey()
    }

    /// The key the peer needs.
    pub fn rkey(&self) -> Rkey {
        self.info.rkey()
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.info.access
    }

    /// What the peer needs to reach it.
    pub fn remote(&self) -> RemoteMr {
        RemoteMr { addr: self.addr(), rkey: self.rkey(), len: self.info.len }
    }

    /// A piece of it for a work request.
    ///
    /// # Errors
    /// [`OutOfRange`], also when the piece is longer than the 2^32 - 1 bytes that an SGE can name.
    pub fn sge(&self, range: Range<usize>) -> Result<Sge, OutOfRange> {
        let len = range.end.saturating_sub(range.start);
        self.check(range.start, len)?;
        let length = u32::try_from(len).map_err(|_| OutOfRange { offset: range.start, len, size: self.len() })?;
        Ok(Sge { addr: self.addr() + range.start as u64, length, lkey: self.lkey() })
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`OutOfRange`]; then nothing was copied.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfRange> {
        let from = self.check(offset, out.len())?;
        // SAFETY: `check` has seen that the bytes lie in the region, which is alive as long as `self`. `out` is exclusive, so
        // it is no part of it. The peer may write meanwhile: bytes are copied, nothing is believed about them.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// A copy of some of its bytes.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn to_vec(&self, range: Range<usize>) -> Result<Vec<u8>, OutOfRange> {
        let len = range.end.saturating_sub(range.start);
        self.check(range.start, len)?;
        let mut bytes = vec![0; len];
        self.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`OutOfRange`]; then nothing was copied.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfRange> {
        let to = self.check(offset, bytes.len())?;
        // SAFETY: as in `read_at`; and the memory is ours to write (an owned buffer, or `reg_mr_raw`'s promise). `bytes` is a
        // live reference, so it cannot be part of the region.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Sets every byte to `byte`.
    pub fn fill(&self, byte: u8) {
        if let Ok(start) = self.check(0, self.len()) {
            // SAFETY: as in `write_at`.
            unsafe { std::ptr::write_bytes(start, byte, self.len()) };
        }
    }

    /// A word that the application and the peer's atomics share, in host byte order.
    ///
    /// # Errors
    /// See [`AtomicViewError`].
    pub fn atomic_u64(&self, offset: usize) -> Result<&AtomicU64, AtomicViewError> {
        let start = self.check(offset, 8)?.cast::<u64>();
        if !start.is_aligned() {
            return Err(AtomicViewError::Misaligned { offset });
        }
        // SAFETY: 8 aligned bytes of the region, alive as long as `self`, which the returned reference borrows.
        Ok(unsafe { AtomicU64::from_ptr(start) })
    }

    /// The first byte, for foreign code.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.backing.as_ref().map_or(std::ptr::null_mut(), Backing::start)
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    /// While the slice lives nobody writes to the region: no RECV or READ or atomic into it is outstanding, the peer holds no
    /// key with a right to write, and the application does not write.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the region is allocated and initialised; the caller vouches that it does not change.
        unsafe { std::slice::from_raw_parts(self.as_mut_ptr(), self.len()) }
    }

    /// The bytes as a slice to write to.
    ///
    /// # Safety
    /// As for [`as_slice`](Mr::as_slice), and nobody reads either: no work request that sends from it is outstanding.
    #[allow(clippy::mut_from_ref, reason = "the caller vouches for exclusiveness; &self cannot show it to the shards")]
    pub unsafe fn as_mut_slice(&self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the caller vouches for exclusiveness.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len()) }
    }

    /// Deregisters and gives an owned buffer back; None for foreign memory. When this returns no shard touches the bytes, and
    /// work requests that still name the key fail.
    pub fn dereg(mut self) -> Option<Buffer> {
        match self.take_back() {
            Some(Backing::Owned(buffer)) => Some(buffer),
            _ => None,
        }
    }

    /// Changes domain or rights, or both (`ibv_rereg_mr`). The keys stay, unless the peer had invalidated them.
    ///
    /// # Errors
    /// See [`RegError`]; the region is then as it was.
    pub fn rereg(&mut self, pd: Option<&Pd>, access: Option<Access>) -> Result<(), RegError> {
        if let Some(other) = pd.filter(|other| !std::ptr::eq(Arc::as_ptr(other.context()), self.context())) {
            // A domain of another device: its number means something else here.
            return Err(RegError::UnknownPd { pd: other.raw() });
        }
        let change = Rereg { pd: pd.map(Pd::raw), translation: None, access };
        let (info, grace) = self.context().engine.memory().reregister(self.lkey(), change)?;
        wait(&grace);
        self.info = info;
        if let Some(pd) = pd {
            self.pd = pd.inner().clone();
        }
        Ok(())
    }

    /// Puts another buffer behind the region (`IBV_REREG_MR_CHANGE_TRANSLATION`) and gives the former one back (None for
    /// foreign memory). The keys and the address change.
    ///
    /// # Errors
    /// See [`RegMrError`], which gives `buffer` back; the region is then as it was.
    pub fn rereg_buffer(&mut self, buffer: impl Into<Buffer>) -> Result<Option<Buffer>, RegMrError> {
        let buffer = buffer.into();
        // SAFETY: the bytes belong to `buffer`, which `self` keeps until they are deregistered and the grace is over, and no
        // reference to them is made but by the caller of `as_slice`. The engine's shards pin around every step.
        let region = unsafe { Region::new(buffer.as_ptr(), buffer.len()) };
        let change = Rereg { pd: None, translation: Some((region, None)), access: None };
        match self.context().engine.memory().reregister(self.lkey(), change) {
            Ok((info, grace)) => {
                wait(&grace);
                self.info = info;
                match self.backing.replace(Backing::Owned(buffer)) {
                    Some(Backing::Owned(old)) => Ok(Some(old)),
                    _ => Ok(None),
                }
            }
            Err(source) => Err(RegMrError { source, buffer: Some(buffer) }),
        }
    }

    fn context(&self) -> &ContextInner {
        self.pd.context()
    }

    fn check(&self, offset: usize, len: usize) -> Result<*mut u8, OutOfRange> {
        let size = self.backing.as_ref().map_or(0, Backing::len);
        if offset > size || len > size - offset {
            return Err(OutOfRange { offset, len, size });
        }
        Ok(self.as_mut_ptr().wrapping_add(offset))
    }

    fn take_back(&mut self) -> Option<Backing> {
        let backing = self.backing.take()?;
        // The key is unknown only if it was deregistered before, and that is here.
        if let Ok(grace) = self.context().engine.memory().deregister(self.lkey()) {
            wait(&grace);
        }
        Some(backing)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        drop(self.take_back());
    }
}

/// Waits until every shard that was in the middle of a step has ended it.
fn wait(grace: &Grace) {
    while !grace.done() {
        std::thread::yield_now();
    }
}

fn register(pd: &Pd, start: *mut u8, len: usize, iova: Option<u64>, access: Access) -> Result<MrInfo, RegError> {
    // SAFETY: the callers own the bytes (`owned`) or have the promise of `reg_mr_raw` (`foreign`), and `Mr` keeps the
    // registration no longer than them. The engine's shards pin around every step.
    let region = unsafe { Region::new(start, len) };
    pd.context().engine.memory().register(pd.raw(), region, iova, access)
}

/// Why memory was not registered; the buffer comes back.
#[derive(Debug, thiserror::Error)]
#[error("memory region of {} bytes: {source}", buffer.as_ref().map_or(0, Buffer::len))]
pub struct RegMrError {
    /// What is wrong.
    pub source: RegError,
    /// The buffer that was to be registered, if it was an owned one.
    pub buffer: Option<Buffer>,
}

/// What a peer needs to reach a memory region: to be sent to it out of band.
///
/// As text it is `xroce-mr1:` and three fields in hexadecimal of fixed width: address (16 digits), key (8), length (16).
/// Neither padding nor byte order nor the size of a pointer enters into it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteMr {
    /// The address of the first byte.
    pub addr: u64,
    /// The key.
    pub rkey: Rkey,
    /// Bytes.
    pub len: u64,
}

impl fmt::Display for RemoteMr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xroce-mr1:{:016x}:{:08x}:{:016x}", self.addr, self.rkey.0, self.len)
    }
}

/// Text that is not a [`RemoteMr`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not \"xroce-mr1:\" and address, key and length in 16, 8 and 16 hexadecimal digits")]
pub struct ParseRemoteMrError {
    /// The text.
    pub text: String,
}

impl FromStr for RemoteMr {
    type Err = ParseRemoteMrError;

    fn from_str(text: &str) -> Result<RemoteMr, ParseRemoteMrError> {
        let parse = || {
            let mut fields = text.strip_prefix("xroce-mr1:")?.split(':');
            let addr = crate::text::hex(fields.next()?, 16)?;
            let rkey = u32::try_from(crate::text::hex(fields.next()?, 8)?).ok()?;
            let len = crate::text::hex(fields.next()?, 16)?;
            fields.next().is_none().then_some(RemoteMr { addr, rkey: Rkey(rkey), len })
        };
        parse().ok_or_else(|| ParseRemoteMrError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Report H47.
    #[test]
    fn the_text_keeps_all_eight_bytes_of_an_address() {
        let mr = RemoteMr { addr: 0x8123_4567_89ab_cdef, rkey: Rkey(0xfedc_ba98), len: 1 << 40 };
        let text = mr.to_string();
        assert_eq!(text, "xroce-mr1:8123456789abcdef:fedcba98:0000010000000000");
        assert_eq!(text.parse(), Ok(mr));
    }

    #[test]
    fn cut_or_foreign_text_is_refused() {
        for text in [
            "",
            "xroce-mr1:",
            "xroce-mr1:8123456789abcdef:fedcba98",
            "xroce-mr1:1:2:3",
            "xroce-mr2:8123456789abcdef:fedcba98:0000010000000000",
        ] {
            assert!(text.parse::<RemoteMr>().is_err(), "{text}");
        }
    }
}
