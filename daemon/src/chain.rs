//! From an item to what its primitive will do.
//!
//! **Owns** the walk tool → runtime → primitive ([`resolve`]), its rules, and the making of a [`Plan`] ([`plan()`]).
//! **Never** runs anything, and never reads a file again that has been verified: a plan holds the verified bytes.
//!
//! ```text
//! item ──executor_id──► runtime ──executor_id──► rye/core/primitives/execute   ⇒ a process
//!   ├─ rye/core/primitives/http                                                ⇒ a call of another host
//!   ├─ rye/core/runtimes/mcp/stdio and …/http                                  ⇒ a call of a server, which is an item as well
//!   └─ rye/core/echo and other native tools, executor_id: null                 ⇒ a call inside the daemon
//!   ├─ rye/core/runtimes/state-graph/runtime                                   ⇒ a graph run
//!   └─ rye/agent/threads/thread_directive, thread_tool                         ⇒ a thread
//! ```
//!
//! **Rules.** At most ten elements, no element twice; an element rests only on its own space or a lower one (held by
//! [`Library::resolve`]), takes the versions its executor takes, and gives the data its executor asks for. Each key of a file is one that is
//! read; any other is refused with its line. What a tool is to be given of the configuration is looked up with it. Caller parameters are data: they travel as JSON on stdin, or into slots the runtime's own text
//! names, and are never read as templates. **Failure.** Every refusal names the item, and the file and the fix
//! where one file is to blame.

mod error;
mod origin;
mod places;
mod terminal;

mod fields;
mod process_plan;

mod environment;
mod given;
mod lock;
mod rules;

mod anchor;

mod verified;

mod comparison;
mod interpreter;

mod template;

mod binary;
mod request;
mod shell;

mod server;

mod plan;
mod walk;

mod draft;

pub use self::draft::{Draft, Standing, draft};
pub use self::environment::{Offer, dot_env};
pub use self::error::Error;
pub use self::origin::Origin;
pub use self::plan::{NativeCall, Plan, plan};
pub use self::process_plan::{Answer, ProcessPlan, tag};
pub use self::request::{Backoff, RequestPlan};
pub use self::terminal::{STATE_GRAPH, Terminal, Way};
pub use self::verified::Chain;
pub use self::walk::{Trace, resolve, starts_run};

#[cfg(test)]
mod tests;
