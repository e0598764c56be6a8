//! Requests to a run at every point of its life, for every kind of run: over the real journal, with effects and a clock
//! that the test controls.
//!
//! Each cell brings a run to its point, makes the request, lets everything continue, and verifies the rules of
//! [`Cell::check`]. Impossible cells state their reason ([`cells`]). A cell does not depend on durations: it waits for
//! events, which are always the same. With `RYE_CELL` set, only cells run whose description contains it:
//! `RYE_CELL="place: Hooks"`.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not named is like most of them"
)]

mod cells;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rye_core::id::{Name, RunId};
use rye_core::model::event::RunKilled;
use rye_core::model::graph::{At, StepWork};
use rye_core::model::{
    ApprovalAnswer, Event, Kill, KillReceipt, ProcessStage, Run, RunEvent, Status, Verdict,
};
use rye_core::process::ProcessRequest;

use self::cells::{Cell, CellRequest, Kind, RunPhase, cells};
use super::rig::{Daemon, PATIENCE, Rig, caller};
use super::scripted_effects::{Act, ScriptedEffects, is_node};
use crate::port::{ProcessOwner, ProcessStart, Resume};
use crate::services::AttemptCtx;
use rye_host::task::Group;
use rye_journal::{Change, Filter, Storage, Syncs};

/// Number of cells that run concurrently.
const AT_ONCE: usize = 12;

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("{what} does not come"))
}

const ECHO: &str = "{item_id: rye/core/echo, params: {n: 1}}";
const LEAF: &str = "config: {start: a, nodes: {a: {action: ECHO, next: b}, b: {action: ECHO}}}\n";
const ABOVE: &str = "config: {start: p, nodes: {p: {action: {item_id: t/run}}}}\n";

impl Cell {
    /// Number of ancestors of the run under test.
    fn depth(self) -> u32 {
        u32::from(self.kind == Kind::Child)
    }

    fn item(self) -> &'static str {
        match self.kind {
            Kind::Tool | Kind::Process => "rye/core/echo",
            Kind::Child => "t/above",
            Kind::Graph | Kind::Foreach => "t/run",
        }
    }

    /// Graph of the run under test.
    fn graph(self) -> String {
        let action = match self.place {
            RunPhase::ChildRuns | RunPhase::ChildSuspended => "{item_id: t/leaf}",
            RunPhase::Planned
            | RunPhase::Committed
            | RunPhase::Running
            | RunPhase::Ended
            | RunPhase::Backoff
            | RunPhase::Hooks
            | RunPhase::Ending
            | RunPhase::Waiting
            | RunPhase::AwaitingApproval => ECHO,
        };
        let hooks = match self.place {
            RunPhase::Hooks => format!("hooks: [{{event: after_step, action: {ECHO}}}], "),
            RunPhase::Ending => format!("hooks: [{{event: graph_completed, action: {ECHO}}}], "),
            _ => String::new(),
        };
        let retry = match self.place {
            RunPhase::Backoff => "retry: {max: 3, backoff: fixed, delay: 60}, ",
            // An at-most-once call is not retried.
            _ if self.kind == Kind::Graph => "effect: at_most_once, ",
            _ => "",
        };
        let work = match self.kind {
            Kind::Foreach => {
                format!("type: foreach, over: [1, 2, 3], as: i, parallel: true, action: {action}")
            }
            Kind::Graph | Kind::Tool | Kind::Child | Kind::Process => format!("action: {action}"),
        };
        let first = match self.place {
            RunPhase::Waiting => "type: wait, for: 30".to_owned(),
            RunPhase::AwaitingApproval => "type: approval, message: Now?".to_owned(),
            _ => format!("{retry}{work}"),
        };
        format!(
            "config: {{start: a, {hooks}nodes: {{a: {{{first}, next: b}}, b: {{action: {ECHO}}}}}}}\n"
        )
    }

    fn project(self, rig: &Rig) -> PathBuf {
        let leaf = LEAF.replace("ECHO", ECHO);
        rig.project(
            "p",
            &[("run", &self.graph()), ("leaf", &leaf), ("above", ABOVE)],
        )
    }

    fn stage(self) -> Arc<ScriptedEffects> {
        let depth = self.depth();
        ScriptedEffects::new(move |cx: &AttemptCtx, earlier: usize| {
            let here = cx.spec.depth == depth;
            let below = cx.spec.depth == depth + 1;
            match self.place {
                RunPhase::Running if here && is_node(cx) && cx.step == 1 => Act::Hold,
                RunPhase::Backoff if here && is_node(cx) && earlier == 0 && cx.step == 1 => {
                    Act::Fail
                }
                RunPhase::Hooks | RunPhase::Ending if here && !is_node(cx) => Act::Hold,
                RunPhase::ChildRuns | RunPhase::ChildSuspended if below && cx.step == 1 => {
                    Act::Hold
                }
                _ => Act::Answer,
            }
        })
    }

    /// Number of attempts that are held at the point.
    fn held(self) -> usize {
        match (self.kind, self.place) {
            (Kind::Foreach, RunPhase::Running | RunPhase::ChildRuns | RunPhase::ChildSuspended) => {
                3
            }
            (
                _,
                RunPhase::Planned
                | RunPhase::Committed
                | RunPhase::Ended
                | RunPhase::Backoff
                | RunPhase::Waiting
                | RunPhase::AwaitingApproval,
            ) => 0,
            _ => 1,
        }
    }

    /// Starts the run and brings it to its point.
    async fn reach(self, rig: &Rig, stage: &ScriptedEffects, daemon: &Daemon) -> CellRuns {
        let depth = self.depth();
        let gate = match (self.place, self.kind) {
            (RunPhase::Planned | RunPhase::Committed, Kind::Process) => Some("process_launched"),
            (RunPhase::Planned | RunPhase::Committed, _) => Some("step_started"),
            (RunPhase::Ended, Kind::Process) => Some("process_ended"),
            (RunPhase::Ended, Kind::Tool) => Some("tool_completed"),
            (RunPhase::Ended, Kind::Foreach) => Some("item_completed"),
            (RunPhase::Ended, _) => Some("step_completed"),
            _ => None,
        };
        let hooks = &daemon.faults.inner;
        hooks.hold(gate.map(|name| (name, depth)));
        let project = self.project(rig);
        let root = match self.kind {
            Kind::Process => process(daemon, &project).await,
            Kind::Graph | Kind::Foreach | Kind::Tool | Kind::Child => {
                daemon.run(&project, self.item()).await
            }
        };
        if gate.is_some() {
            let mut held = hooks.held.subscribe();
            drop(held.wait_for(|held| *held == 1).await);
        }
        stage.until(|seen| seen.held == self.held()).await;
        let run = if self.kind == Kind::Child {
            let parent = until(daemon, &root, |run| child_of(daemon, &run.id).is_some()).await;
            child_of(daemon, &parent.id).unwrap()
        } else {
            root.clone()
        };
        match self.place {
            RunPhase::Committed => {
                hooks.sync(Syncs::Hangs);
                hooks.hold(None);
                until(daemon, &run, |run| run.attempts().next().is_some()).await;
            }
            RunPhase::Backoff => {
                let waits = |run: &Run| {
                    let at = run.graph().map(|graph| &graph.at);
                    let items = at.and_then(At::items);
                    let paused = items.is_some_and(|items| items.retrying.len() == 3);
                    let process = run.process().map(|process| &process.stage);
                    paused
                        || matches!(at, Some(At::Backoff { .. }))
                        || matches!(process, Some(ProcessStage::Paused { .. }))
                };
                until(daemon, &run, waits).await;
            }
            RunPhase::Waiting => {
                let waits = |run: &Run| {
                    let step = run.graph().and_then(|graph| graph.at.step());
                    step.is_some_and(|step| matches!(step.work, StepWork::Waits(_)))
                };
                until(daemon, &run, waits).await;
            }
            RunPhase::AwaitingApproval => {
                until(daemon, &run, |run| run.suspension().is_some()).await;
            }
            RunPhase::ChildSuspended => {
                let mut asked = Vec::new();
                for child in daemon.journal.children(&run) {
                    let supervisor = daemon.supervisor.clone();
                    asked.push(aside(async move {
                        supervisor.suspend(&child.id).await.unwrap();
                    }));
                }
                settle().await;
                stage.release();
                until(daemon, &run, |run| run.suspension().is_some()).await;
                stage.hold();
            }
            _ => {}
        }
        CellRuns { root, run }
    }
}

struct CellRuns {
    root: RunId,
    run: RunId,
}

/// Starts a managed process that starts again after a failure.
async fn process(daemon: &Daemon, directory: &Path) -> RunId {
    let request = ProcessRequest {
        command: "serve".to_owned(),
        restart: Some("on-failure".to_owned()),
        ..ProcessRequest::default()
    };
    let owner = ProcessOwner::Person {
        layers: vec![caller()],
        directory: directory.to_owned(),
    };
    let process = request.checked().unwrap();
    let started = daemon
        .supervisor
        .start_process(ProcessStart { process, owner });
    started.await.unwrap().0.id.clone()
}

fn child_of(daemon: &Daemon, run: &RunId) -> Option<RunId> {
    let children = daemon.journal.children(run);
    children.first().map(|child| child.id.clone())
}

/// Waits until the record of a live run satisfies `like`.
async fn until(daemon: &Daemon, run: &RunId, like: impl Fn(&Run) -> bool) -> Arc<Run> {
    let record = until_or_gone(daemon, run, like).await;
    record.expect("a live run")
}

/// The same for a run that may end meanwhile; `None` if it has left memory.
async fn until_or_gone(
    daemon: &Daemon,
    run: &RunId,
    like: impl Fn(&Run) -> bool,
) -> Option<Arc<Run>> {
    let mut commits = daemon.journal.commits(run)?;
    loop {
        drop(commits.borrow_and_update());
        let record = daemon.journal.snapshot(run)?;
        if like(&record) {
            return Some(record);
        }
        commits.changed().await.ok()?;
    }
}

/// Runs `work` concurrently with the test.
fn aside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Group<T> {
    let mut group = Group::new();
    group.spawn(work);
    group
}

/// Lets every ready task run.
async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

impl Cell {
    async fn play(self) {
        let stage = self.stage();
        let rig = Rig::staged(Arc::clone(&stage));
        let daemon = rig.start().await;
        let asked = in_time("the place", Box::pin(self.reach(&rig, &stage, &daemon))).await;
        let mut waits = {
            let (supervisor, root) = (daemon.supervisor.clone(), asked.root.clone());
            aside(async move { supervisor.settled(&root).await })
        };
        if matches!(self.request, CellRequest::Stop | CellRequest::Crash) {
            waits = Group::new();
        }
        let (daemon, mut answer) = in_time(
            "the request",
            self.send_request(&rig, &stage, daemon, &asked),
        )
        .await;
        let finished = Box::pin(self.finish(&rig, &stage, &daemon, &asked));
        in_time("the end", finished).await;
        in_time("the answer", answer.next()).await;
        if let Some(settled) = in_time("the end of the wait", waits.next()).await {
            settled.unwrap();
        }
        self.check(&stage, &daemon, &asked).await;
        daemon.stop().await;
    }

    /// Makes the request; answers may arrive later.
    async fn send_request(
        self,
        rig: &Rig,
        stage: &Arc<ScriptedEffects>,
        daemon: Daemon,
        asked: &CellRuns,
    ) -> (Daemon, Group<()>) {
        let hooks = Arc::clone(&daemon.faults.inner);
        let (supervisor, run) = (daemon.supervisor.clone(), asked.run.clone());
        let held = self.held();
        match self.request {
            CellRequest::Cancel => {
                let answer = aside(async move {
                    drop(supervisor.cancel(&run, "a test").await);
                });
                let told = |run: &Run| run.cancel.is_some() || run.status().is_terminal();
                // It may have ended by then, and left memory.
                drop(until_or_gone(&daemon, &asked.run, told).await);
                // The request is recorded first; then the calls in flight are stopped, under the lock of the tasks.
                daemon.supervisor.pass_tasks();
                (daemon, answer)
            }
            CellRequest::Kill | CellRequest::KillAtOnce | CellRequest::SyncHangs => {
                if self.request == CellRequest::SyncHangs {
                    hooks.sync(Syncs::Hangs);
                }
                let answer = self.kill(stage, &daemon, asked);
                if self.request == CellRequest::SyncHangs
                    && matches!(
                        self.place,
                        RunPhase::Running | RunPhase::Hooks | RunPhase::Ending
                    )
                {
                    // Running effects are ended although nothing can be written.
                    stage.until(|seen| seen.stopped == held).await;
                }
                settle().await;
                (daemon, answer)
            }
            CellRequest::Suspend => {
                let stage = Arc::clone(stage);
                let answer = aside(async move {
                    if supervisor.suspend(&run).await.is_ok() && stage.active(&run) > 0 {
                        stage.breaks("a suspended run has something in flight".to_owned());
                    }
                });
                settle().await;
                (daemon, answer)
            }
            CellRequest::Stop => {
                daemon.supervisor.stop();
                settle().await;
                hooks.hold(None);
                hooks.sync(Syncs::Works);
                daemon.stop().await;
                stage.next_life();
                (rig.start().await, Group::new())
            }
            CellRequest::Crash => {
                drop(supervisor);
                (rig.crash(daemon).await, Group::new())
            }
            CellRequest::DiskFull => {
                daemon.journal.pretend(Storage::Full);
                hooks.hold(None);
                hooks.sync(Syncs::Works);
                stage.release();
                rig.clock.advance(Duration::from_secs(61));
                // A run keeps waiting for a child that resumes by itself.
                let leaf = child_of(&daemon, &run).unwrap_or(run);
                daemon.supervisor.settled(&leaf).await.unwrap();
                daemon.journal.pretend(Storage::Ok);
                (daemon, Group::new())
            }
            CellRequest::Refused => {
                let killed = RunKilled {
                    cause: "somebody else".to_owned(),
                    receipt: KillReceipt::default(),
                };
                let killed = Change::event(&run, killed.into());
                daemon.journal.commit(vec![killed]).await.unwrap();
                settle().await;
                (daemon, Group::new())
            }
        }
    }

    fn kill(self, stage: &Arc<ScriptedEffects>, daemon: &Daemon, asked: &CellRuns) -> Group<()> {
        let grace = match self.request {
            CellRequest::Kill => Duration::from_secs(5),
            _ => Duration::ZERO,
        };
        let (supervisor, run) = (daemon.supervisor.clone(), asked.run.clone());
        let stage = Arc::clone(stage);
        aside(async move {
            let killed = supervisor.kill(&run, Kill::new("a test", grace)).await;
            if killed.is_ok() && stage.active(&run) > 0 {
                stage.breaks("a killed run has something in flight".to_owned());
            }
        })
    }

    /// Lets everything continue until the run under test and its parent have ended.
    async fn finish(self, rig: &Rig, stage: &ScriptedEffects, daemon: &Daemon, asked: &CellRuns) {
        daemon.faults.inner.hold(None);
        daemon.faults.inner.sync(Syncs::Works);
        stage.release();
        loop {
            let mut over = true;
            for run in runs(daemon).await {
                let record = daemon.record(&run).await;
                over &= record.status().is_terminal();
                if record.open_approvals().next().is_some() {
                    let answer = ApprovalAnswer {
                        id: Name::default(),
                        approved: true,
                        answer: None,
                        comment: None,
                        by: "a test".to_owned(),
                    };
                    let answered = daemon.supervisor.answer(&run, None, answer, Vec::new());
                    // The run may be ending.
                    drop(answered.await);
                } else if record.suspension().is_some() {
                    let request = Resume {
                        by: "a test".to_owned(),
                        verdicts: vec![("*".to_owned(), Verdict::Done)],
                        ..Resume::default()
                    };
                    if daemon.supervisor.resume(&run, request).await.is_err() {
                        // The run waits for something else, or has no attempt with an unknown outcome.
                        drop(daemon.supervisor.resume(&run, Resume::default()).await);
                    }
                }
            }
            if over {
                return;
            }
            rig.clock.advance(Duration::from_secs(61));
            let seq = daemon.record(&asked.root).await.seq;
            let rests = daemon.journal.rested(&asked.root, seq);
            drop(tokio::time::timeout(Duration::from_millis(5), rests).await);
        }
    }

    /// Verifies that every record equals the replay of its history, no rule of effects was broken, nothing is in
    /// flight, and the run ended as requested.
    async fn check(self, stage: &ScriptedEffects, daemon: &Daemon, asked: &CellRuns) {
        for run in runs(daemon).await {
            let record = daemon.record(&run).await;
            assert_eq!(replayed(daemon, &run).await, *record, "{self:?}");
            assert_eq!(stage.active(&run), 0, "{self:?}: {run} is over");
        }
        assert_eq!(stage.broken(), Vec::<String>::new(), "{self:?}");
        let status = daemon.record(&asked.run).await.status();
        assert!(self.ends().contains(&status), "{self:?} ends as {status:?}");
    }

    /// Permitted ends of the run.
    fn ends(self) -> &'static [Status] {
        match (self.request, self.place, self.kind) {
            // Its outcome is already decided.
            (
                CellRequest::Kill
                | CellRequest::KillAtOnce
                | CellRequest::SyncHangs
                | CellRequest::Cancel,
                RunPhase::Ended,
                Kind::Tool | Kind::Process,
            )
            | (CellRequest::Cancel, RunPhase::Ending, _) => &[Status::Completed],
            (CellRequest::Cancel, _, _) => &[Status::Cancelled],
            (
                CellRequest::Kill
                | CellRequest::KillAtOnce
                | CellRequest::SyncHangs
                | CellRequest::Refused,
                _,
                _,
            ) => &[Status::Killed],
            // It is unknown whether its call happened, and no second one was requested.
            (
                CellRequest::Stop | CellRequest::Crash,
                RunPhase::Planned | RunPhase::Committed | RunPhase::Running | RunPhase::Ended,
                Kind::Tool,
            ) => &[Status::Error, Status::Completed],
            (
                CellRequest::Suspend
                | CellRequest::Stop
                | CellRequest::Crash
                | CellRequest::DiskFull,
                _,
                _,
            ) => &[Status::Completed],
        }
    }
}

async fn runs(daemon: &Daemon) -> Vec<RunId> {
    let listed = daemon.journal.list(&Filter::default(), None, 100).await;
    let runs = listed.unwrap().runs;
    runs.into_iter().map(|run| run.id).collect()
}

async fn replayed(daemon: &Daemon, run: &RunId) -> Run {
    let mut lines = daemon.journal.history(run).await.unwrap().into_iter();
    let first = lines.next().expect("a run begins with its creation");
    let created = Event::read(&first.event_type, &first.payload).unwrap();
    let Event::Run(RunEvent::RunCreated(spec)) = created else {
        panic!("{run} begins with {}", first.event_type);
    };
    let mut record = Run::create(run.clone(), first.timestamp, spec);
    for line in lines {
        let event = Event::read(&line.event_type, &line.payload).unwrap();
        record.apply(line.timestamp, &event).unwrap();
    }
    record
}

#[expect(
    clippy::disallowed_methods,
    reason = "the developer chooses what is tried"
)]
async fn play(kind: Kind) {
    let chosen = std::env::var("RYE_CELL").unwrap_or_default();
    let mut cells = cells()
        .into_iter()
        .filter(|cell| cell.kind == kind && format!("{cell:?}").contains(&chosen));
    let mut playing = Group::new();
    let mut broken = Vec::new();
    let mut room = AT_ONCE;
    loop {
        for cell in cells.by_ref().take(room) {
            playing.spawn(async move {
                let played = std::panic::AssertUnwindSafe(Box::pin(cell.play())).catch_unwind();
                played.await.map_err(|_panic| cell)
            });
        }
        match playing.next().await {
            None => break,
            Some(played) => broken.extend(played.err()),
        }
        room = 1;
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn matrix_has_expected_number_of_cells() {
    assert!(cells().len() >= 200, "{}", cells().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graph_cells_keep_rules_in_every_phase() {
    play(Kind::Graph).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreach_cells_keep_rules_in_every_phase() {
    play(Kind::Foreach).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_cells_keep_rules_in_every_phase() {
    play(Kind::Tool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_run_cells_keep_rules_in_every_phase() {
    play(Kind::Child).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_cells_keep_rules_in_every_phase() {
    play(Kind::Process).await;
}
