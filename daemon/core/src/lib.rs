//! The pure core of Rye: values, machines and codecs.
//!
//! Nothing here reads a file, a clock or an environment variable, and nothing here depends on a runtime. This crate
//! decides what the daemon does; `ryed` carries it out. Blank lines separate the rows of modules, the lowest row first.
//! A module uses only lower rows.

pub mod clock;
pub mod error;
pub mod json;
pub mod markdown;
pub mod memory;
pub mod printable;
pub mod search;
pub mod served_at;

pub mod bounds;
pub mod id;
pub mod money;
pub mod yaml;

pub mod callers;
pub mod capability;
pub mod expr;
pub mod frame;
pub mod ledger;
pub mod seal;

pub mod declared;
pub mod digest;

pub mod conversation;

pub mod model;

pub mod access;
pub mod cas;
pub mod definition;
pub mod state;
pub mod transcript;

pub mod directive;
pub mod machine;
pub mod pattern;

pub mod process;
pub mod provider;
pub mod tool;

pub mod policy;

pub mod configuration;
pub mod thread;
pub mod walker;
