//! Items on disk: where they lie, who signed them, what they declare.
//!
//! An *item* is a signed text file below a `.ai` folder. This crate finds it, reads it once, checks it, and hands out
//! the text that was checked; nobody reads the file again. It serves `ryed`, which runs items, and `ryectl`, which
//! signs and explains them without a daemon. It holds no task and no connection, and takes paths and time from its
//! caller. Modules stand in the order in which they may use each other.

pub mod metadata;
pub mod unfinished;
pub mod within;

mod file;

pub mod spaces;

pub mod cascade;
pub mod draft;
pub mod keys;
pub mod trust;

pub mod system;

pub mod library;

pub mod sign;

pub mod init;
pub mod lock;

pub use library::{Item, Library, Origin, Snapshot};
pub use metadata::Metadata;
pub use spaces::{Space, Spaces};
pub use trust::{TrustStore, TrustedKey};
