//! The Rye daemon as a library.
//!
//! Modules stand in the order in which they may use each other (ARCHITECTURE.md, "Rows").

pub mod config;
pub mod task;

pub mod journal;
pub mod object;

pub mod chain;
pub mod dispatch;
pub mod graph;
pub mod native;
pub mod process;
pub mod rpc;
pub mod supervisor;
