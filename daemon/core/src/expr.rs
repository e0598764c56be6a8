//! Templates and conditions: the expressions by which a graph reads values.
//!
//! **Owns** `${path}` interpolation, `{input:name}` references and the condition language of edges. Both read values by
//! [`Scope`] name and path. **Never** changes a value, expands an inserted value, or fails a condition: different types
//! do not match and leave a note.
//!
//! ```text
//! ${state.a}                  the value, with its type, if it is the whole text
//! n=${state.a}                mixed text: strings bare, anything else as JSON, null and missing as nothing
//! ${state.a || inputs.a}      the first that is not null; after `||` a literal, too: 5 'x' true null [] {}
//! ${state.list.0.name}        also state.list[0].name; negative indices count from the end
//! $${f} $${f%.txt}            a literal `${f}`, `${f%.txt}`, if no known name follows `$${`: for shells
//! $${state.a}                 on a known name: a dollar and the value
//! ${state.a | json}           pipes: json from_json length keys upper lower trim lines first last sum unique, and with a path or a
//!                             literal split(s) join(s) add(n) append(v) default(v); null passes through all but `default`
//! {input:a} {input:a?} {input:a:else} {input:a|else}    always text
//! ```
//!
//! **Failure.** [`check`] finds every fault of a template before a graph runs, with three exceptions that are an
//! [`Error`] of the step: a pipe that receives a value of the wrong type, a value beyond the [bounds](crate::bounds),
//! and an expression on a name that the scope lacks. The reader of graphs checks names before a run too. Remarks that
//! need no action, such as a path that does not resolve below a known name, are pushed to `notes`.

mod fault;
mod value;
mod vars;

mod scope;

mod path;

mod pipe;

mod expression;

mod template;

mod interpolate;

mod condition;

pub use self::condition::Condition;
#[cfg(test)]
pub(crate) use self::condition::LEAF_KEYS;
pub(crate) use self::condition::{COMBINATORS, Known, OPS, Patterns};
pub use self::fault::{Error, Severity, TemplateFault};
pub use self::interpolate::{check, interpolate, references, strip_nulls};
pub(crate) use self::interpolate::{each_read, kind_of_template};
pub(crate) use self::path::is_name;
pub use self::path::{did_you_mean, nearest};
pub use self::scope::{Bound, IsRoot, Names, Object, Scope};
pub use self::value::{BadJson, parse_json};
pub(crate) use self::value::{Kind, kind_of, text_of};
pub use self::vars::Vars;

#[cfg(test)]
mod tests;
