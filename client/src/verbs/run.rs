//! `run` and `graph run`.
//!
//! ```text
//!          Start ──► events ──► RunSuspended ─► Get, result, 75
//!                      │  └───► terminal event ─► Get, result, exit by status
//!                      └ Ctrl-C ─► leave (130), or cancel and go on following; a second one leaves at once
//! ```

use rye_client::Client;
use rye_client::events::{Events, Follow};
use rye_client::exit::Exit;
use rye_client::{json, wire};
use rye_core::model::{Event, RunKind, Status};
use rye_proto::v1;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Session;
use crate::cli::{self, Limit};
use crate::failure::Failure;
use crate::input;
use crate::output::{Format, Output, Reader};
use crate::render;
use crate::render::steps::{Line, Steps};

pub(super) async fn run(run: cli::Run, session: &mut Session) -> Result<Exit, Failure> {
    let behaviour = Behaviour::of(&run);
    let request = request(run, session)?;
    let client = session.client().await?;
    let output = &mut session.output;
    let started = client.start(request).await?;
    for warning in &started.warnings {
        output.warning(warning);
    }
    if started.existed {
        output.note(&format!(
            "the run {} was started before with this key",
            started.run_id
        ));
    }
    match behaviour {
        Behaviour::Detach => detached(&client, &started.run_id, output).await,
        Behaviour::Attach {
            step_lines,
            on_interrupt,
        } => {
            let followed =
                follow(&client, &started.run_id, step_lines, on_interrupt, output).await?;
            if followed == Followed::Left {
                return Ok(Exit::Interrupted);
            }
            let ended = end(&client, &started.run_id, output).await?;
            Ok(match followed {
                Followed::Cancelled => Exit::Interrupted,
                Followed::Left | Followed::ToTheEnd => ended,
            })
        }
    }
}

/// What to do once the run has started.
enum Behaviour {
    Detach,
    Attach {
        step_lines: StepLines,
        on_interrupt: OnInterrupt,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StepLines {
    Shown,
    Silenced,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnInterrupt {
    Leave,
    Cancel,
}

/// How following a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Followed {
    /// The run has ended or parked.
    ToTheEnd,
    /// The user left; the run goes on.
    Left,
    /// The user's Ctrl-C cancelled the run, and it has ended.
    Cancelled,
}

impl Behaviour {
    const fn of(run: &cli::Run) -> Self {
        if run.detach {
            return Self::Detach;
        }
        Self::Attach {
            step_lines: if run.quiet {
                StepLines::Silenced
            } else {
                StepLines::Shown
            },
            on_interrupt: if run.cancel_on_interrupt {
                OnInterrupt::Cancel
            } else {
                OnInterrupt::Leave
            },
        }
    }
}

fn request(run: cli::Run, session: &Session) -> Result<v1::StartRequest, Failure> {
    let inputs = input::inputs(run.input, run.inputs)?;
    let mut limits = v1::Limits::default();
    for limit in run.limits {
        match limit {
            Limit::Steps(steps) => limits.steps = Some(steps),
        }
    }
    Ok(v1::StartRequest {
        item: Some(wire::item_ref(&run.item)),
        project: session.project().display().to_string(),
        inputs_json: inputs.json,
        text_inputs: inputs.text,
        has_capabilities: !run.capabilities.is_empty(),
        capabilities: run.capabilities,
        limits: Some(limits),
        durability: wire::durability(run.durability.map(Into::into)).into(),
        idempotency_key: run.idempotency_key.unwrap_or_default(),
    })
}

async fn detached(client: &Client, run_id: &str, output: &mut Output) -> Result<Exit, Failure> {
    match output.format() {
        Format::Text => output.line(run_id)?,
        Format::Json => {
            let run = client.get(run_id).await?;
            output.json(&json::Run::new(&run)?)?;
        }
    }
    Ok(Exit::Done)
}

async fn follow(
    client: &Client,
    run_id: &str,
    step_lines: StepLines,
    on_interrupt: OnInterrupt,
    output: &mut Output,
) -> Result<Followed, Failure> {
    let mut interrupts = signal(SignalKind::interrupt()).map_err(Failure::Interrupts)?;
    let run = client.get(run_id).await?;
    let mut steps = (step_lines == StepLines::Shown && wire::kind_of(&run)? == RunKind::Graph)
        .then(|| Steps::new(wire::item_id(&run), run.nodes, output.style()));
    let mut events = client.events(run_id, "", Follow::UntilEnd);
    if watch(&mut events, &mut interrupts, steps.as_mut(), output).await? == Watched::Ended {
        return Ok(Followed::ToTheEnd);
    }
    match on_interrupt {
        OnInterrupt::Leave => {
            output.note(&format!("interrupted; the run {run_id} goes on"));
            output.hint(&format!(
                "`ryectl events {run_id} --follow` follows it, `ryectl cancel {run_id}` stops it"
            ));
            Ok(Followed::Left)
        }
        OnInterrupt::Cancel => {
            output.note("interrupted; cancelling the run (Ctrl-C again leaves it at once)");
            let asked = {
                let cancel = client.cancel(run_id, "interrupted from the keyboard");
                tokio::pin!(cancel);
                tokio::select! {
                    answer = &mut cancel => Some(answer?),
                    _ = interrupts.recv() => None,
                }
            };
            if asked.is_some()
                && watch(&mut events, &mut interrupts, steps.as_mut(), output).await?
                    == Watched::Ended
            {
                return Ok(Followed::Cancelled);
            }
            Ok(Followed::Left)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// The run has ended or parked.
    Ended,
    /// Ctrl-C.
    Interrupted,
}

async fn watch(
    events: &mut Events,
    interrupts: &mut Signal,
    mut steps: Option<&mut Steps>,
    output: &mut Output,
) -> Result<Watched, Failure> {
    loop {
        let event = tokio::select! {
            _ = interrupts.recv() => return Ok(Watched::Interrupted),
            // Cancel safe: an event counts as handed out only when `next` returns it.
            event = events.next() => event?,
        };
        let Some(event) = event else {
            return Ok(Watched::Ended);
        };
        let Some(fact) = wire::fact(&event) else {
            continue;
        };
        match steps.as_mut().and_then(|steps| steps.line(&fact)) {
            Some(Line::Started(line)) => output.progress(&line),
            Some(Line::Done(line)) => output.note(&line),
            None => {}
        }
        // A parked run has no end to wait for.
        if matches!(fact, Event::RunSuspended(_)) || fact.outcome().is_some() {
            return Ok(Watched::Ended);
        }
    }
}

/// Prints what the run came to, and ends as it did.
async fn end(client: &Client, run_id: &str, output: &mut Output) -> Result<Exit, Failure> {
    let run = client.get(run_id).await?;
    let record = json::Run::new(&run)?;
    let status = wire::status_of(&run)?;
    match (output.format(), output.reader()) {
        (Format::Json, _) => output.json(&record)?,
        (Format::Text, Reader::Other | Reader::Gone) => output.json(&json::result(&run)?)?,
        (Format::Text, Reader::Terminal) => {
            let head = format!("{} {run_id}", output.style().status(record.status));
            let text = match render::body(&record) {
                Some(body) => format!("{head}\n{body}"),
                None => head,
            };
            output.line(&text)?;
        }
    }
    match status {
        Status::Suspended => {
            let why = record.suspend.as_ref().map(render::suspension);
            let why = why.unwrap_or_else(|| "no reason given".to_owned());
            output.note(&format!("parked: {why}"));
            output.hint(&format!(
                "`ryectl get {run_id}` shows it, `ryectl cancel {run_id}` ends it"
            ));
        }
        Status::Error
        | Status::Cancelled
        | Status::Killed
        | Status::CompletedWithErrors
        | Status::Created
        | Status::Running
        | Status::Completed => {
            if let Some(error) = &record.error {
                let place = error.node.as_ref().map(|node| format!("node {node}: "));
                output.error(&format!("{}{}", place.unwrap_or_default(), error.message));
            }
        }
    }
    Ok(Exit::of_run(status))
}
