//! The pure core of Rye: values, machines and codecs.
//!
//! Nothing here reads a file, a clock or an environment variable, and nothing here knows a runtime. What the
//! daemon does is decided in this crate and carried out in `ryed`. Modules stand in the order in which they may
//! use each other (ARCHITECTURE.md, "Rows").

pub mod bounds;
pub mod clock;
pub mod error;
pub mod frame;
pub mod id;
pub mod money;
pub mod seal;

pub mod access;
pub mod capability;
pub mod cas;
pub mod definition;
pub mod expr;
pub mod machine;
pub mod model;
pub mod policy;
pub mod state;
pub mod tool;
pub mod walker;
pub mod yaml;
