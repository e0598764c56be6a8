//! Readers of `daemon/core/tests/mutated`, for the targets.

#[path = "../../../daemon/core/tests/mutated/readers.rs"]
mod readers;

pub use readers::*;
