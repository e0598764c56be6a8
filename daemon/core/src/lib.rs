//! The pure core of Rye: values, machines and codecs.
//!
//! Nothing here reads a file, a clock or an environment variable, and nothing here knows a runtime. What the
//! daemon does is decided in this crate and carried out in `ryed`. Rows of modules are separated by blank lines, the lowest
//! first; a module uses only lower rows, and those of its own row that ARCHITECTURE.md ("Rows") lists before it.

pub mod bounds;
pub mod clock;
pub mod digest;
pub mod error;
pub mod frame;
pub mod id;
pub mod json;
pub mod markdown;
pub mod memory;
pub mod money;
pub mod seal;
pub mod served_at;
pub mod sight;

pub mod access;
pub mod capability;
pub mod cas;
pub mod conversation;
pub mod declared;
pub mod definition;
pub mod directive;
pub mod expr;
pub mod ledger;
pub mod machine;
pub mod model;
pub mod pattern;
pub mod policy;
pub mod provider;
pub mod search;
pub mod state;
pub mod thread;
pub mod tool;
pub mod transcript;
pub mod walker;
pub mod yaml;
