//! Items on disk: their paths, signatures and metadata.
//!
//! An *item* is a signed text file below a `.ai` folder. This crate finds it, reads it once, verifies it and returns
//! the verified text; the file is not read again. `ryed` uses it to run items; `ryectl` uses it to sign and explain
//! items without a daemon. The crate has no task and no connection. Its caller supplies paths and time. A module uses
//! only modules that are declared above it.

pub mod metadata;

mod file;

pub mod spaces;

pub mod cascade;
pub mod directories;
pub mod draft;
pub mod keys;
pub mod trust;

pub mod system;

pub mod library;

pub mod sign;

pub mod init;
pub mod lock;

pub use library::{Item, Library, Origin, Snapshot};
pub use metadata::{Metadata, OutputFormat};
pub use spaces::{Space, Spaces};
pub use trust::{TrustStore, TrustedKey};
