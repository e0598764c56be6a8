//! Prints the output of the tools of a run.

use rye_client::exit::Exit;
use rye_proto::v1;
use serde_json::json;

use crate::cli;
use crate::failure::Failure;
use crate::output::{Format, Reader};
use crate::session::Session;

pub(super) async fn logs(asked: cli::Logs, session: &mut Session) -> Result<Exit, Failure> {
    let named = asked.node.is_some() && asked.item.is_some();
    let request = v1::LogsRequest {
        run_id: asked.run.to_string(),
        node: asked.node.unwrap_or_default(),
        item: asked.item.unwrap_or_default(),
        tail: asked.tail,
        follow: asked.follow,
    };
    let mut logs = session.client().await?.logs(request).await?;
    let output = &mut session.output;
    let mut reader = output.watch_reader();
    let mut last = None;
    loop {
        let next = tokio::select! {
            next = logs.next() => next?,
            () = reader.gone() => None,
        };
        let Some(v1::LogsResponse { heading, text }) = next else {
            break;
        };
        match output.format() {
            Format::Json => {
                for line in text.lines() {
                    output.json_line(&json!({"heading": heading, "line": line}))?;
                }
            }
            Format::Text => {
                // With one attempt selected, the source of the lines is known.
                if !named && !heading.is_empty() && last.as_ref() != Some(&heading) {
                    output.line(&format!("== {heading} =="))?;
                }
                output.line(text.strip_suffix('\n').unwrap_or(&text))?;
                last = Some(heading);
            }
        }
        if output.reader() == Reader::Gone {
            break;
        }
    }
    Ok(Exit::Done)
}
