//! The harness of the end-to-end tests: real binaries, in a world of their own.
//!
//! A [`World`] is a home directory, a state directory and a project in a fresh directory. Every command runs in it with
//! an environment that holds `PATH`, `HOME` and `LANG` and nothing else, so nothing outside the clone is read, and
//! everything that runs carries the world's home in its environment, which is how the world finds what is left over.
//!
//! A [`ModelServer`] stands for the vendors of models.
//!
//! **Failure.** A world that is dropped ends its daemon and asserts that no process of it lives.

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

pub use command::{Outcome, Ryectl};
pub use daemon::Daemon;
pub use rye_model_server::{self as model_server, ModelServer};
pub use skip::skipped;
pub use until::until;
pub use world::World;
