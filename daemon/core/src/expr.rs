//! Templates and conditions: how a graph reads values.
//!
//! **Owns** `${path}` interpolation, `{input:name}` references and the condition language of edges. Both read values
//! by [`Scope`] name and path; neither changes anything.
//! **Never** expands a value that was inserted, and never fails a condition: unlike types do not match and leave a
//! note.
//!
//! ```text
//! ${state.a}                  the value, with its type, if it is the whole text
//! n=${state.a}                mixed text: strings bare, anything else as JSON, null and missing as nothing
//! ${state.a || inputs.a}      the first that is not null; behind `||` a literal, too: 5 'x' true null [] {}
//! ${state.list.0.name}        also state.list[0].name; negative indices count from the end
//! $${f} $${f%.txt}            a literal `${f}`, `${f%.txt}`: what follows `$${` begins with no known name, as the variables of a shell;
//! $${state.a}                 on a known name a dollar and the value
//! ${state.a | json}           pipes: json from_json length keys upper lower trim lines first last sum unique, and with a path or a
//!                             literal split(s) join(s) add(n) append(v) default(v); null passes through all but `default`
//! {input:a} {input:a?} {input:a:else} {input:a|else}    always text
//! ```
//!
//! **Failure.** Whatever can be wrong about a template is found by [`check`] before a graph runs, except a pipe that
//! gets a value it cannot take, and a value beyond the [bounds](crate::bounds): those are an [`Error`] of the step. So is an expression that begins
//! with a name that its scope lacks; the reader of graphs looks at the same before a run. Things a person should
//! hear of but nobody has to act on (a path that leads nowhere below a known name) are pushed to `notes`.

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
pub use self::fault::{Error, Fault, Severity};
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
