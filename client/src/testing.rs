//! Tests of tools: reads the cases of `*.test.yaml` files and runs each in a project of its own.
//!
//! **Order.** All files are read before anything runs: one that is wrong runs nothing. **Failure.** The outcome of a case is in its
//! [`Report`]; an error is something that keeps all cases from running.

mod file;

mod compare;
mod source;
mod stage;

mod call;
mod report;

mod case;

pub(crate) use self::case::Rig;
pub(crate) use self::file::schema;
pub(crate) use self::report::{Report, count, document, junit};
pub(crate) use self::source::{Numbered, Sources};
pub(crate) use self::stage::{Signer, Stage};
