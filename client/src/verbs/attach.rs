//! Staying with a run until it ends or is suspended.
//!
//! ```text
//! events ──► RunSuspended ─► Get, result, 75
//!    │ └───► terminal event ─► Get, result, exit by status
//!    └ Ctrl-C ─► leave (130), or cancel and keep following; a second one leaves at once
//! ```

use rye_client::Client;
use rye_client::events::{Deltas, Events, Follow, Told};
use rye_client::exit::Exit;
use rye_client::{json, wire};
use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::model::{Event, Object, RunEvent, RunKind, Status};
use rye_proto::v1;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli;
use crate::failure::Failure;
use crate::output::{Format, Output, Reader};
use crate::render;
use crate::render::steps::{Line, Steps};
use crate::render::turns::Turns;

/// Notes that another run continues one that had ended.
pub(super) fn tell_continuation(old: &cli::RunName, run_id: &str, output: &mut Output) {
    if old.as_str() != run_id {
        output.note(&format!("{old} has ended; {run_id} continues it"));
    }
}

/// Prints the id of a run and leaves it, or stays with it from `cursor` on and ends as it does.
pub(super) async fn stay(
    client: &Client,
    run_id: &str,
    cursor: &str,
    how: cli::Attach,
    output: &mut Output,
) -> Result<Exit, Failure> {
    if how.detach {
        return detached(client, run_id, output).await;
    }
    watch_run(client, run_id, cursor, how.staying, output).await
}

/// Stays with a run from `cursor` on and ends as it does.
pub(super) async fn watch_run(
    client: &Client,
    run_id: &str,
    cursor: &str,
    how: cli::Staying,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let lines = if how.quiet {
        StepLines::Silenced
    } else {
        StepLines::Shown
    };
    let place = Place {
        run_id,
        cursor,
        on_interrupt: if how.cancel_on_interrupt {
            OnInterrupt::Cancel
        } else {
            OnInterrupt::Leave
        },
    };
    let run = client.get(run_id).await?;
    let mut progress = Progress::of(&run, lines, output)?;
    progress.know(&run, cursor)?;
    let followed = follow(client, &place, &mut progress, output).await?;
    if followed == Followed::Left {
        return Ok(Exit::Interrupted);
    }
    let ended = end(client, run_id, progress.said(), output).await?;
    Ok(match followed {
        Followed::Cancelled => Exit::Interrupted,
        Followed::Left | Followed::ToTheEnd => ended,
    })
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
    /// The run has ended or is suspended.
    ToTheEnd,
    /// The user left; the run continues.
    Left,
    /// The user's Ctrl-C cancelled the run, and it has ended.
    Cancelled,
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

/// With which run to stay, from where, and until when.
struct Place<'a> {
    run_id: &'a str,
    cursor: &'a str,
    on_interrupt: OnInterrupt,
}

async fn follow(
    client: &Client,
    place: &Place<'_>,
    progress: &mut Progress,
    output: &mut Output,
) -> Result<Followed, Failure> {
    let Place {
        run_id,
        cursor,
        on_interrupt,
    } = *place;
    let client = &match progress {
        Progress::Nothing => client.clone(),
        Progress::Steps(_) | Progress::Turns(_) | Progress::Call => {
            client.clone().telling(output.teller())
        }
    };
    let mut interrupts = signal(SignalKind::interrupt()).map_err(Failure::Interrupts)?;
    let events = client.events(run_id, cursor, Follow::UntilEnd);
    let mut events = events.with(progress.deltas());
    let watched = watch(client, &mut events, &mut interrupts, progress, output).await?;
    if watched == Watched::Ended {
        return Ok(Followed::ToTheEnd);
    }
    match on_interrupt {
        OnInterrupt::Leave => {
            output.note(&format!("interrupted; the run {run_id} continues"));
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
                    answer = &mut cancel => answer,
                    _ = interrupts.recv() => return Ok(Followed::Left),
                }
            };
            let followed = match asked {
                Ok(_) => Followed::Cancelled,
                // It ended by itself before it was asked.
                Err(error) if error.kind() == ErrorKind::Precondition => Followed::ToTheEnd,
                Err(error) => return Err(error.into()),
            };
            let watched = watch(client, &mut events, &mut interrupts, progress, output).await?;
            Ok(match watched {
                Watched::Ended => followed,
                Watched::Interrupted => Followed::Left,
            })
        }
    }
}

/// What is shown of a run while it runs.
enum Progress {
    Steps(Steps),
    Turns(Turns),
    /// Of the call of a tool, nothing but that the daemon is away.
    Call,
    Nothing,
}

impl Progress {
    fn of(run: &v1::Run, lines: StepLines, output: &Output) -> Result<Self, Failure> {
        let (item, style) = (wire::item_id(run), output.style());
        Ok(match (lines, wire::kind_of(run)?) {
            (StepLines::Silenced, _) => Self::Nothing,
            (StepLines::Shown, RunKind::Tool) => Self::Call,
            (StepLines::Shown, RunKind::Graph) => Self::Steps(Steps::new(item, run.nodes, style)),
            (StepLines::Shown, RunKind::Thread) => Self::Turns(Turns::new(item, style)),
        })
    }

    /// The line for `event`, which happened `at`, if it gets one.
    fn line(&mut self, event: &Event, at: Option<Timestamp>) -> Option<Line> {
        match self {
            Self::Steps(steps) => steps.line(event, at),
            Self::Turns(turns) => turns.line(event),
            Self::Call | Self::Nothing => None,
        }
    }

    /// The same for what a model says.
    fn hear(&mut self, delta: &v1::Delta) -> Option<Line> {
        match self {
            Self::Turns(turns) => turns.hear(delta),
            Self::Steps(_) | Self::Call | Self::Nothing => None,
        }
    }

    /// What is to be told of what models say.
    const fn deltas(&self) -> Deltas {
        match self {
            Self::Turns(_) => Deltas::Told,
            Self::Steps(_) | Self::Call | Self::Nothing => Deltas::No,
        }
    }

    /// What was set in `run` before it is watched from `cursor` on is not new.
    fn know(&mut self, run: &v1::Run, cursor: &str) -> Result<(), Failure> {
        if let (Self::Steps(steps), false) = (self, cursor.is_empty()) {
            let state = wire::json("state_json", &run.state_json)?;
            let state = state.as_ref().and_then(Value::as_object);
            steps.know(state.into_iter().flat_map(Object::keys));
        }
        Ok(())
    }

    /// What a model said last, if it was shown.
    fn said(&self) -> Option<&str> {
        match self {
            Self::Turns(turns) => turns.said(),
            Self::Steps(_) | Self::Call | Self::Nothing => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// The run has ended or is suspended.
    Ended,
    /// Ctrl-C.
    Interrupted,
}

async fn watch(
    client: &Client,
    events: &mut Events,
    interrupts: &mut Signal,
    steps: &mut Progress,
    output: &mut Output,
) -> Result<Watched, Failure> {
    loop {
        let told = tokio::select! {
            _ = interrupts.recv() => return Ok(Watched::Interrupted),
            // Cancel safe: an event counts as handed out only when `told` returns it.
            told = events.told() => told?,
        };
        let event = match told {
            None => return Ok(Watched::Ended),
            Some(Told::Event(event)) => event,
            Some(Told::Delta(delta)) => {
                show(steps.hear(&delta), output);
                continue;
            }
        };
        let Some(fact) = wire::fact(&event) else {
            continue;
        };
        let at = event.timestamp.as_ref().map(wire::timestamp);
        show(steps.line(&fact, at), output);
        if fact.outcome().is_some() {
            return Ok(Watched::Ended);
        }
        // A suspended run has no end to wait for; but the event may be an old one.
        if let Event::Run(RunEvent::RunSuspended(_)) = fact {
            let run_id = &event.run_id;
            if wire::status_of(&client.get(run_id).await?)? == Status::Suspended {
                return Ok(Watched::Ended);
            }
        }
    }
}

/// Tells what is shown of an event or a delta.
pub(super) fn show(line: Option<Line>, output: &mut Output) {
    match line {
        Some(Line::Started(line)) => output.progress(&line),
        Some(Line::Done(line)) => output.note(&line),
        Some(Line::More(text)) => output.say(&text),
        Some(Line::Rest(text)) => output.end(&text),
        None => {}
    }
}

/// Notes why a run is suspended, and how it is resumed.
pub(super) async fn tell_suspended(
    client: &Client,
    run: &json::Run,
    output: &mut Output,
) -> Result<(), Failure> {
    let Some(why) = &run.suspend else {
        output.note("suspended: no reason given");
        return Ok(());
    };
    output.note(&format!("suspended: {}", render::suspension(why)));
    for asked in &run.approvals {
        output.note(&format!("it asks: {}", asked.message));
    }
    if let Some(error) = &run.error {
        tell_failure(error, output);
    }
    tell_way_on(client, run, output).await
}

/// Notes behind which failure a run is suspended.
fn tell_failure(error: &json::RunError, output: &mut Output) {
    output.note(&format!("it failed: {}", render::failure(error)));
    tell_printed(error, output);
}

/// Notes how the process ended that failed, and what it printed last.
pub(super) fn tell_printed(error: &json::RunError, output: &mut Output) {
    if let Some(process) = &error.process {
        output.note(&render::printed(process));
    }
}

/// Notes which suspended child run a suspended run waits for, and how it is resumed.
pub(super) async fn tell_way_on(
    client: &Client,
    run: &json::Run,
    output: &mut Output,
) -> Result<(), Failure> {
    let Some(why) = &run.suspend else {
        return Ok(());
    };
    // What the child run waits for is what it takes.
    let child = match &why.child {
        Some(id) => Some(json::Run::new(&client.get(id).await?)?),
        None => None,
    };
    let (mut needed, mut of) = (why, run);
    if let Some(child) = &child
        && let Some(why) = &child.suspend
    {
        let reason = render::suspension(why);
        output.note(&format!("{} is suspended: {reason}", child.run_id));
        for asked in &child.approvals {
            output.note(&format!("it asks: {}", asked.message));
        }
        // Who resumes a run resumes those that it waits for; an answer is for the one that asks.
        if why.reason == "approval" {
            of = child;
        }
        if let Some(error) = &child.error {
            tell_failure(error, output);
        }
        needed = why;
    }
    output.hint(&render::way_on(&of.run_id, needed));
    Ok(())
}

/// Prints what a thread gave back, and nothing if it failed; a text as text, unless it was `said` on the same screen just before. What
/// it cost is told beside it.
fn end_thread(
    run: &json::Run,
    status: Status,
    said: Option<&str>,
    output: &mut Output,
) -> Result<(), Failure> {
    match (&run.outputs, &run.result) {
        _ if !status.is_success() => {}
        (None, Some(Value::String(text)))
            if output.is_one_screen() && said == Some(text.trim()) => {}
        (Some(outputs), _) => output.json(outputs)?,
        (None, Some(Value::String(text))) => output.line(text)?,
        (None, Some(other)) => output.json(other)?,
        (None, None) => {}
    }
    let cost = render::budget::cost(&run.cost);
    let cost = cost.map_or_else(String::new, |cost| format!("; cost: {cost}"));
    output.note(&format!(
        "{} {}{cost}",
        output.style().status(run.status),
        run.run_id
    ));
    Ok(())
}

/// Prints what the run came to, and ends as it did.
async fn end(
    client: &Client,
    run_id: &str,
    said: Option<&str>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let run = client.get(run_id).await?;
    let record = json::Run::new(&run)?;
    let status = wire::status_of(&run)?;
    let is_thread = wire::kind_of(&run)? == RunKind::Thread;
    match (output.format(), output.reader()) {
        (Format::Json, _) => output.json(&record)?,
        (Format::Text, _) if is_thread => end_thread(&record, status, said, output)?,
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
        Status::Suspended => tell_suspended(client, &record, output).await?,
        Status::Error
        | Status::Cancelled
        | Status::Killed
        | Status::CompletedWithErrors
        | Status::Created
        | Status::Running
        | Status::Completed => {
            if let Some(error) = &record.error {
                output.error(&render::failure(error));
                tell_printed(error, output);
            }
        }
    }
    Ok(Exit::of_run(status))
}
