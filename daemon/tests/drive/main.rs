//! The driver over the real journal, with machines and kinds of the tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue says where")]

mod attempts;
mod bare;
mod line;
mod payers;
