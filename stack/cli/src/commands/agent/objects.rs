//! What a connection has made, by handles: small numbers, never used twice.

use std::sync::Arc;

use xroce::{CompChannel, Context, Cq, Pd, Qp};

use super::memory::{Block, Region};
use super::protocol::{Args, Fault, errno};

/// Something with a handle.
#[derive(Debug)]
pub enum Object {
    /// `ctx`
    Context(Context),
    /// `pd`
    Pd(Pd),
    /// `buf`
    Buffer(Arc<Block>),
    /// `mr`
    Region(#[expect(dead_code, reason = "kept until it is dropped")] Region),
    /// `cq`
    Cq(CqAndChannel),
    /// `qp`
    Qp(Arc<Qp>),
}

/// A completion queue, and the channel it wakes if it was made with one.
#[derive(Debug)]
pub struct CqAndChannel {
    /// The queue.
    pub cq: Cq,
    /// Its channel.
    pub channel: Option<CompChannel>,
}

/// The handles of one connection.
#[derive(Debug, Default)]
pub struct Objects {
    table: Vec<Option<Object>>,
}

macro_rules! getters {
    ($($name:ident: $variant:ident($type:ty), $what:literal;)*) => {
        $(
            #[doc = concat!("The ", $what, " that the argument `key` names.")]
            pub fn $name(&self, args: &Args<'_>, key: &str) -> Result<&$type, Fault> {
                let handle: usize = args.need(key)?;
                match self.at(handle) {
                    Some(Object::$variant(object)) => Ok(object),
                    _ => Err(Fault::new(errno::ENOENT, key, format!(concat!("handle {} is no ", $what), handle))),
                }
            }
        )*
    };
}

impl Objects {
    getters! {
        context: Context(Context), "context";
        pd: Pd(Pd), "PD";
        buffer: Buffer(Arc<Block>), "buffer";
        cq: Cq(CqAndChannel), "CQ";
        qp: Qp(Arc<Qp>), "QP";
    }

    /// The handle of a new object.
    pub fn add(&mut self, object: Object) -> usize {
        self.table.push(Some(object));
        self.table.len()
    }

    fn at(&self, handle: usize) -> Option<&Object> {
        self.table.get(handle.checked_sub(1)?)?.as_ref()
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.table.iter().flatten()
    }

    /// Destroys an object; what is in use stays.
    pub fn destroy(&mut self, handle: usize) -> Result<(), Fault> {
        let place = handle.checked_sub(1).and_then(|i| self.table.get_mut(i));
        let Some((place, object)) = place.and_then(|place| place.take().map(|object| (place, object))) else {
            return Err(Fault::new(errno::ENOENT, "h", format!("no object {handle}")));
        };
        let (why, kept) = match object {
            Object::Pd(pd) => match pd.dealloc() {
                Ok(()) => return Ok(()),
                Err(error) => (error.source.to_string(), Object::Pd(error.pd)),
            },
            Object::Cq(CqAndChannel { cq, channel }) => match cq.destroy() {
                Ok(()) => return Ok(()),
                Err(error) => (error.to_string(), Object::Cq(CqAndChannel { cq: error.cq, channel })),
            },
            // Dropping is all there is to these; a device stays open for the other connections.
            Object::Context(_) | Object::Buffer(_) | Object::Region(_) | Object::Qp(_) => return Ok(()),
        };
        *place = Some(kept);
        Err(Fault::new(errno::EBUSY, "h", why))
    }
}
