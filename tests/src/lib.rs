//! Harness of the end-to-end tests: real binaries in isolated worlds.
//!
//! A [`World`] is a fresh directory with a home directory, a state directory and a project. Commands run in it with
//! only `PATH`, `HOME` and `LANG` in their environment, so nothing outside the clone is read. Each process has the
//! world's home in its environment, which is how the world finds processes that are left over.
//!
//! A [`ModelServer`] replaces the vendors of models.
//!
//! **Failure.** A dropped world ends its daemon and asserts that none of its processes is alive.

pub mod binaries;
pub mod processes;
mod signals;
mod skip;
pub mod until;

pub mod command;
pub mod daemon;
pub mod world;

pub mod measure;
pub mod terminal;
pub mod transcript;
pub mod user;

pub use command::{Outcome, Ryectl};
pub use daemon::Daemon;
pub use rye_model_server::{self as model_server, ModelServer};
pub use skip::skipped;
pub use until::until;
pub use world::{World, files_with};
