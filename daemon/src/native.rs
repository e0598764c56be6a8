//! Tools that run inside the daemon.
//!
//! **Owns** the table of native tools. A native tool is still a signed item with a schema; its chain ends here instead
//! of at a process. **Never** blocks a worker, and never acts for anyone but the calling run. `reach` limits its access
//! to other runs, `files` its access to files. **Order.** A waiting call is dropped when its run must stop. Waiting
//! changes nothing, so a call repeated after a restart waits again, for the rest of its time.

mod files;
mod session;

mod control;
mod emitter;
mod fetch;
mod reach;
mod report;
mod sign;

mod budget;
mod processes;
mod resume;

mod managed;

mod wait;

mod orchestrator;

use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::machine::{ASK, TextForm};
use rye_core::model::{Failure, Object};
use serde_json::Value;

pub use self::files::FileTool;
pub use self::session::Session;
use self::session::read;
pub use self::sign::{Error as SignError, SignRequest as SignAsked};

/// Id of the tool for managed processes.
pub const MANAGED_SUBPROCESS: &str = "rye/agent/threads/managed_subprocess";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `rye/core/echo`: its parameters are its result.
    Echo,
    /// `rye/agent/threads/internal/control`: the answer of a hook.
    Control,
    /// `rye/agent/threads/internal/emitter`: a custom event of the run.
    Emitter,
    /// `rye/agent/threads/orchestrator`: waits for runs, stops them, resumes them, reports about them.
    Orchestrator,
    /// `rye/agent/threads/wait_threads`, `cancel_thread` and `resume_thread`: one operation of the orchestrator each.
    Threads(Threads),
    /// `rye/agent/threads/budget_ledger`: reports limits and spending of runs.
    BudgetLedger,
    /// `rye/core/processes/…`: operations on a single run, and the list of runs.
    Processes(Process),
    /// `rye/agent/threads/managed_subprocess`: processes that outlive the call.
    ManagedSubprocess,
    /// `rye/agent/threads/ask`: a question to a person.
    Ask,
    /// `rye/core/fetch`: reads items of the project.
    Fetch,
    /// `rye/core/sign`: signs items of the project.
    Sign,
    /// `rye/file-system/…`: files of the project.
    Files(FileTool),
}

/// An operation of the orchestrator that is a tool of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    Wait,
    Cancel,
    Resume,
}

/// A tool below `rye/core/processes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    Status,
    List,
    Cancel,
    Steps,
}

impl Tool {
    /// True if `status` in its answer is the status of a run it reports about, not its own.
    pub const fn reports_runs(self) -> bool {
        match self {
            Self::Orchestrator
            | Self::Threads(_)
            | Self::Processes(_)
            | Self::ManagedSubprocess => true,
            Self::Echo
            | Self::Control
            | Self::Emitter
            | Self::BudgetLedger
            | Self::Ask
            | Self::Fetch
            | Self::Sign
            | Self::Files(_) => false,
        }
    }
}

impl Tool {
    /// Form in which a model reads its result.
    pub const fn text_form(self) -> TextForm {
        match self {
            Self::Files(FileTool::Read) => TextForm::Lines,
            Self::Files(_) => TextForm::Output,
            Self::Fetch => TextForm::Items,
            Self::Echo
            | Self::Control
            | Self::Emitter
            | Self::Orchestrator
            | Self::Threads(_)
            | Self::BudgetLedger
            | Self::Processes(_)
            | Self::ManagedSubprocess
            | Self::Ask
            | Self::Sign => TextForm::Data,
        }
    }
}

/// True if the tool affects only the calling run, so that a call needs no capability.
pub fn is_free(item: &ItemRef) -> bool {
    item.kind == ItemKind::Tool && find(&item.id) == Some(Tool::Emitter)
}

/// The native tool of that id, if there is one.
pub fn find(id: &ItemId) -> Option<Tool> {
    match id.as_str() {
        "rye/core/echo" => Some(Tool::Echo),
        "rye/agent/threads/internal/control" => Some(Tool::Control),
        "rye/agent/threads/internal/emitter" => Some(Tool::Emitter),
        "rye/agent/threads/orchestrator" => Some(Tool::Orchestrator),
        "rye/agent/threads/wait_threads" => Some(Tool::Threads(Threads::Wait)),
        "rye/agent/threads/cancel_thread" => Some(Tool::Threads(Threads::Cancel)),
        "rye/agent/threads/resume_thread" => Some(Tool::Threads(Threads::Resume)),
        "rye/agent/threads/budget_ledger" => Some(Tool::BudgetLedger),
        MANAGED_SUBPROCESS => Some(Tool::ManagedSubprocess),
        ASK => Some(Tool::Ask),
        "rye/core/processes/status" => Some(Tool::Processes(Process::Status)),
        "rye/core/processes/list" => Some(Tool::Processes(Process::List)),
        "rye/core/processes/cancel" => Some(Tool::Processes(Process::Cancel)),
        "rye/core/processes/steps" => Some(Tool::Processes(Process::Steps)),
        "rye/core/fetch" => Some(Tool::Fetch),
        "rye/core/sign" => Some(Tool::Sign),
        "rye/file-system/read" => Some(Tool::Files(FileTool::Read)),
        "rye/file-system/write" => Some(Tool::Files(FileTool::Write)),
        "rye/file-system/edit_lines" => Some(Tool::Files(FileTool::EditLines)),
        "rye/file-system/ls" => Some(Tool::Files(FileTool::Ls)),
        "rye/file-system/glob" => Some(Tool::Files(FileTool::Glob)),
        "rye/file-system/grep" => Some(Tool::Files(FileTool::Grep)),
        _ => None,
    }
}

pub async fn call(tool: Tool, params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    match tool {
        Tool::Echo => Ok(Value::Object(params)),
        Tool::Control => control::answer(params),
        Tool::Emitter => emitter::emit(params, session).await,
        Tool::Orchestrator => orchestrator::call(params, session).await,
        Tool::Threads(Threads::Wait) => wait::wait(read(params)?, session).await,
        Tool::Threads(Threads::Cancel) => orchestrator::cancel(read(params)?, session).await,
        Tool::Threads(Threads::Resume) => resume::resume(read(params)?, session).await,
        Tool::BudgetLedger => budget::call(params, session).await,
        Tool::ManagedSubprocess => managed::call(params, session).await,
        // Its answer is its result, before anything is called.
        Tool::Ask => Err(Failure::permanent("internal", "the question was not put")),
        Tool::Processes(Process::Status) => processes::status(params, session).await,
        Tool::Processes(Process::List) => processes::list(params, session).await,
        Tool::Processes(Process::Cancel) => processes::cancel(params, session).await,
        Tool::Processes(Process::Steps) => processes::steps(params, session).await,
        Tool::Fetch => fetch::fetch(params, session).await,
        Tool::Sign => sign::sign(params, session).await,
        Tool::Files(tool) => files::call(tool, params, session).await,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Items that are planned as child runs or calls of MCP servers.
    const PLANNED_ELSEWHERE: [&str; 3] = [
        "rye/agent/threads/thread_directive",
        "rye/agent/threads/thread_tool",
        "rye/core/mcp/tools",
    ];

    #[test]
    fn shipped_native_tools_are_known_and_documented() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let tools = root.join(".ai/tools");
        let pages = ["tools", "directives"]
            .map(|page| fs::read_to_string(root.join(format!("docs/{page}.md"))).unwrap());
        let mut known = 0;
        for entry in ignore::WalkBuilder::new(&tools)
            .standard_filters(false)
            .build()
        {
            let path = entry.unwrap().into_path();
            if path.extension().is_none_or(|end| end != "yaml") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let has = |line: &str| text.lines().any(|found| found == line);
            if has("tool_type: native") && has("executor_id: null") {
                let id = path.strip_prefix(&tools).unwrap().with_extension("");
                let id = ItemId::new(id.to_str().unwrap()).unwrap();
                let is_elsewhere = PLANNED_ELSEWHERE.contains(&id.as_str());
                assert!(is_elsewhere || find(&id).is_some(), "{id}");
                let pages = pages.concat();
                let is_listed = |name: &str| pages.contains(&format!("`{name}`"));
                assert!(is_listed(id.as_str()) || is_listed(id.name()), "{id}");
                known += 1;
            }
        }
        assert!(known > 10, "{known}");
    }
}
