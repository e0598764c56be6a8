//! The model to wire types.

pub(super) mod items;

use rye_core::clock::Timestamp;
use rye_core::definition::Finding;
use rye_core::digest::Digest;
use rye_core::error::{beginning, with_sources};
use rye_core::id::{ItemId, RunId, Seq};
use rye_core::ledger::Cost;
use rye_core::machine::InDoubt;
use rye_core::model::graph::{At, StepWork};
use rye_core::model::thread::TurnWait;
use rye_core::model::{
    Approval, Chunks, Failure, KillReceipt, Killed, Printed, Run, Suspension, Unready,
};
use rye_core::money::Usd;
use rye_core::process::ProcessView;
use rye_proto::v1;
use serde_json::Value;

use super::models;
use crate::access::{ListedRun, RunExtras};
use crate::async_log::Piece;
use crate::cache::Entry;
use crate::chain::{self, LockState};
use crate::inspect::Checked;
use crate::live_processes::Figures;
use crate::port::{AccountView, MeterView};
use rye_journal::{Delta, DeltaKind, Line, Spot, StepLine, Summary, Verdict, WrittenLine};

/// Most characters of a finding, which may quote a text of the file.
const FINDING_CHARS: usize = 1000;

/// A managed process, with the figures of its attempt in flight if they were read.
pub(super) fn process(view: &ProcessView, figures: Option<&Figures>) -> v1::Process {
    v1::Process {
        handle: view.handle.to_string(),
        name: view.name.clone(),
        owner_id: view
            .owner
            .as_ref()
            .map_or_else(String::new, RunId::to_string),
        pid: view.pid,
        status: view.status.as_str().to_owned(),
        running: view.is_running(),
        ready: view.ready,
        uptime_ms: view.uptime_ms,
        exit_code: view.exit_code(),
        signal: view.signal(),
        cause: view.cause().unwrap_or_default().to_owned(),
        restarts: view.restarts,
        started_at: Some(timestamp(view.started_at)),
        reason: view.reason.clone().unwrap_or_default(),
        command: view.command.clone(),
        args: view.args.clone().unwrap_or_default(),
        cwd: view.cwd.clone().unwrap_or_default(),
        survive: view.survive,
        server: view
            .server
            .as_ref()
            .map_or_else(String::new, ItemId::to_string),
        ports: view
            .ports
            .iter()
            .map(|(name, port)| (name.clone(), u32::from(*port)))
            .collect(),
        why: view.why.as_ref().map(unready),
        healthy: figures.and_then(|figures| figures.is_healthy),
        memory_bytes: figures.map(|figures| figures.load.memory_bytes),
        cpu_ms: figures.map(|figures| figures.load.cpu_ms),
        listening: figures.into_iter().flat_map(listening).collect(),
    }
}

fn listening(figures: &Figures) -> impl Iterator<Item = v1::ProcessListener> + use<'_> {
    figures
        .listening
        .iter()
        .map(|listener| v1::ProcessListener {
            port: listener.port.into(),
            addr: listener.addr.to_string(),
            pid: listener.pid,
        })
}

fn unready(why: &Unready) -> v1::ProcessUnready {
    v1::ProcessUnready {
        code: why.code.as_str().to_owned(),
        port: why.port.map(u32::from),
        pid: why.pid,
        comm: why.comm.clone().unwrap_or_default(),
        status: why.status.map(u32::from),
        error: why.error.clone().unwrap_or_default(),
    }
}

pub(super) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let nanos = i32::try_from(at.ms().rem_euclid(1000)).expect("less than a second") * 1_000_000;
    prost_types::Timestamp {
        seconds: at.seconds(),
        nanos,
    }
}

/// A run without its state and its output, which may be long.
pub(super) fn record(run: &Run, beside: &RunExtras) -> v1::Run {
    let suspend = run
        .suspension()
        .map(|why| suspension(why, run, &beside.in_doubt));
    let left_in_doubt = if suspend.is_none() {
        beside.in_doubt.iter().map(attempt).collect()
    } else {
        Vec::new()
    };
    let origin = models::origin(run);
    let (provider, model) = origin.map_or_else(Default::default, |one| (one.provider, one.id));
    v1::Run {
        provider,
        model,
        error: run.failure().as_ref().map(failure),
        errors: run
            .suppressed()
            .into_iter()
            .flat_map(Chunks::iter)
            .map(|error| v1::SuppressedError {
                step: error.step,
                node: error.node.clone(),
                error: error.error.clone(),
            })
            .collect(),
        suspend,
        uncertain: left_in_doubt,
        approvals: run
            .open_approvals()
            .map(|asked| approval(&run.id, asked))
            .collect(),
        seq: run.seq.0,
        epoch: run.epoch.0,
        layers: run
            .spec
            .layers
            .iter()
            .map(|layer| v1::CapabilityLayer {
                source: layer.source.clone(),
                patterns: layer.patterns.clone(),
            })
            .collect(),
        nodes: run.spec.graph().map_or(0, |graph| graph.nodes),
        truncated: run.is_truncated(),
        failed_part: failed_part(run),
        ..list_row(&Summary::of(run), beside)
    }
}

/// The node at which a run that walks on from the failures of `run` begins.
fn failed_part(run: &Run) -> Option<v1::FailedPart> {
    let first = run.first_failed()?;
    first.once_since.is_empty().then(|| v1::FailedPart {
        node: first.node.to_string(),
        items: first.left.items.as_ref().map_or(0, |items| items.failed),
        resumed: run.failed_after_failures(),
    })
}

/// A run as a row of a list.
pub(super) fn list_row(run: &Summary, beside: &RunExtras) -> v1::Run {
    v1::Run {
        run_id: run.id.to_string(),
        item: Some((&run.item).into()),
        kind: v1::RunKind::from(run.kind).into(),
        status: v1::RunStatus::from(run.status).into(),
        parent_id: text(run.parent.as_ref()),
        parent_attempt: run.parent_attempt.clone().unwrap_or_default(),
        project: run.project.clone(),
        steps: run.steps,
        spawn_count: run.spawn_count,
        cost: Some(cost(&beside.cost)),
        created_at: Some(timestamp(run.created_at)),
        started_at: run.started_at.map(timestamp),
        ended_at: run.ended_at.map(timestamp),
        continuation_of: text(run.continuation_of.as_ref()),
        continued_by: text(beside.continued_by.as_ref()),
        depth: run.depth,
        detached: run.detached,
        principal: run.principal.clone(),
        cancel: run.cancel.as_deref().map(|cause| cancel(cause, run)),
        waiting: run.waiting.as_ref().map(waiting),
        ..v1::Run::default()
    }
}

fn waiting(waiting: &TurnWait) -> v1::Waiting {
    v1::Waiting {
        waits: waiting.waits.as_str().to_owned(),
        until: waiting.until.map(timestamp),
    }
}

/// A cancel request. Its cause is the caller, followed by `: ` and the reason if one was given.
fn cancel(cause: &str, run: &Summary) -> v1::Cancel {
    let (by, reason) = cause.split_once(": ").unwrap_or((cause, ""));
    v1::Cancel {
        reason: reason.to_owned(),
        by: by.to_owned(),
        at: run.cancelled_at.map(timestamp),
    }
}

/// A suspended run has its record in full, any other run its summary.
pub(super) fn listed(listed: &ListedRun) -> v1::Run {
    match &listed.suspended {
        Some(run) => record(run, &listed.extras),
        None => list_row(&listed.run, &listed.extras),
    }
}

fn text(id: Option<&RunId>) -> String {
    id.map(ToString::to_string).unwrap_or_default()
}

fn failure(error: &Failure) -> v1::RunError {
    v1::RunError {
        message: error.message.clone(),
        node: error.node.clone().unwrap_or_default(),
        code: error.code.clone(),
        retryable: error.retryable,
        class: error.class.as_deref().unwrap_or_default().to_owned(),
        process: error.printed.as_deref().map(printed),
    }
}

fn printed(printed: &Printed) -> v1::ProcessEnd {
    v1::ProcessEnd {
        exit_code: printed.exit_code,
        signal: printed.signal,
        stdout_tail: printed.stdout_tail.clone(),
        stderr_tail: printed.stderr_tail.clone(),
    }
}

pub(super) fn approval(run: &RunId, asked: &Approval) -> v1::Approval {
    v1::Approval {
        run_id: run.to_string(),
        id: asked.id.to_string(),
        kind: asked.kind.as_str().to_owned(),
        message: asked.message.clone(),
        schema_json: asked
            .schema
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        node: asked.node.clone().unwrap_or_default(),
        created_at: Some(timestamp(asked.created_at)),
        expires_at: asked.expires_at.map(timestamp),
    }
}

fn suspension(why: &Suspension, run: &Run, in_doubt: &[InDoubt]) -> v1::Suspension {
    v1::Suspension {
        reason: why.reason.as_str().to_owned(),
        code: why.code.clone().unwrap_or_default(),
        current: why.current.clone().unwrap_or_default(),
        max: why.max.clone().unwrap_or_default(),
        node: why.node.clone().unwrap_or_default(),
        account: text(why.account.as_ref().map(|account| &account.0)),
        child: text(why.child.as_ref()),
        uncertain: why.uncertain.clone(),
        begun: run.step().is_some(),
        attempts: in_doubt.iter().map(attempt).collect(),
    }
}

fn attempt(doubt: &InDoubt) -> v1::UncertainAttempt {
    let call = doubt.call.as_ref();
    let call =
        call.map(|(item, params)| (item.to_string(), Value::from(params.clone()).to_string()));
    let (item, params_json) = call.unwrap_or_default();
    v1::UncertainAttempt {
        name: doubt.name.clone(),
        key: doubt.key.to_string(),
        started_at: doubt.since.map(timestamp),
        item,
        params_json,
        run_id: text(doubt.run.as_ref()),
    }
}

pub(super) fn receipt(killed: Killed) -> v1::KillReceipt {
    let KillReceipt {
        processes,
        survivors,
        complete,
        adopted,
    } = killed.receipt;
    let ended = processes.into_iter();
    v1::KillReceipt {
        processes: ended
            .map(|process| v1::EndedProcess {
                pid: process.pid,
                comm: process.comm,
                signal: process.signal,
                exit: process.exit,
            })
            .collect(),
        survivors,
        complete,
        adopted: adopted
            .into_iter()
            .map(|process| v1::AdoptedProcess {
                pid: process.pid,
                comm: process.comm,
            })
            .collect(),
        run_id: killed.run_id.to_string(),
        below: killed.below.into_iter().map(receipt).collect(),
    }
}

/// Encodes a position in `run` as a cursor, which is opaque to clients.
pub(super) fn cursor(run: &RunId, seq: Seq) -> String {
    format!("{}{seq}", cursors_of(run))
}

/// The prefix of all cursors of `run`: the version of the form, and a hash that tells runs apart.
pub(super) fn cursors_of(run: &RunId) -> String {
    let hash = Digest::of(run.as_str()).to_string();
    format!("2.{}.", &hash[..12])
}

/// Encodes a position in the log `log` as a cursor of a stream of several runs.
pub(super) fn spot(log: &str, spot: Spot) -> String {
    format!("{}{}.{}", spots_of(log), spot.commit, spot.more)
}

/// The prefix of all cursors of streams of several runs: the version of the form, and a hash that tells daemons apart.
pub(super) fn spots_of(log: &str) -> String {
    let hash = Digest::of(log).to_string();
    format!("3.{}.", &hash[..12])
}

pub(super) fn event(run: &RunId, cursor: String, line: Line) -> v1::Event {
    v1::Event {
        cursor,
        seq: line.seq.0,
        run_id: run.to_string(),
        timestamp: Some(timestamp(line.timestamp)),
        event_type: line.event_type,
        payload_json: line.payload.as_ref().to_owned(),
    }
}

pub(super) fn written(line: WrittenLine) -> v1::TranscriptResponse {
    let line = v1::TranscriptLine {
        line: line.text,
        payload_json: line.payload.map(String::from).unwrap_or_default(),
    };
    v1::TranscriptResponse {
        line: Some(line),
        verdict: None,
    }
}

pub(super) fn verdict(verdict: Verdict) -> v1::TranscriptResponse {
    let verdict = v1::TranscriptVerdict {
        problem: verdict.problem.unwrap_or_default(),
        events: verdict.events,
        checkpoints: verdict.checkpoints,
        bytes: verdict.bytes,
    };
    v1::TranscriptResponse {
        line: None,
        verdict: Some(verdict),
    }
}

pub(super) fn delta(run: &RunId, delta: Delta) -> v1::Delta {
    let kind = match delta.kind {
        DeltaKind::Text => v1::DeltaKind::Text,
        DeltaKind::Thinking => v1::DeltaKind::Thinking,
        DeltaKind::CallBegun => v1::DeltaKind::CallBegun,
        DeltaKind::CallArgs => v1::DeltaKind::CallArgs,
        DeltaKind::CallReady => v1::DeltaKind::CallReady,
        DeltaKind::Reset => v1::DeltaKind::Reset,
    };
    v1::Delta {
        run_id: run.to_string(),
        turn: delta.turn,
        attempt: delta.attempt,
        kind: kind.into(),
        position: delta.position,
        text: delta.text,
        left_out: delta.left_out,
        heading: String::new(),
    }
}

/// Lines printed by tools.
pub(super) fn lines(run: &RunId, piece: Piece) -> v1::Delta {
    v1::Delta {
        run_id: run.to_string(),
        kind: v1::DeltaKind::Output.into(),
        text: piece.text,
        heading: piece.heading,
        ..v1::Delta::default()
    }
}

pub(super) fn step(step: StepLine) -> v1::Step {
    v1::Step {
        step: step.step,
        node: step.node,
        status: step.status.as_str().to_owned(),
        elapsed_ms: step.elapsed_ms,
        cache_hit: step.cache_hit,
        process: step.printed.as_deref().map(printed),
        error: step.error,
        items: step.items.map(|items| v1::ItemCount {
            total: items.total,
            ended: items.total,
            failed: items.failed,
            retrying: 0,
        }),
        command: step.command.map(|command| v1::ShellCommand {
            line: command.line,
            last: command.last,
            more: number(command.more),
        }),
    }
}

/// The current step of a graph run; `None` between steps and after the end.
pub(super) fn open_step(run: &Run, now: Timestamp) -> Option<v1::Step> {
    if run.status().is_terminal() {
        return None;
    }
    let at = &run.graph()?.at;
    let step = at.step()?;
    let waits = !matches!(at, At::Step(_))
        || matches!(step.work, StepWork::Waits(_))
        || run.suspension().is_some();
    Some(v1::Step {
        step: step.number,
        node: step.node.to_string(),
        status: if waits { "waiting" } else { "running" }.to_owned(),
        elapsed_ms: step.elapsed_ms(now),
        items: step.items().map(|items| v1::ItemCount {
            total: items.count(),
            ended: number(items.results().flatten().count()),
            failed: items.failed,
            retrying: number(items.retrying.len()),
        }),
        ..v1::Step::default()
    })
}

pub(super) fn checked(checked: Checked) -> v1::ValidateResponse {
    let report = checked.report;
    v1::ValidateResponse {
        success: report.is_sound(),
        errors: report.errors.iter().map(finding).collect(),
        warnings: report.warnings.iter().map(finding).collect(),
        node_count: number(report.node_count),
        path: checked.path,
    }
}

pub(super) fn lock(draft: chain::Draft) -> v1::LockResponse {
    let (standing, path, problem) = match draft.existing {
        LockState::Absent => (v1::LockStanding::Absent, None, None),
        LockState::Unsigned(path) => (v1::LockStanding::Unsigned, Some(path), None),
        LockState::Matches(path) => (v1::LockStanding::Matches, Some(path), None),
        LockState::Refused(error) => (v1::LockStanding::Refused, None, Some(with_sources(&*error))),
    };
    let unsigned = draft.unsigned.iter().map(|path| path.display().to_string());
    v1::LockResponse {
        tool_id: draft.tool.to_string(),
        version: draft.version,
        lock_json: Value::Object(draft.content).to_string(),
        unsigned_files: unsigned.collect(),
        standing: standing.into(),
        path: path
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        problem: problem.unwrap_or_default(),
    }
}

pub(super) fn cache_entry(entry: Entry) -> v1::CacheEntry {
    v1::CacheEntry {
        key: entry.key,
        node: entry.node,
        result_hash: entry.node_result_hash,
        cached_at: entry.cached_at.map(timestamp),
        trusted: entry.trusted,
    }
}

pub(super) fn budget(view: &AccountView) -> v1::Budget {
    let account = &view.row.account;
    v1::Budget {
        run_id: view.run.to_string(),
        account: view.id.to_string(),
        parent: account
            .parent
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        max: account.limit.map(|limit| limit.to_string()),
        reserved: account.reserved().to_string(),
        held: account.held().to_string(),
        own: account.own.money.to_string(),
        actual: view.cost.usage.money.to_string(),
        remaining: account.remaining().map(|remaining| remaining.to_string()),
        overrun: account.overrun().to_string(),
        estimated: view.cost.estimated > Usd::ZERO,
        state: view.state().as_str().to_owned(),
        cost: Some(cost(&view.cost)),
        used: account.used().to_string(),
    }
}

fn cost(Cost { usage, estimated }: &Cost) -> v1::Cost {
    v1::Cost {
        turns: usage.turns.into(),
        input_tokens: usage.input,
        output_tokens: usage.output,
        spend: usage.money.to_string(),
        cache_read_tokens: usage.cache_read,
        cache_write_tokens: usage.cache_write,
        reasoning_tokens: usage.reasoning,
        estimated: *estimated > Usd::ZERO,
    }
}

/// The node's spending in a day or a month.
pub(super) fn meter(view: &MeterView) -> v1::Meter {
    let MeterView { id, meter, limit } = view;
    v1::Meter {
        id: id.to_string(),
        max: limit.map(|limit| limit.to_string()),
        spent: meter.spent.to_string(),
        held: meter.held.to_string(),
    }
}

fn finding(finding: &Finding) -> v1::Finding {
    v1::Finding {
        code: finding.code.to_owned(),
        message: beginning(&finding.message, FINDING_CHARS).into_owned(),
        node: finding.node.clone().unwrap_or_default(),
        line: number(finding.line),
        column: number(finding.column),
    }
}

/// Converts a count, saturating at [`u32::MAX`].
pub(super) fn number(count: impl TryInto<u32>) -> u32 {
    count.try_into().unwrap_or(u32::MAX)
}
