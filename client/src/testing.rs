//! Tests of tools: reads the cases of `*.test.yaml` files and runs each in a project of its own.
//!
//! **Order.** All files are read before any case runs, and an invalid file prevents all cases. **Failure.** The outcome
//! of a case is in its [`Report`]; an error prevents all cases.

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
