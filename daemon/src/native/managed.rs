//! `rye/agent/threads/managed_subprocess`: starts, watches and stops processes that outlive the call.
//!
//! A process belongs to the run that started it, and ends with it; one that a person starts by `execute` belongs to the
//! person. [`super::reach`] limits the accessible processes.

use std::sync::Arc;
use std::time::Duration;

use rye_core::id::RunId;
use rye_core::model::event::Warning;
use rye_core::model::{Event, Failure, Object, Run, RunKind};
use rye_core::process::{LinePattern, ProcessRequest, ProcessView, WatchRequest, watch_rules};
use serde::Deserialize;
use serde_json::{Value, json};

use super::processes::{ACTIVE, seconds};
use super::reach::{self, actionable, visible};
use super::session::{Session, invalid, read};
use crate::port::{ProcessOwner, ProcessStart, Refusal};
use crate::process_log::{LineWait, LogCursor, LogPage, LogRange};
use crate::stop::CancelMode;
use rye_journal::Filter;

/// Lines in the answer of a start.
const START_LINES: usize = 20;
/// Default number of lines of `logs`.
const TAIL: usize = 50;
/// Limit of the number of lines in an answer.
const MOST_LINES: usize = 1000;
/// Default time in seconds of `wait`.
const WAIT: f64 = 600.0;

#[derive(Debug, Deserialize)]
struct Params {
    action: Action,
    handle_id: Option<String>,
    thread_id: Option<Value>,
    tail: Option<usize>,
    since: Option<String>,
    #[serde(rename = "for")]
    wait_for: Option<WaitFor>,
    pattern: Option<String>,
    timeout: Option<f64>,
    all: Option<bool>,
    must_be_ready: Option<bool>,
    #[serde(flatten)]
    request: ProcessRequest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Start,
    Stop,
    Status,
    Logs,
    List,
    Wait,
    Watch,
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WaitFor {
    Ready,
    Exit,
    Line,
}

pub(super) async fn call(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let params: Params = read(params)?;
    if params.thread_id.is_some() {
        let message =
            "`thread_id` of managed_subprocess is ignored: a process belongs to the run that calls"
                .to_owned();
        (session.note)(Event::from(Warning {
            node: None,
            message,
        }));
    }
    let handle = || {
        let named = params.handle_id.as_deref();
        named.ok_or_else(|| invalid("`handle_id` names the process; `action: list` lists them"))
    };
    match params.action {
        Action::Start => {
            let must_be_ready = params.must_be_ready.unwrap_or_default();
            start(params.request, must_be_ready, session).await
        }
        Action::List => list(params.all.unwrap_or_default(), session).await,
        Action::Status => {
            let run = process(session, handle()?).await?;
            let mut document = answer(&run, session);
            if let Some(figures) = session.live_processes.figures(&run.id).await {
                figures.add_to(&mut document);
            }
            Ok(document)
        }
        Action::Stop => stop(handle()?, session).await,
        Action::Restart => restart(handle()?, session).await,
        Action::Logs => logs(handle()?, &params, session).await,
        Action::Wait => wait(handle()?, &params, session).await,
        Action::Watch => {
            let handle = handle()?.to_owned();
            let rules = params.request.watch.unwrap_or_default();
            watch(&handle, rules, session).await
        }
    }
}

/// The managed process `handle`, if the calling run may see it.
async fn process(session: &Session<'_>, handle: &str) -> Result<Arc<Run>, Failure> {
    only_processes(visible(session, handle).await?)
}

fn only_processes(run: Arc<Run>) -> Result<Arc<Run>, Failure> {
    if run.spec.kind() == RunKind::Process {
        return Ok(run);
    }
    Err(invalid(format!(
        "`handle_id`: the run `{}` is no managed process",
        run.id
    )))
}

fn answer(run: &Run, session: &Session<'_>) -> Value {
    let view = ProcessView::of(run, session.clock.now());
    let mut document = view.map_or(Value::Null, |view| view.to_json());
    document["success"] = json!(true);
    document
}

async fn start(
    request: ProcessRequest,
    must_be_ready: bool,
    session: &Session<'_>,
) -> Result<Value, Failure> {
    let process = request.checked().map_err(invalid)?;
    let owner = owner(session).await?;
    if !process.watch.is_empty() {
        require_thread(&owner)?;
    }
    let started = session.runs.start_process(ProcessStart { process, owner });
    let (run, exists) = started.await.map_err(Refusal::of_run)?;
    let started = session.runs.process_started(run.id.clone());
    let run = started.await.map_err(Refusal::of_run)?;
    if must_be_ready && !is_ready(&run) {
        return not_ready(&run, session).await;
    }
    let failure = run.failure();
    let was_executed = run.process().is_some_and(|state| state.last_end.is_some());
    if let Some(failure) = failure.clone().filter(|_| !was_executed) {
        return Err(failure);
    }
    let mut document = answer(&run, session);
    if let Some(failure) = failure {
        document["success"] = json!(false);
        document["error"] = json!(failure.message);
    }
    if exists {
        document["exists"] = json!(true);
    }
    let page = session.process_logs.of(&run.id);
    let page = page.read(LogRange::Last(START_LINES)).await;
    document["tail"] = tail(page)?["lines"].take();
    Ok(document)
}

fn is_ready(run: &Run) -> bool {
    let state = run.process();
    state.is_some_and(|state| state.ready_since().is_some())
}

/// Stops the process `run`, which had to be ready and is not.
async fn not_ready(run: &Run, session: &Session<'_>) -> Result<Value, Failure> {
    let page = session.process_logs.of(&run.id);
    let page = page.read(LogRange::Last(START_LINES)).await;
    let mut document = answer(run, session);
    let why = ProcessView::of(run, session.clock.now()).and_then(|view| view.why);
    let why = match (run.failure(), why) {
        (Some(failure), _) => failure.message,
        (None, Some(why)) => why.to_string(),
        (None, None) => "it is not ready in time".to_owned(),
    };
    if !run.status().is_terminal() {
        stop(run.id.as_str(), session).await?;
    }
    document["success"] = json!(false);
    document["code"] = json!("service_not_ready");
    document["error"] = json!(format!("the process is not ready: {why}"));
    document["tail"] = tail(page)?["lines"].take();
    Ok(document)
}

/// Returns the owner of a process that the calling run starts: itself, or for a tool run that for which it acts, a run or
/// a person. The process has the authority of the calling run.
async fn owner(session: &Session<'_>) -> Result<ProcessOwner, Failure> {
    let layers = session.spec.layers.clone();
    let mut run = session.runs.get(session.run.clone()).await;
    loop {
        let record = run.map_err(Refusal::of_run)?;
        let is_tool = record.spec.kind() == RunKind::Tool;
        let Some(parent) = &record.spec.parent else {
            let directory = record.spec.project.clone().into();
            return Ok(if is_tool {
                ProcessOwner::Person { layers, directory }
            } else {
                ProcessOwner::Run { record, layers }
            });
        };
        if !is_tool {
            return Ok(ProcessOwner::Run { record, layers });
        }
        run = session.runs.get(parent.clone()).await;
    }
}

/// Fails unless the owner of a process is a thread, to whose model lines can be a message.
fn require_thread(owner: &ProcessOwner) -> Result<&RunId, Failure> {
    match owner {
        ProcessOwner::Run { record, .. } if record.thread().is_some() => Ok(&record.id),
        ProcessOwner::Run { .. } | ProcessOwner::Person { .. } => {
            let text = "`watch` sends lines to the model of the thread that owns the process, and its owner is no thread; \
                        `action: wait` with `for: line` waits for one";
            Err(Failure::permanent("watch_needs_thread", text))
        }
    }
}

async fn watch(
    handle: &str,
    rules: Vec<WatchRequest>,
    session: &Session<'_>,
) -> Result<Value, Failure> {
    let rules = watch_rules(rules).map_err(invalid)?;
    if rules.is_empty() {
        return Err(invalid(
            "`watch` is missing: a list of {id, match, once, max_per_minute}",
        ));
    }
    let run = only_processes(actionable(session, handle).await?)?;
    let owner = owner(session).await?;
    let thread = require_thread(&owner)?;
    if run.spec.parent.as_ref() != Some(thread) {
        let text = format!("`{handle}` belongs to another run; its owner alone sets its `watch`");
        return Err(Failure::permanent("permission_denied", text));
    }
    let attempts = run.process().map_or(0, |state| state.attempts);
    let end = session.process_logs.of(&run.id).end();
    let from = end.max(LogCursor::at_attempt(attempts));
    let watched = session.runs.watch_process(run.id.clone(), rules, from);
    let run = watched.await.map_err(Refusal::of_run)?;
    Ok(answer(&run, session))
}

async fn list(all: bool, session: &Session<'_>) -> Result<Value, Failure> {
    let filter = Filter {
        statuses: if all { Vec::new() } else { ACTIVE.to_vec() },
        kind: Some(RunKind::Process),
        ..Filter::default()
    };
    let filter = filter.visible_to(reach::caller(session));
    let runs = session.runs.list(filter).await.map_err(Refusal::of_run)?;
    let mut processes = Vec::new();
    for run in runs {
        // A run that can no longer be read is left out, as it would be a moment later.
        if let Ok(run) = session.runs.get(run.id.clone()).await {
            let view = ProcessView::of(&run, session.clock.now());
            processes.extend(view.map(|view| view.to_json()));
        }
    }
    Ok(json!({"success": true, "count": processes.len(), "processes": processes}))
}

async fn stop(handle: &str, session: &Session<'_>) -> Result<Value, Failure> {
    let mut run = only_processes(actionable(session, handle).await?)?;
    if !run.status().is_terminal() {
        let cause = format!("the run {}", session.run);
        let asked = session
            .runs
            .cancel(run.id.clone(), cause, CancelMode::Graceful)
            .await;
        run = match (asked, session.runs.settled(run.id.clone()).await) {
            (_, Ok(run)) => run,
            (Ok(_), Err(refused)) | (Err(refused), Err(_)) => return Err(refused.of_run()),
        };
    }
    let mut document = answer(&run, session);
    document["stopped"] = json!(run.status().is_terminal());
    Ok(document)
}

async fn restart(handle: &str, session: &Session<'_>) -> Result<Value, Failure> {
    let run = only_processes(actionable(session, handle).await?)?;
    let by = format!("the run {}", session.run);
    let restarted = session.runs.restart_process(run.id.clone(), by);
    let run = restarted.await.map_err(Refusal::of_run)?;
    Ok(answer(&run, session))
}

/// Reads a position in the output of `run`: a cursor, or `attempt` for the first line of the attempt in flight.
fn cursor(since: Option<&str>, run: &Run) -> Result<Option<LogCursor>, Failure> {
    let read = |text: &str| {
        if text == "attempt" {
            let attempts = run.process().map_or(0, |state| state.attempts);
            return Ok(LogCursor::at_attempt(attempts));
        }
        LogCursor::parse(text).ok_or_else(|| {
            invalid(format!(
                "`since` is the `cursor` of an earlier answer, not {text:?}"
            ))
        })
    };
    since.map(read).transpose()
}

async fn logs(handle: &str, params: &Params, session: &Session<'_>) -> Result<Value, Failure> {
    let run = process(session, handle).await?;
    let most = params.tail.unwrap_or(TAIL).min(MOST_LINES);
    let wanted = match cursor(params.since.as_deref(), &run)? {
        Some(since) => LogRange::After(since, most),
        None => LogRange::Last(most),
    };
    let mut document = tail(session.process_logs.of(&run.id).read(wanted).await)?;
    document["success"] = json!(true);
    document["handle_id"] = json!(run.id);
    Ok(document)
}

/// The lines of an answer, oldest first.
fn tail(page: std::io::Result<LogPage>) -> Result<Value, Failure> {
    let page = page.map_err(|error| {
        Failure::permanent("unavailable", format!("the output cannot be read: {error}"))
    })?;
    let line = |line: &crate::process_log::OutputLine| json!({"at": line.at.to_string(), "stream": line.stream.as_str(), "text": line.text});
    let lines: Vec<Value> = page.lines.iter().map(line).collect();
    let mut document = json!({"lines": lines, "cursor": page.next.to_string()});
    if page.gap > 0 {
        document["gap"] = json!({"bytes": page.gap});
    }
    Ok(document)
}

/// Waits as requested. A message about lines of the process to the calling thread ends it.
async fn wait(handle: &str, params: &Params, session: &Session<'_>) -> Result<Value, Failure> {
    let run = process(session, handle).await?;
    let lines_queued = async {
        if run.spec.parent.as_ref() != Some(session.run) {
            return std::future::pending().await;
        }
        session.runs.lines_queued(run.id.clone()).await
    };
    tokio::select! {
        biased;
        waited = wait_for(&run, params, session) => waited,
        queued = lines_queued => {
            queued.map_err(Refusal::of_run)?;
            let mut document = answer(&*process(session, handle).await?, session);
            document["watched"] = json!(true);
            Ok(document)
        }
    }
}

async fn wait_for(
    run: &Arc<Run>,
    params: &Params,
    session: &Session<'_>,
) -> Result<Value, Failure> {
    let handle = run.id.as_str();
    let most = seconds("timeout", params.timeout.unwrap_or(WAIT))?;
    match params.wait_for {
        None => Err(invalid("`for` is ready, exit or line")),
        Some(WaitFor::Ready) => {
            let ready = session.runs.process_ready(run.id.clone(), most);
            let run = ready.await.map_err(Refusal::of_run)?;
            let what = "the process is not ready";
            Ok(waited(&run, is_ready(&run), what, session))
        }
        Some(WaitFor::Exit) => {
            let settled = session.runs.settled(run.id.clone());
            let run = match tokio::time::timeout(most, settled).await {
                Ok(settled) => settled.map_err(Refusal::of_run)?,
                Err(_elapsed) => process(session, handle).await?,
            };
            let has_ended = run.status().is_terminal();
            Ok(waited(
                &run,
                has_ended,
                "the process has not ended",
                session,
            ))
        }
        Some(WaitFor::Line) => {
            let pattern = params.pattern.as_deref().unwrap_or_default();
            let pattern =
                LinePattern::parse(pattern).map_err(|why| invalid(format!("`pattern` {why}")))?;
            let since = cursor(params.since.as_deref(), run)?;
            wait_for_line(run, (&pattern, since, most), session).await
        }
    }
}

/// The answer of a wait, which was fulfilled or not.
fn waited(run: &Run, fulfilled: bool, unless: &str, session: &Session<'_>) -> Value {
    let mut document = answer(run, session);
    document["success"] = json!(fulfilled);
    if !fulfilled {
        let (code, text) = match ProcessView::of(run, session.clock.now()) {
            Some(view) if run.status().is_terminal() => {
                let end = view
                    .reason
                    .unwrap_or_else(|| view.status.as_str().to_owned());
                (
                    "process_ended",
                    format!("{unless}, and the process has ended: {end}"),
                )
            }
            Some(_) | None => ("wait_timeout", format!("{unless} in the time of the wait")),
        };
        document["code"] = json!(code);
        document["error"] = json!(text);
    }
    document
}

async fn wait_for_line(
    run: &Arc<Run>,
    (pattern, since, most): (&LinePattern, Option<LogCursor>, Duration),
    session: &Session<'_>,
) -> Result<Value, Failure> {
    let log = session.process_logs.of(&run.id);
    let ended = async {
        // A run that cannot be read prints nothing more, either.
        drop(session.runs.settled(run.id.clone()).await);
    };
    let found = log.wait_for_line(pattern, since, ended);
    let found = tokio::time::timeout(most, found).await;
    let run = process(session, run.id.as_str()).await?;
    let found = match found {
        Ok(found) => found.map_err(|error| {
            Failure::permanent("unavailable", format!("the output cannot be read: {error}"))
        })?,
        Err(_elapsed) => LineWait::Ended,
    };
    let is_found = matches!(found, LineWait::Line(_));
    let mut document = waited(&run, is_found, "no line matches", session);
    if let LineWait::Line(line) = found {
        document["line"] = json!(line.text);
        document["stream"] = json!(line.stream.as_str());
        document["at"] = json!(line.at.to_string());
        document["cursor"] = json!(line.cursor().to_string());
        document["groups"] = Value::Object(pattern.groups(&line.text));
    }
    Ok(document)
}
