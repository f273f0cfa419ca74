//! The completion queues of a device and the channels they wake.
//!
//! In: queues created and destroyed, wake-ups from shards. Out: a notice in the queue's channel, once until it is fetched.
#![forbid(unsafe_code)]

use crate::notify::Notices;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use xroce_transport::cq::Cq;

/// A completion channel: the numbers of completion queues that have something to say.
pub type Channel = Notices<u64>;

/// What the device knows of one completion queue.
pub struct CqRecord {
    cq: Arc<Cq>,
    channel: Option<Arc<Channel>>,
    in_channel: AtomicBool,
    /// Its owner is going to sleep, or sleeps, and counts on somebody else to step the shards.
    awaited: AtomicBool,
}

impl CqRecord {
    /// The ring.
    pub fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// The channel it wakes.
    pub fn channel(&self) -> Option<&Arc<Channel>> {
        self.channel.as_ref()
    }

    fn wake(&self) {
        if let Some(channel) = &self.channel
            && !self.in_channel.swap(true, Ordering::SeqCst)
        {
            channel.push(self.cq.id());
        }
    }
}

impl std::fmt::Debug for CqRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CqRecord").field("id", &self.cq.id()).finish_non_exhaustive()
    }
}

/// All completion queues of a device, by number. A number is a place in the table and how often the place was used.
#[derive(Debug, Default)]
pub struct CqTable {
    places: RwLock<Vec<Place>>,
    /// How many are awaited.
    awaited: AtomicU32,
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    record: Option<Arc<CqRecord>>,
}

fn number(place: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | place as u64
}

impl CqTable {
    /// Creates a queue by `make`, which is given its number.
    ///
    /// # Errors
    /// What `make` says; then nothing changed.
    pub fn create<E>(
        &self,
        channel: Option<Arc<Channel>>,
        make: impl FnOnce(u64) -> Result<Arc<Cq>, E>,
    ) -> Result<Arc<CqRecord>, E> {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let place = places.iter().position(|p| p.record.is_none()).unwrap_or(places.len());
        let generation = places.get(place).map_or(0, |p| p.generation);
        let cq = make(number(place, generation))?;
        if let Some(channel) = &channel {
            channel.grow(1);
        }
        let record =
            Arc::new(CqRecord { cq, channel, in_channel: AtomicBool::new(false), awaited: AtomicBool::new(false) });
        if place == places.len() {
            places.push(Place::default());
        }
        places[place].record = Some(record.clone());
        Ok(record)
    }

    /// Forgets a queue and what its channel still says of it.
    pub fn remove(&self, id: u64) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = places.get_mut((id & 0xffff_ffff) as usize).filter(|p| u64::from(p.generation) == id >> 32)
        else {
            return;
        };
        if let Some(record) = place.record.take() {
            self.rest(&record);
            place.generation = place.generation.wrapping_add(1);
            if let Some(channel) = &record.channel {
                channel.remove(|notice| *notice == id);
                channel.shrink(1);
            }
        }
    }

    /// An armed queue got a completion: its channel becomes readable. No allocation; one `write` system call.
    pub fn wake(&self, id: u64) {
        self.with(id, |record| {
            self.rest(record);
            record.wake();
        });
    }

    /// Nobody will wake these queues any more: all channels become readable, so that who waits there looks.
    pub fn wake_all(&self) {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.iter().filter_map(|place| place.record.as_ref()).for_each(|record| record.wake());
    }

    /// The queue's owner is about to arm it and to sleep. To be said before it arms: what comes in between wakes nobody and takes
    /// nothing back.
    pub fn await_wake(&self, record: &CqRecord) {
        if !record.awaited.swap(true, Ordering::SeqCst) {
            self.awaited.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether the owner of some queue counts on being woken.
    pub fn anyone_waits(&self) -> bool {
        self.awaited.load(Ordering::SeqCst) != 0
    }

    /// The owner of this queue counts on nobody any more.
    fn rest(&self, record: &CqRecord) {
        if record.awaited.swap(false, Ordering::SeqCst) {
            self.awaited.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The queue's notice was fetched from its channel; the next wake-up puts in another.
    pub fn notice_fetched(&self, id: u64) {
        self.with(id, |record| record.in_channel.store(false, Ordering::SeqCst));
    }

    fn with(&self, id: u64, f: impl FnOnce(&CqRecord)) {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get((id & 0xffff_ffff) as usize)
            && u64::from(place.generation) == id >> 32
            && let Some(record) = &place.record
        {
            f(record);
        }
    }

    /// Queues there are.
    pub fn len(&self) -> usize {
        self.places.read().unwrap_or_else(PoisonError::into_inner).iter().filter(|p| p.record.is_some()).count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(table: &CqTable, channel: &Arc<Channel>) -> Arc<CqRecord> {
        table.create(Some(channel.clone()), |id| Cq::new(id, 16)).unwrap()
    }

    #[test]
    fn a_wake_up_stands_once_until_it_is_fetched() {
        let (table, channel) = (CqTable::default(), Arc::new(Channel::new(0).unwrap()));
        let record = create(&table, &channel);
        let id = record.cq().id();
        table.wake(id);
        table.wake(id);
        assert_eq!((channel.try_next(), channel.try_next()), (Some(id), None));
        table.notice_fetched(id);
        table.wake(id);
        assert_eq!(channel.try_next(), Some(id));
        assert_eq!(channel.lost(), 0);
    }

    #[test]
    fn a_number_is_not_used_twice() {
        let (table, channel) = (CqTable::default(), Arc::new(Channel::new(0).unwrap()));
        let first = create(&table, &channel).cq().id();
        table.wake(first);
        table.remove(first);
        assert_eq!(channel.try_next(), None, "its notice went with it");
        let second = create(&table, &channel).cq().id();
        assert_ne!(first, second);
        table.wake(first);
        assert_eq!(channel.try_next(), None);
        table.remove(first);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_queue_that_goes_takes_its_room_in_the_channel_along() {
        let (table, channel) = (CqTable::default(), Arc::new(Channel::new(0).unwrap()));
        for _ in 0..1000 {
            let id = create(&table, &channel).cq().id();
            table.wake(id);
            table.remove(id);
        }
        let last = create(&table, &channel).cq().id();
        table.wake(last);
        assert!(!channel.push(last), "there is room for one queue");
        assert_eq!((channel.try_next(), channel.try_next()), (Some(last), None));
    }

    #[test]
    fn who_is_woken_leaves_others_waiting() {
        let (table, channel) = (CqTable::default(), Arc::new(Channel::new(0).unwrap()));
        let [a, b, c] = [(); 3].map(|()| create(&table, &channel));
        for record in [&a, &b, &a] {
            table.await_wake(record);
        }
        table.wake(c.cq().id());
        table.wake(a.cq().id());
        table.wake(a.cq().id());
        assert!(table.anyone_waits(), "the owner of the second queue does");
        table.remove(b.cq().id());
        assert!(!table.anyone_waits(), "nobody waits for a queue that is gone");
    }
}
