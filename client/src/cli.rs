//! Arguments of `ryectl`, and only their parsing. The doc comments are the manual.

mod global;
mod item_name;
mod run_name;
mod values;

mod approvals;
mod capability;
mod daemon;
mod events;
mod graph;
mod items;
mod keys;
mod lock;
mod logs;
mod mcp;
mod new;
mod objects;
mod ps;
mod stub;
mod test;
mod transcript;

mod runs;
mod thread;

mod budget;
mod ending;
mod proc;

mod verb;

mod help;
mod named;

pub(crate) use self::approvals::{Approvals, Approve, Deny};
pub(crate) use self::budget::{BudgetVerb, RaiseBudget};
pub(crate) use self::capability::Can;
pub(crate) use self::daemon::{DaemonLogs, DaemonVerb};
pub(crate) use self::ending::{Kill, Prune, Rm};
pub(crate) use self::events::Events;
pub(crate) use self::global::Global;
pub(crate) use self::graph::{Attach, Diagram, GraphVerb, Run, Show, Staying, Step, Watch};
pub(crate) use self::help::{command, help, usage};
pub(crate) use self::item_name::ItemName;
pub(crate) use self::items::{Completions, Execute, Fetch, Ls};
pub(crate) use self::keys::{KeyVerb, Targets};
pub(crate) use self::lock::LockVerb;
pub(crate) use self::logs::Logs;
pub(crate) use self::mcp::{Import, McpVerb};
pub(crate) use self::new::NewVerb;
pub(crate) use self::objects::{CacheVerb, Drop, ObjectsVerb};
pub(crate) use self::proc::{Condition, ProcVerb, ProcessLogs, StartProcess, WaitProcess};
pub(crate) use self::ps::Ps;
pub(crate) use self::run_name::RunName;
pub(crate) use self::runs::{Resume, Wait};
pub(crate) use self::stub::StubVerb;
pub(crate) use self::test::Test;
pub(crate) use self::thread::{Say, ThreadShow, ThreadVerb};
pub(crate) use self::transcript::{Transcript, TranscriptSource};
pub(crate) use self::values::{Answer, Limit};
pub(crate) use self::verb::{Cli, FileKind, Verb};

#[cfg(test)]
mod tests;
