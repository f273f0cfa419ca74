//! What stands in for `sync.rs` of transport and engine: loom's types, and a way to take orders out of them.
//!
//! In: what a model weakens. Out: atomics, fences, locks. A model that still holds when the order it is about is taken away
//! shows nothing, so each is run both ways: see [`weaken`].
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::PoisonError;

pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::thread::yield_now;
pub(crate) use std::sync::TryLockError;
pub(crate) use std::sync::atomic::AtomicU64 as MemoryWord;
pub(crate) use std::sync::atomic::Ordering;

/// No time passes in a model.
pub(crate) fn microseconds() -> u64 {
    0
}

/// An order to take away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weak {
    /// Fences do nothing.
    Fences,
    /// Stores publish nothing.
    Release,
    /// Loads take nothing over.
    Acquire,
    /// Swaps, adds and compare-and-swaps order nothing.
    ReadModifyWrite,
}

thread_local! {
    // Loom runs all threads of a model in one.
    static WEAK: Cell<Option<Weak>> = const { Cell::new(None) };
}

/// Runs `model` without one kind of order.
pub fn weaken<R>(what: Weak, model: impl FnOnce() -> R) -> R {
    WEAK.set(Some(what));
    let result = model();
    WEAK.set(None);
    result
}

fn is_weak(what: Weak) -> bool {
    WEAK.get() == Some(what)
}

fn order(order: Ordering, weak: Weak) -> Ordering {
    if is_weak(weak) { Ordering::Relaxed } else { order }
}

loom::lazy_static! {
    static ref TURN: loom::sync::atomic::AtomicU32 = loom::sync::atomic::AtomicU32::new(0);
}

/// A place where loom may go on with another thread. It looks for such places itself, but by the last access to each atomic
/// only: a thread that loads a word and then stores to it hides from loom that another had loaded it before. One word that
/// every step changes, and that orders nothing, leaves no such gap.
fn turn() {
    TURN.fetch_add(1, Ordering::Relaxed);
}

/// As `core::sync::atomic::fence`.
pub(crate) fn fence(order: Ordering) {
    turn();
    if !is_weak(Weak::Fences) {
        loom::sync::atomic::fence(order);
    }
}

macro_rules! atomic {
    ($($name:ident $(<$t:ident>)?: $value:ty;)*) => { $(
        #[derive(Debug, Default)]
        pub(crate) struct $name $(<$t>)? (loom::sync::atomic::$name $(<$t>)?);

        impl $(<$t>)? $name $(<$t>)? {
            pub(crate) fn new(value: $value) -> Self {
                turn();
                Self(loom::sync::atomic::$name::new(value))
            }

            #[track_caller]
            pub(crate) fn load(&self, o: Ordering) -> $value {
                turn();
                self.0.load(order(o, Weak::Acquire))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, o: Ordering) {
                turn();
                self.0.store(value, order(o, Weak::Release));
            }

            #[track_caller]
            pub(crate) fn swap(&self, value: $value, o: Ordering) -> $value {
                turn();
                self.0.swap(value, order(o, Weak::ReadModifyWrite))
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let weak = Weak::ReadModifyWrite;
                turn();
                self.0.compare_exchange(current, new, order(success, weak), order(failure, weak))
            }

            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    )* };
}

atomic! {
    AtomicBool: bool;
    AtomicU8: u8;
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicPtr<T>: *mut T;
}

macro_rules! arithmetic {
    ($($name:ident: $value:ty;)*) => { $(
        impl $name {
            #[track_caller]
            pub(crate) fn fetch_add(&self, value: $value, o: Ordering) -> $value {
                turn();
                self.0.fetch_add(value, order(o, Weak::ReadModifyWrite))
            }

            #[track_caller]
            pub(crate) fn fetch_sub(&self, value: $value, o: Ordering) -> $value {
                turn();
                self.0.fetch_sub(value, order(o, Weak::ReadModifyWrite))
            }

            #[track_caller]
            pub(crate) fn fetch_or(&self, value: $value, o: Ordering) -> $value {
                turn();
                self.0.fetch_or(value, order(o, Weak::ReadModifyWrite))
            }

            #[track_caller]
            pub(crate) fn fetch_and(&self, value: $value, o: Ordering) -> $value {
                turn();
                self.0.fetch_and(value, order(o, Weak::ReadModifyWrite))
            }

            #[track_caller]
            pub(crate) fn fetch_max(&self, value: $value, o: Ordering) -> $value {
                turn();
                self.0.fetch_max(value, order(o, Weak::ReadModifyWrite))
            }

            #[track_caller]
            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let weak = Weak::ReadModifyWrite;
                turn();
                self.0.fetch_update(order(success, weak), order(failure, weak), f)
            }
        }
    )* };
}

arithmetic! {
    AtomicU32: u32;
    AtomicU64: u64;
}

/// No cache lines here.
#[derive(Debug, Default)]
pub(crate) struct OwnLine<T>(pub(crate) T);

/// Memory that no atomic protects by itself: an access that is not ordered after the last one by another thread fails.
#[derive(Debug)]
pub(crate) struct Watch(Vec<loom::cell::UnsafeCell<()>>);

impl Watch {
    pub(crate) fn new(places: u32) -> Watch {
        Watch((0..places).map(|_| loom::cell::UnsafeCell::new(())).collect())
    }

    #[track_caller]
    pub(crate) fn reads(&self, at: u32, count: u32) {
        for place in &self.0[at as usize..][..count as usize] {
            place.with(|_| ());
        }
    }

    #[track_caller]
    pub(crate) fn writes(&self, at: u32, count: u32) {
        for place in &self.0[at as usize..][..count as usize] {
            place.with_mut(|_| ());
        }
    }
}

/// For models: bytes that one thread uses and another frees.
#[derive(Debug)]
pub struct Bytes(Watch);

impl Default for Bytes {
    fn default() -> Self {
        Bytes(Watch::new(1))
    }
}

impl Bytes {
    /// They are looked at.
    #[track_caller]
    pub fn read(&self) {
        self.0.reads(0, 1);
    }

    /// They are written, or freed.
    #[track_caller]
    pub fn write(&self) {
        self.0.writes(0, 1);
    }
}

/// Loom's lock; nothing is ever poisoned, since a panic ends the model.
#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>, PoisonError<MutexGuard<'_, T>>> {
        self.0.lock()
    }

    pub(crate) fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError<MutexGuard<'_, T>>> {
        self.0.try_lock()
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        false
    }
}

/// A queue that loom may stop at and that orders nothing: what relies on it has to be ordered by something else.
#[derive(Debug)]
pub(crate) struct ArrayQueue<T> {
    entries: std::sync::Mutex<VecDeque<T>>,
    capacity: usize,
}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> ArrayQueue<T> {
        ArrayQueue { entries: Default::default(), capacity }
    }

    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        turn();
        let mut entries = self.entries.lock().expect("nothing panics under it");
        if entries.len() == self.capacity {
            return Err(value);
        }
        entries.push_back(value);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<T> {
        turn();
        self.entries.lock().expect("nothing panics under it").pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        turn();
        self.entries.lock().expect("nothing panics under it").is_empty()
    }
}
