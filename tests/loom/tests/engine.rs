//! Doorbell, sleeper and token of a shard.

mod common;

use common::holds;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;
use xroce_loom::Bytes;
use xroce_loom::Weak::{Fences, ReadModifyWrite};
use xroce_loom::doorbell::Doorbell;
use xroce_loom::signals;
use xroce_loom::sleep::{Depth, Sleeper};
use xroce_loom::token::Token;
use xroce_wire::Qpn;

/// The bit is all that orders a post before the look at its queue: the second post finds it set and puts nothing in the ring.
#[test]
fn the_last_look_sees_the_last_post() {
    holds(&[ReadModifyWrite], || {
        let bells = Arc::new(Doorbell::new(1, 1));
        let posted = Arc::new(AtomicU32::new(0));
        let poster = {
            let (bells, posted) = (Arc::clone(&bells), Arc::clone(&posted));
            thread::spawn(move || {
                for id in 1..=2 {
                    posted.store(id, Ordering::Relaxed);
                    bells.ring(Qpn::new(0));
                }
            })
        };
        let mut seen = 0;
        let mut look = || {
            while bells.pop().is_some() {
                seen = posted.load(Ordering::Relaxed);
            }
            seen
        };
        look();
        poster.join().unwrap();
        assert_eq!(look(), 2);
    });
}

/// The fence of `lie_down` and the fence of `wake`.
#[test]
fn no_wake_up_is_lost() {
    holds(&[Fences], || {
        let before = signals();
        let sleeper = Arc::new(Sleeper::new().expect("a bed"));
        let work = Arc::new(AtomicU32::new(0));
        let waker = {
            let (sleeper, work) = (Arc::clone(&sleeper), Arc::clone(&work));
            thread::spawn(move || {
                work.store(1, Ordering::Relaxed);
                sleeper.wake();
            })
        };
        sleeper.lie_down(Depth::Asleep);
        let seen = work.load(Ordering::Relaxed) == 1;
        waker.join().unwrap();
        assert!(seen || signals() > before, "asleep beside work");
    });
}

/// What the token guards is one thread's at a time, and nobody who insists waits for ever. The order is the lock's own, so there
/// is none of ours to take away.
#[test]
fn a_token_has_one_holder() {
    holds(&[], || {
        let token = Arc::new(Token::new(Bytes::default()));
        let stepper = {
            let token = Arc::clone(&token);
            thread::spawn(move || {
                token.try_take().is_some_and(|held| {
                    held.write();
                    true
                })
            })
        };
        token.take().expect("nobody panics").write();
        stepper.join().unwrap();
        assert!(token.try_take().is_some(), "somebody still insists");
    });
}
