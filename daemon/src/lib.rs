//! The Rye daemon as a library: the binary only calls [`serve`].
//!
//! Rows of modules are separated by blank lines; a row uses the rows above it (ARCHITECTURE.md, "Rows").

pub mod config;
pub mod exit;
pub mod logging;
pub mod stop;
pub mod task;

pub mod beneath;

pub mod async_log;
pub mod object;

pub mod journal;

pub mod cache;
pub mod libraries;
pub mod port;
pub mod process;
pub mod storage_backoff;

pub mod native;

pub mod chain;

pub mod dispatch;

pub mod call;
pub mod graph;

pub mod supervisor;

pub mod rpc;

pub mod node;

pub use node::serve;
