//! The journal of the Rye daemon.
//!
//! So far it holds one room, the [`history`]: sealed ranges of the log.

pub mod history;
