//! A connection under load in a thread of its own, while the test turns the world upside down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{End, Failure};

/// Both ends of a connection, always busy.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    completed: Arc<[AtomicU64; 2]>,
    thread: JoinHandle<([End; 2], [Option<Failure>; 2])>,
}

impl Load {
    /// Starts the load on two connected ends. An end whose request fails rests from then on.
    pub fn start(mut ends: [End; 2]) -> Load {
        ends.iter_mut().for_each(|end| end.sender.go_on());
        let stop = Arc::new(AtomicBool::new(false));
        let completed = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let (told, counts) = (stop.clone(), completed.clone());
        let thread = std::thread::spawn(move || {
            let mut failures = [None, None];
            while !told.load(Ordering::Relaxed) {
                let mut moved = 0;
                for ((end, failed), count) in ends.iter_mut().zip(&mut failures).zip(counts.iter()) {
                    if failed.is_some() {
                        continue;
                    }
                    match end.step() {
                        Ok(now) => moved += now,
                        Err(failure) => *failed = Some(failure),
                    }
                    count.store(end.sender.completed, Ordering::Relaxed);
                }
                if moved == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            (ends, failures)
        });
        Load { stop, completed, thread }
    }

    /// Requests that each end has completed.
    pub fn completed(&self) -> [u64; 2] {
        [0, 1].map(|i| self.completed[i].load(Ordering::Relaxed))
    }

    /// Waits until each end has completed `by` more; how long that took.
    ///
    /// # Panics
    /// After `patience`, with what each end says.
    #[track_caller]
    pub fn moves(self, by: u64, patience: Duration, what: &str) -> (Load, Duration) {
        let (before, start) = (self.completed(), Instant::now());
        loop {
            let now = self.completed();
            if now.iter().zip(before).all(|(now, before)| *now >= before + by) {
                return (self, start.elapsed());
            }
            if start.elapsed() > patience {
                let (ends, failures) = self.stop();
                panic!(
                    "{what}: from {before:?} to {now:?} in {patience:?}; {failures:?}; {:?}",
                    ends.map(|e| e.sender)
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the load: both ends, and the failure that each ended with.
    pub fn stop(self) -> ([End; 2], [Option<Failure>; 2]) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
