//! Tools that carry out actions on items that they do not name.

use crate::capability::Primary;

/// The tool that fetches: where items are looked for, no item is named.
pub const FETCH: &str = "rye/core/fetch";

/// The tool that signs: where many items are signed, none is named.
pub const SIGN: &str = "rye/core/sign";

/// The tool that carries out an action on items that it does not name, and the parameter by which it finds them.
pub(super) const fn of_many(primary: Primary) -> Option<(&'static str, &'static str)> {
    match primary {
        Primary::Execute => None,
        Primary::Fetch => Some((FETCH, "query")),
        Primary::Sign => Some((SIGN, "glob")),
    }
}
