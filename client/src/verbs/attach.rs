//! Follows a run until it ends or is suspended.
//!
//! A [`View`] holds the state of the run and applies its events and deltas; [`Lines`] renders it. Each child run has a
//! view of its own.
//!
//! ```text
//! events ──► RunSuspended ─► Get, result, 75
//!    │ └───► terminal event ─► Get, result, exit by status
//!    └ interruption ─► detach, or cancel and keep following; a second one detaches at once
//! ```

mod children;

use std::time::Duration;

use rye_client::Client;
use rye_client::environment;
use rye_client::events::{Deltas, Events, Follow, StreamItem};
use rye_client::exit::{Exit, Interruption};
use rye_client::needs::{Need, Way, needs, unanswered, ways_to_continue};
use rye_client::view::{View, ViewUpdate};
use rye_core::error::{ErrorKind, Kinded as _, with_sources};
use rye_core::model::{Event, Object, RunEvent, RunKind, Status};
use rye_proto::{convert, v1};
use serde_json::Value;

use self::children::Children;
use super::signals::Interruptions;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::render;
use crate::render::lines::{self, Line, Lines};

/// Interval of the refresh of the progress line.
const TICK: Duration = Duration::from_secs(1);

/// Notes that another run continues an ended one.
pub(super) fn note_continuation(old: &cli::RunName, run_id: &str, output: &mut Output) {
    if old.as_str() != run_id {
        output.note(&format!("{old} has ended; {run_id} continues it"));
    }
}

/// Prints the id of a run and returns, or follows it from `cursor` on. Returns the exit code of the run.
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
    Box::pin(watch_run(client, run_id, cursor, how.staying, output)).await
}

/// Follows a run from `cursor` on. Returns the exit code of the run.
pub(super) async fn watch_run(
    client: &Client,
    run_id: &str,
    cursor: &str,
    how: cli::Staying,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let run = client.get(run_id).await?;
    if !how.quiet {
        output.note(&format!("run {run_id}"));
    }
    let mut progress = Progress::of(client, &run, how, output)?;
    progress.know(&run, cursor)?;
    let watched = Watched {
        run_id,
        cursor,
        cancel_on_interrupt: how.cancel_on_interrupt,
    };
    let followed = match Box::pin(follow(client, &watched, &mut progress, output)).await {
        // The daemon lacks memory to stream events. The run itself does not need them.
        Err(Failure::Client(error)) if error.kind() == ErrorKind::Exhausted => {
            output.warning(&format!(
                "what happens in the run is not shown: {}",
                with_sources(&error)
            ));
            wait_out(client, run_id, output).await?
        }
        followed => followed?,
    };
    if let FollowResult::Left(why) = followed {
        return Ok(Exit::Interrupted(why));
    }
    let ended = end(client, run_id, &progress, output).await;
    let FollowResult::Cancelled(why) = followed else {
        return ended;
    };
    if let Err(failure) = ended {
        output.failure(&failure);
    }
    Ok(Exit::Interrupted(why))
}

/// Result of following a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FollowResult {
    /// The run has ended or is suspended.
    ToTheEnd,
    /// The verb was interrupted; the run continues.
    Left(Interruption),
    /// The interruption cancelled the run, and it has ended.
    Cancelled(Interruption),
}

async fn detached(client: &Client, run_id: &str, output: &mut Output) -> Result<Exit, Failure> {
    match output.format() {
        Format::Text => output.line(run_id)?,
        Format::Json => {
            let run = client.get(run_id).await?;
            output.json(&run)?;
        }
    }
    Ok(Exit::Done)
}

/// A run that is followed from `cursor` on.
struct Watched<'a> {
    run_id: &'a str,
    cursor: &'a str,
    cancel_on_interrupt: bool,
}

async fn follow(
    client: &Client,
    watched: &Watched<'_>,
    progress: &mut Progress,
    output: &mut Output,
) -> Result<FollowResult, Failure> {
    let Watched {
        run_id,
        cursor,
        cancel_on_interrupt,
    } = *watched;
    let client = &match progress {
        Progress::Nothing => client.clone(),
        Progress::Shown(_) | Progress::Call => client
            .clone()
            .with_outage_notifier(output.outage_notifier()),
    };
    // TERM and HUP end a client that only watches, without a word.
    let mut interruptions = if cancel_on_interrupt {
        Interruptions::all()?
    } else {
        Interruptions::of_keyboard()?
    }
    .and_reader(output.watch_reader());
    let events = client.events(run_id, cursor, Follow::UntilEnd);
    let mut events = events.with(progress.deltas());
    let ended = watch(client, &mut events, &mut interruptions, progress, output).await?;
    let FollowResult::Left(why) = ended else {
        return Ok(ended);
    };
    if !cancel_on_interrupt {
        output.note(&format!("{}; the run {run_id} continues", why.describe()));
        output.hint(&format!(
            "`ryectl attach {run_id}` shows it again, `ryectl cancel {run_id}` stops it"
        ));
        return Ok(ended);
    }
    output.note(&format!(
        "{}; cancelling the run (Ctrl-C again leaves it at once)",
        why.describe()
    ));
    let cancelled = tokio::select! {
        answer = client.cancel(run_id, why.describe()) => answer,
        why = interruptions.next() => return Ok(FollowResult::Left(why)),
    };
    let followed = match cancelled {
        Ok(_) => FollowResult::Cancelled(why),
        // The run ended by itself before the request.
        Err(error) if error.kind() == ErrorKind::Precondition => FollowResult::ToTheEnd,
        Err(error) => return Err(error.into()),
    };
    let ended = watch(client, &mut events, &mut interruptions, progress, output).await?;
    Ok(match ended {
        FollowResult::ToTheEnd => followed,
        FollowResult::Left(why) | FollowResult::Cancelled(why) => FollowResult::Left(why),
    })
}

/// Waits for the end of a run without its events.
async fn wait_out(
    client: &Client,
    run_id: &str,
    output: &mut Output,
) -> Result<FollowResult, Failure> {
    let interruptions = Interruptions::of_keyboard()?;
    let mut interruptions = interruptions.and_reader(output.watch_reader());
    let runs = [run_id.to_owned()];
    tokio::select! {
        why = interruptions.next() => {
            output.note(&format!("{}; the run {run_id} continues", why.describe()));
            Ok(FollowResult::Left(why))
        }
        waited = client.wait(&runs, None) => {
            waited?;
            Ok(FollowResult::ToTheEnd)
        }
    }
}

/// Progress of a run on the screen.
enum Progress {
    Shown(Box<Shown>),
    /// A call of a tool, or a managed process; only an outage of the daemon is shown.
    Call,
    Nothing,
}

struct Shown {
    kind: RunKind,
    view: View,
    lines: Lines,
    children: Children,
}

impl Progress {
    fn of(
        client: &Client,
        run: &v1::Run,
        how: cli::Staying,
        output: &Output,
    ) -> Result<Self, Failure> {
        let kind = run.core_kind()?;
        Ok(match kind {
            _ if how.quiet => Self::Nothing,
            RunKind::Tool | RunKind::Process => Self::Call,
            RunKind::Graph | RunKind::Thread => Self::Shown(Box::new(Shown {
                kind,
                view: View::new(run.item_id(), run.nodes),
                lines: Lines::new(kind, output.style()),
                children: Children::new(client.clone(), output.style()),
            })),
        })
    }

    /// Returns the deltas that are shown.
    fn deltas(&self) -> Deltas {
        match self {
            Self::Shown(shown) if shown.kind == RunKind::Thread => Deltas::Texts,
            Self::Shown(_) | Self::Call | Self::Nothing => Deltas::No,
        }
    }

    /// Marks what `run` contained before `cursor` as known, so that it is not shown as new.
    fn know(&mut self, run: &v1::Run, cursor: &str) -> Result<(), Failure> {
        if let (Self::Shown(shown), false) = (self, cursor.is_empty()) {
            let state = run.state()?;
            let state = state.as_ref().and_then(Value::as_object);
            shown.view.know(state.into_iter().flat_map(Object::keys));
        }
        Ok(())
    }

    /// Shows what `told` adds.
    async fn take(&mut self, told: &StreamItem, output: &mut Output) {
        let Self::Shown(shown) = self else {
            return;
        };
        let news = match told {
            StreamItem::Delta(delta) => shown.view.apply_delta(delta),
            StreamItem::Event(event) => {
                let at = event.timestamp.as_ref().map(convert::timestamp);
                event.fact().and_then(|fact| shown.view.take(&fact, at))
            }
        };
        let Some(news) = news else {
            return;
        };
        if let ViewUpdate::Child(child) = &news {
            shown.children.follow(child, 1);
        }
        if let ViewUpdate::Step(_) | ViewUpdate::Call { .. } = &news {
            for line in shown.children.rest().await {
                show(Some(line), output);
            }
        }
        let line = shown.lines.line(&shown.view, &news, environment::now());
        show(line, output);
        if let ViewUpdate::Warning { .. } | ViewUpdate::Retry { .. } | ViewUpdate::Call { .. } =
            news
        {
            self.tick(output);
        }
    }

    /// Returns the next line of a child run, or waits forever if no child is shown.
    async fn child(&mut self) -> Line {
        match self {
            Self::Shown(shown) => shown.children.next().await,
            Self::Call | Self::Nothing => std::future::pending().await,
        }
    }

    /// Refreshes the progress line.
    fn tick(&self, output: &mut Output) {
        if let Self::Shown(shown) = self {
            show(
                shown.lines.current_line(&shown.view, environment::now()),
                output,
            );
        }
    }

    /// Returns the model's last text, if it was shown.
    fn last_text(&self) -> Option<&str> {
        match self {
            Self::Shown(shown) => shown.view.last_text.as_deref(),
            Self::Call | Self::Nothing => None,
        }
    }

    /// Returns the failed items, one a line.
    fn failed_items(&self) -> String {
        match self {
            Self::Shown(shown) => lines::failed_items(&shown.view),
            Self::Call | Self::Nothing => String::new(),
        }
    }
}

/// Shows events until the run ends or is suspended, or until an interruption.
async fn watch(
    client: &Client,
    events: &mut Events,
    interruptions: &mut Interruptions,
    progress: &mut Progress,
    output: &mut Output,
) -> Result<FollowResult, Failure> {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        let told = tokio::select! {
            why = interruptions.next() => return Ok(FollowResult::Left(why)),
            // Cancel safe: an event counts as returned only when `told` returns it.
            told = events.next_item() => told?,
            line = progress.child() => {
                show(Some(line), output);
                progress.tick(output);
                continue;
            }
            _ = ticks.tick(), if output.shows_progress() && !output.has_open_text() => {
                progress.tick(output);
                continue;
            }
        };
        let Some(told) = told else {
            return Ok(FollowResult::ToTheEnd);
        };
        progress.take(&told, output).await;
        let StreamItem::Event(event) = told else {
            continue;
        };
        let Some(fact) = event.fact() else {
            continue;
        };
        if fact.outcome().is_some() {
            return Ok(FollowResult::ToTheEnd);
        }
        // A suspended run may not end. The event may be old, so the present status decides.
        if let Event::Run(RunEvent::RunSuspended(_)) = fact {
            let run_id = &event.run_id;
            if client.get(run_id).await?.core_status()? == Status::Suspended {
                return Ok(FollowResult::ToTheEnd);
            }
        }
    }
}

pub(super) fn show(line: Option<Line>, output: &mut Output) {
    match line {
        Some(Line::Current(line)) => output.progress(&line),
        Some(Line::Done(line)) => output.note(&line),
        Some(Line::More(text)) => output.print_text(&text),
        Some(Line::Rest(text)) => output.end(&text),
        None => {}
    }
}

/// Notes why a run is suspended, and the commands that resume it.
pub(super) async fn note_suspension(
    client: &Client,
    run: &v1::Run,
    output: &mut Output,
) -> Result<(), Failure> {
    let Some(why) = &run.suspend else {
        output.note("suspended: no reason given");
        return Ok(());
    };
    output.note(&format!("suspended: {}", render::suspension(why)));
    note_reasons(run, output);
    note_next_commands(client, run, output).await
}

/// Notes the questions of a suspended run, and the failure that suspended it.
fn note_reasons(run: &v1::Run, output: &mut Output) {
    for question in &run.approvals {
        output.note(&format!("it asks: {}", question.message));
    }
    if let Some(error) = &run.error {
        output.note(&format!("it failed: {}", render::failure(error)));
        note_process_output(error, output);
    }
}

/// Notes how a failed process ended, and its last output.
pub(super) fn note_process_output(error: &v1::RunError, output: &mut Output) {
    if let Some(process) = &error.process {
        output.note(&render::printed(process));
    }
}

/// Notes the suspended child that a suspended run waits for, and the commands that resume both. For an ended run it
/// notes the attempts that a continuation repeats.
pub(super) async fn note_next_commands(
    client: &Client,
    run: &v1::Run,
    output: &mut Output,
) -> Result<(), Failure> {
    let Some(why) = &run.suspend else {
        if let Some(need) = unanswered(run) {
            note_need(&need, output);
        }
        return Ok(());
    };
    // The need of the child is the need of the run.
    let child = match why.child.as_str() {
        "" => None,
        id => Some(client.get(id).await?),
    };
    if let Some(child) = &child
        && let Some(why) = &child.suspend
    {
        let reason = render::suspension(why);
        output.note(&format!("{} is suspended: {reason}", child.run_id));
        note_reasons(child, output);
    }
    if let Some(need) = needs(run, child.as_ref()) {
        note_need(&need, output);
    }
    Ok(())
}

/// Notes a need, with each command on its own line.
fn note_need(need: &Need, output: &mut Output) {
    if !need.text.is_empty() {
        output.hint(&need.text);
    }
    for way in &need.ways {
        hint_command(way, output);
    }
}

fn hint_command(way: &Way, output: &mut Output) {
    output.hint(&format!("{}:\n  {}", way.does, way.command()));
}

/// Prints the outcome of the run. Returns its exit code.
async fn end(
    client: &Client,
    run_id: &str,
    progress: &Progress,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let record = client.get(run_id).await?;
    let status = record.core_status()?;
    match output.format() {
        Format::Json => output.json(&record)?,
        Format::Text => end_in_text(&record, progress, output)?,
    }
    match status {
        Status::Suspended => note_suspension(client, &record, output).await?,
        Status::Error
        | Status::Cancelled
        | Status::Killed
        | Status::CompletedWithErrors
        | Status::Created
        | Status::Running
        | Status::Completed => {
            if let Some(error) = &record.error {
                output.error(&render::failure(error));
                note_process_output(error, output);
            }
            if output.format() == Format::Text {
                match unanswered(&record) {
                    Some(need) => note_need(&need, output),
                    None => {
                        for way in ways_to_continue(&record) {
                            hint_command(&way, output);
                        }
                    }
                }
            }
        }
    }
    Ok(Exit::of_run(status))
}

/// Prints the output of a run, unless its model printed it on the same screen just before, and how the run ended. For a
/// thread the end and the cost are always printed.
fn end_in_text(run: &v1::Run, progress: &Progress, output: &mut Output) -> Result<(), Failure> {
    let was_shown = |outcome: &Value| {
        let said = outcome.as_str().map(str::trim);
        output.is_one_screen() && said.is_some() && said == progress.last_text()
    };
    if let Some(outcome) = render::outcome(run)?.filter(|outcome| !was_shown(outcome)) {
        output.outcome(&outcome)?;
    }
    let status = run.core_status()?;
    let word = output.style().status(status.as_str());
    let took = render::took(run);
    if run.core_kind()? == RunKind::Thread {
        let cost = render::cost(run)?;
        let cost = cost.map_or_else(String::new, |cost| format!("; cost: {cost}"));
        output.note(&format!("{word} {}{took}{cost}", run.run_id));
    } else if !matches!(progress, Progress::Nothing) {
        // [`end`] prints the reason of a suspension.
        if status != Status::Suspended {
            output.note(&format!("{word}{took}"));
        }
        let failed = progress.failed_items();
        if !failed.is_empty() {
            output.note(&failed);
        }
    }
    Ok(())
}
