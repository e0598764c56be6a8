//! Maps of declared files: closed lists of keys, and the types of values.
//!
//! **Owns** the tables of keys with the JSON Schemas for editors, the check of keys with its suggestions, and the reading of one value by its
//! key. A reader implements [`Fields`] for its maps and says in its own form where a fault is. **Never** knows a file or a position.
//! **Failure.** The first fault ends the reading of a value. A null counts as absent.

mod fields;
mod finding;
pub mod types;

mod keys;

mod read;

pub use self::fields::Fields;
pub use self::finding::{Finding, errors};
pub(crate) use self::keys::{ITEM, OF_THE_ORIGINAL};
pub use self::keys::{Key, Keys, is_free, is_variable, unknown_key, unknown_keys};
pub(crate) use self::read::{At, Reader, TOO_COMPLEX, Zero, brief, is_inert, shorten};

#[cfg(test)]
mod tests;
