//! The poll loop of the software RNIC.

pub mod gid;
pub mod netdev;
pub mod nexthop;
pub mod path;
