//! `fetch`.

use rye_client::exit::Exit;
use rye_proto::{convert, v1};
use serde_json::Value;

use crate::cli;
use crate::failure::Failure;
use crate::output::Format;
use crate::render;
use crate::session::Session;

pub(super) async fn fetch(fetch: cli::Fetch, session: &mut Session) -> Result<Exit, Failure> {
    let request = v1::FetchRequest {
        project: session.project()?.display().to_string(),
        item_id: fetch.item.map(|item| item.to_string()).unwrap_or_default(),
        item_type: v1::ItemType::Unspecified.into(),
        source: fetch.source.unwrap_or_default(),
        destination: fetch.copy_to.unwrap_or_default(),
        replace: fetch.replace,
        parsed: false,
        query: fetch.query,
        scope: fetch.scope.unwrap_or_default(),
        limit: fetch.limit,
        offset: fetch.offset,
    };
    let answer = session.client().await?.fetch(request).await?;
    let answer = convert::object("result_json", &answer.result_json)?;
    let output = &mut session.output;
    let text = |key: &str| answer.get(key).and_then(Value::as_str);
    if let Format::Json = output.format() {
        output.json(&answer)?;
    } else if let Some(content) = text("content") {
        output.line(content.trim_end_matches('\n'))?;
        if let Some(path) = text("destination_path") {
            output.note(&format!("copied to {path}"));
        }
    } else {
        output.line(&render::items::found(&answer))?;
    }
    Ok(Exit::Done)
}
