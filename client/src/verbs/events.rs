//! `events`: past and new events of one or several runs.

use rye_client::environment::now;
use rye_client::events::{Deltas, EventScope, Follow, StreamItem};
use rye_client::exit::Exit;
use rye_client::view::View;
use rye_core::model::RunKind;
use rye_proto::{convert, v1};
use serde_json::json;

use super::attach;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Format, Output, Reader};
use crate::render;
use crate::render::lines::Lines;
use crate::session::Session;

pub(super) async fn events(asked: &cli::Events, session: &mut Session) -> Result<Exit, Failure> {
    let of = of(asked, session)?;
    let is_one = matches!(of, EventScope::Run(_));
    let client = session
        .client()
        .await?
        .with_outage_notifier(session.output.outage_notifier());
    let output = &mut session.output;
    let follow = if asked.follow {
        Follow::UntilEnd
    } else {
        Follow::No
    };
    let deltas = if asked.deltas {
        Deltas::Everything
    } else {
        Deltas::No
    };
    // An event of one run can be named by its number instead of its cursor.
    let behind: Option<u64> = asked.from.parse().ok().filter(|_| is_one);
    let cursor = if behind.is_some() { "" } else { &asked.from };
    let mut stream = client.events_of(of, cursor, follow).with(deltas);
    let name = asked.run.as_ref().map_or("", cli::RunName::as_str);
    let mut view = View::new(name, 0);
    let lines = Lines::new(RunKind::Thread, output.style());
    let mut reader = output.watch_reader();
    loop {
        let next = tokio::select! {
            next = stream.next_item() => next?,
            () = reader.gone() => None,
        };
        let Some(told) = next else {
            break;
        };
        match (told, output.format()) {
            (StreamItem::Event(event), _) if Some(event.seq) <= behind => {}
            (StreamItem::Event(event), _) => print(&event, is_one, output)?,
            (StreamItem::Delta(delta), Format::Json) => {
                output.json_line(&json!({"delta": delta}))?;
            }
            (StreamItem::Delta(delta), Format::Text) if delta.kind() == v1::DeltaKind::Output => {
                for line in delta.text.lines() {
                    output.note(&format!("{} | {line}", delta.heading));
                }
            }
            (StreamItem::Delta(delta), Format::Text) => {
                let news = view.apply_delta(&delta);
                let line = news.and_then(|news| lines.line(&view, &news, now()));
                attach::show(line, output);
            }
        }
        if output.reader() == Reader::Gone {
            break;
        }
    }
    Ok(Exit::Done)
}

/// Returns the selected runs.
fn of(asked: &cli::Events, session: &Session) -> Result<EventScope, Failure> {
    Ok(match &asked.run {
        Some(run) if asked.tree => EventScope::Tree(run.to_string()),
        Some(run) => EventScope::Run(run.to_string()),
        None if session.global.project.is_some() => {
            let project = session.project()?;
            // Runs record the canonical path of their project.
            let project = project.canonicalize().unwrap_or(project);
            EventScope::Project(project.display().to_string())
        }
        None => EventScope::All,
    })
}

fn print(event: &v1::Event, is_one: bool, output: &mut Output) -> Result<(), Failure> {
    if output.format() == Format::Json {
        return output.json_line(event);
    }
    let payload = convert::document("payload_json", &event.payload_json)?;
    let payload = payload.unwrap_or_else(|| json!({}));
    let said = render::events::sentence(&event.event_type, &payload);
    let at = event.timestamp.as_ref().map(convert::timestamp);
    let at = at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let run = if is_one { "" } else { &event.run_id };
    let line = format!(
        "{run}{:>5}  {at}  {:<17} {said}",
        event.seq, event.event_type
    );
    let line = render::cut(line.trim_end(), output.width());
    output.line(&line)
}
