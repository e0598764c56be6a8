//! `cache` and `objects`: data that runs leave in the project.

mod export;

use rye_client::exit::Exit;
use rye_proto::{convert, v1};
use serde_json::{Value, json};

use crate::cli;
use crate::failure::Failure;
use crate::output::Format;
use crate::render;
use crate::session::Session;

pub(super) use self::export::export;

pub(super) async fn list_cache(session: &mut Session) -> Result<Exit, Failure> {
    let project = session.project()?.display().to_string();
    let entries = session.client().await?.cache(&project).await?;
    let now = session.environment.now;
    let output = &mut session.output;
    if output.format() == Format::Json {
        output.json(&entries)?;
        return Ok(Exit::Done);
    }
    let rows: Vec<[String; 4]> = entries
        .into_iter()
        .map(|entry| {
            let age = entry.cached_at.as_ref().map(convert::timestamp);
            let age = age.map(|at| render::age(now.ms_since(at)));
            let node = if entry.trusted {
                entry.node
            } else {
                "(not signed by this daemon)".to_owned()
            };
            [entry.key, node, entry.result_hash, age.unwrap_or_default()]
        })
        .collect();
    output.line(&render::table(["KEY", "NODE", "RESULT", "AGE"], &rows))?;
    Ok(Exit::Done)
}

pub(super) async fn drop_cache(drop: cli::Drop, session: &mut Session) -> Result<Exit, Failure> {
    let named = drop.keys.len();
    let request = v1::DropCacheRequest {
        project: session.project()?.display().to_string(),
        keys: drop.keys,
        all: drop.all,
    };
    let dropped = session.client().await?.drop_cache(request).await?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&json!({"dropped": dropped}))?,
        Format::Text => output.line(&format!("dropped {dropped}"))?,
    }
    let missing = named.saturating_sub(usize::try_from(dropped).unwrap_or(usize::MAX));
    if missing > 0 {
        output.error(&format!("{missing} of the keys are not in the cache"));
        return Ok(Exit::NotFound);
    }
    Ok(Exit::Done)
}

pub(super) async fn get(hash: &str, session: &mut Session) -> Result<Exit, Failure> {
    let project = session.project()?.display().to_string();
    let text = session.client().await?.object(&project, hash).await?;
    let object = convert::document("object_json", &text)?.unwrap_or(Value::Null);
    session.output.json(&object)?;
    Ok(Exit::Done)
}
