//! The gRPC contract of Rye, `rye.v1`.
//!
//! `proto/rye/v1/rye.proto` is the source; the Rust code below `gen/` is generated from it and committed, so that a
//! build needs no `protoc`. The test `generated` compares the two; `UPDATE_GENERATED=1` makes it rewrite them.
//!
//! [`convert`] converts between messages and values of the core. Messages that `ryectl --json` prints implement
//! `Serialize`; their JSON is a stable interface for scripts.

pub mod convert;
mod json;

/// Messages and services of package `rye.v1`.
#[expect(clippy::all, clippy::pedantic, reason = "generated code")]
pub mod v1 {
    include!("gen/rye.v1.rs");
}

/// Descriptors of every file of the contract, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/rye.v1.bin");
