//! The poll loop of the software RNIC.
