//! Tools that carry out actions on items that they do not name.

use crate::capability::Primary;

/// The tool that fetches. A search for items names no item.
pub const FETCH: &str = "rye/core/fetch";

/// The tool that signs. A signature of many items names none.
pub const SIGN: &str = "rye/core/sign";

/// Returns the tool that acts on items that it does not name, and the parameter by which it finds them.
pub(super) const fn of_many(primary: Primary) -> Option<(&'static str, &'static str)> {
    match primary {
        Primary::Execute => None,
        Primary::Fetch => Some((FETCH, "query")),
        Primary::Sign => Some((SIGN, "glob")),
    }
}
