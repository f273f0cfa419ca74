//! Deliberate faults, to prove that tests would find them.
//!
//! In: the fault that a test selects for its thread. Out: whether a given place is to go wrong. Without the feature
//! `mutations` nothing can be selected, [`is`] is constantly false and the compiler drops every place.

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule to break. The names say what the mutated code does.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Mutation { $($(#[$doc])* $name,)* }

        #[cfg(feature = "mutations")]
        impl Mutation {
            /// All of them.
            pub const ALL: &'static [Mutation] = &[$(Mutation::$name,)*];
        }
    };
}

mutations! {
    /// The responder carries out duplicates as if they were new.
    DuplicateExecuted,
    /// An ACK names the PSN after the one that was carried out.
    AckOneTooMany,
    /// The requester does not go back when it should.
    NoRewind,
    /// PSNs are compared as plain numbers.
    NoWrap,
    /// Progress does not fill the retry counters.
    RetriesNotRestored,
    /// The ACK timer never does anything.
    TimerIgnored,
    /// A duplicate atomic is carried out again.
    AtomicExecutedAgain,
    /// A READ is complete one response early.
    ReadCompletesEarly,
    /// A UC gap leaves the open message open.
    UcGapIgnored,
    /// A UC message that is given up takes its RECV along.
    UcRecvNotReused,
    /// The staged request is flushed before those on the wire.
    FlushOutOfOrder,
    /// One packet more than the window.
    WindowOneTooMany,
    /// One READ or atomic more than max_rd_atomic.
    RdAtomicOneTooMany,
    /// A READ that is asked for again from its middle starts one byte off.
    ReadResumesWrong,
    /// Packets of a message are read from the wrong place when the MTU is not 1024.
    WrongMtuOffset,
    /// A wrong ICRC is taken for right.
    IcrcNotChecked,
    /// An access may reach one byte beyond its region.
    RangeOneTooFar,
    /// The wait that an RNR NAK asks for is not kept.
    RnrTimerIgnored,
    /// RNR retries never run out.
    RnrRetriesEndless,
    /// A duplicate is acknowledged past a READ or atomic that may be unanswered.
    AckPastRead,
    /// An ACK beyond a READ or atomic completes it.
    AckCompletesRead,
    /// A sequence NAK acknowledges the packet that it asks for.
    NakAcknowledgesItself,
    /// A fence does not hold.
    FenceIgnored,
    /// SQD lets new messages start.
    SqdIgnored,
    /// A message longer than its RECV is taken, and its end dropped.
    RecvLengthNotChecked,
    /// SEND with Invalidate leaves the key alive.
    InvalidateForgotten,
    /// A success makes a completion though it is unsignaled.
    UnsignaledCompletes,
    /// The second piece of a received packet is dropped.
    TailDropped,
    /// A request fails with one retry left.
    RetriesOneTooFew,
    /// What is posted in ERR is not flushed.
    LatePostsNotFlushed,
    /// What the queue pair allows its peer is not looked at.
    QpRightsIgnored,
    /// A registration that is changed in place keeps its rights and its domain.
    ReregIgnored,
    /// A send queue that stops for an error keeps what was posted behind it.
    SqeNotFlushed,
    /// Other attributes for SQD change nothing.
    SqdAttributesIgnored,
}

#[cfg(feature = "mutations")]
mod selected {
    use super::Mutation;
    use core::cell::Cell;

    // A test selects for its own thread, so that tests beside it are not hit.
    thread_local! {
        static SELECTED: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// From now on this thread breaks this rule, or none.
    pub fn select(mutation: Option<Mutation>) {
        SELECTED.set(mutation);
    }

    #[inline]
    pub(crate) fn is(mutation: Mutation) -> bool {
        SELECTED.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub(crate) use selected::is;
#[cfg(feature = "mutations")]
pub use selected::select;

/// This rule is to be broken: never.
#[cfg(not(feature = "mutations"))]
#[inline]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}
