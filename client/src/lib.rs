//! The client of the Rye daemon.
//!
//! [`Client`] makes the calls of `rye.v1` over the daemon's socket and returns the messages of the contract.
//! [`endpoint`] finds the daemon, and starts it if that is allowed. Messages serialise as the JSON that `ryectl`
//! documents. Errors carry their kind ([`Error::kind`](rye_core::error::Kinded::kind)) and a fix ([`Error::hint`]).
//! [`exit`] maps errors and the end of a run to the exit codes of `ryectl`.

pub mod error;
pub mod token;

pub mod environment;
pub mod exit;

pub mod client;

mod approvals;
pub mod endpoint;
pub mod events;
pub mod logs;
pub mod needs;
pub mod processes;
pub mod transcript;
pub mod tree;
pub mod view;

pub use client::Client;
pub use error::Error;
