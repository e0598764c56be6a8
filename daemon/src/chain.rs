//! The chain of an item, and the plan of a call.
//!
//! **Owns** the walk tool → runtime → primitive ([`resolve`]), its rules, and the construction of a [`Plan`]
//! ([`plan()`]). **Never** runs anything, and never reads a verified file again: a plan holds the verified bytes.
//!
//! ```text
//! item ──executor_id──► runtime ──executor_id──► rye/core/primitives/execute   ⇒ a process
//!   ├─ rye/core/primitives/http                                                ⇒ a call of another host
//!   ├─ rye/core/runtimes/mcp/stdio and …/http                                  ⇒ a call of a server (also an item)
//!   └─ rye/core/echo and other native tools, executor_id: null                 ⇒ a call inside the daemon
//!   ├─ rye/core/runtimes/state-graph/runtime                                   ⇒ a graph run
//!   └─ rye/agent/threads/thread_directive, thread_tool                         ⇒ a thread
//! ```
//!
//! **Rules.** A chain has at most ten elements, each of them once. The executor of an element is in the same space or a
//! lower one, which [`Library::resolve`](rye_item::Library::resolve) enforces. An executor may limit the versions of the element it runs, and may
//! require outputs of it. A key that nothing reads is refused with its line. The configuration that a tool requests is
//! read with its chain. Parameters of callers are data: they are sent as JSON on stdin, or fill slots named in the text
//! of the runtime. They are never read as templates. **Failure.** Each refusal names the item. If one file is at fault,
//! it names the file and the fix.

mod error;
mod origin;
mod template_paths;
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
mod confinement;
mod interpreter;

mod template;

mod binary;
mod request;
mod shell;

mod managed;
mod server;

mod plan;
mod walk;

mod draft;

pub use self::confinement::{check_isolation, requested_resources};
pub use self::draft::{Draft, LockState, draft};
pub use self::environment::{InheritedVariables, dot_env};
pub use self::error::Error;
pub use self::managed::{
    KeptPlan, ManagedError, ManagedPlan, ProbePlan, ServerPlan, kept, managed, mcp_server,
};
pub use self::origin::CallOrigin;
pub use self::plan::{NativeCall, Plan, check_settings, plan};
pub use self::process_plan::{CallbackAuthority, OutputForm, ProcessPlan, tag};
pub use self::request::{Backoff, RequestPlan};
pub use self::terminal::{McpTransport, STATE_GRAPH, Terminal};
pub use self::verified::Chain;
pub use self::walk::{Trace, resolve, starts_run};

#[cfg(test)]
mod tests;
