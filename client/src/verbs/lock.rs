//! `lock create|verify|ls`: the daemon computes the lock of a tool, and the user's key signs it here.

use std::path::PathBuf;

use rye_client::Client;
use rye_client::exit::Exit;
use rye_core::id::{ItemId, ItemRef};
use rye_item::lock;
use rye_proto::{convert, v1};
use serde_json::json;

use super::local::Local;
use crate::cli::ItemName;
use crate::failure::Failure;
use crate::output::Format;
use crate::render;
use crate::session::Session;

/// Requests the lock that `tool` would have now.
async fn request_lock(
    client: &Client,
    tool: &ItemId,
    project: &str,
) -> Result<v1::LockResponse, Failure> {
    let item = ItemRef::tool(tool.clone()).canonical();
    let request = v1::LockRequest {
        item: Some((&item).into()),
        project: project.to_owned(),
    };
    Ok(client.lock(request).await?)
}

fn ids(names: &[ItemName]) -> Result<Vec<ItemId>, Failure> {
    let ids = names.iter().map(|name| Ok(name.item()?.id));
    ids.collect()
}

struct Written {
    tool: String,
    version: String,
    path: PathBuf,
    unsigned: Vec<String>,
}

pub(super) async fn create(tools: &[ItemName], session: &mut Session) -> Result<Exit, Failure> {
    let local = Local::of(session)?;
    let key = local.key()?;
    local.warn_of_untrusted(key.public().fingerprint(), &mut session.output);
    let project = session.project()?.display().to_string();
    let client = session.client().await?;
    let output = &mut session.output;
    let (mut exit, mut written) = (Exit::Done, Vec::new());
    for tool in &ids(tools)? {
        let done = request_lock(&client, tool, &project)
            .await
            .and_then(|answer| {
                let mut content = convert::object("lock_json", &answer.lock_json)?;
                content.insert("generated_at".to_owned(), local.now.to_string().into());
                let id = ItemId::new(answer.tool_id.as_str())?;
                let path = lock::write(
                    &local.spaces,
                    &id,
                    &answer.version,
                    content,
                    &key,
                    local.now,
                )?;
                Ok(Written {
                    tool: answer.tool_id,
                    version: answer.version,
                    path,
                    unsigned: answer.unsigned_files,
                })
            });
        match done {
            Ok(done) => {
                if output.format() == Format::Text {
                    let (tool, version, path) = (&done.tool, &done.version, done.path.display());
                    output.line(&format!("locked {tool} {version} ({path})"))?;
                    for file in &done.unsigned {
                        output.note(&format!("  covers {file}, which is not signed"));
                    }
                }
                written.push(done);
            }
            Err(failure) => exit = output.part(exit, Err(failure)),
        }
    }
    if output.format() == Format::Json {
        let written: Vec<_> = written
            .iter()
            .map(|done| {
                json!({
                    "tool": done.tool,
                    "version": done.version,
                    "path": done.path,
                    "unsigned_files": done.unsigned,
                })
            })
            .collect();
        output.json(&written)?;
    }
    Ok(exit)
}

pub(super) async fn verify(tools: &[ItemName], session: &mut Session) -> Result<Exit, Failure> {
    let local = Local::of(session)?;
    let mut tools = ids(tools)?;
    let mut strays = Vec::new();
    if tools.is_empty() {
        for listed in lock::list(&local.spaces) {
            match listed.id() {
                Ok(tool) => tools.push(tool),
                Err(stray) => strays.push(stray),
            }
        }
        tools.dedup();
    }
    let project = session.project()?.display().to_string();
    let client = session.client().await?;
    let output = &mut session.output;
    let (mut exit, mut found) = (Exit::Done, Vec::new());
    for stray in strays {
        exit = output.part(exit, Err(stray.into()));
    }
    for tool in &tools {
        match request_lock(&client, tool, &project).await {
            Ok(answer) => {
                if answer.standing() != v1::LockStanding::Matches && exit == Exit::Done {
                    exit = Exit::Failed;
                }
                if output.format() == Format::Text {
                    let (id, version) = (&answer.tool_id, &answer.version);
                    output.line(&format!("{}  {id} {version}", word(answer.standing())))?;
                    if !answer.problem.is_empty() {
                        output.note(&format!("  {}", answer.problem));
                    }
                }
                found.push(answer);
            }
            Err(failure) => exit = output.part(exit, Err(failure)),
        }
    }
    if output.format() == Format::Json {
        let found: Vec<_> = found
            .iter()
            .map(|answer| {
                json!({
                    "tool": answer.tool_id,
                    "version": answer.version,
                    "standing": word(answer.standing()),
                    "path": Some(&answer.path).filter(|path| !path.is_empty()),
                    "problem": Some(&answer.problem).filter(|problem| !problem.is_empty()),
                })
            })
            .collect();
        output.json(&found)?;
    }
    Ok(exit)
}

/// Returns the state of a tool's lock in words.
const fn word(standing: v1::LockStanding) -> &'static str {
    match standing {
        v1::LockStanding::Unspecified => "unknown",
        v1::LockStanding::Absent => "no lock",
        v1::LockStanding::Unsigned => "not signed",
        v1::LockStanding::Matches => "as locked",
        v1::LockStanding::Refused => "refused",
    }
}

pub(super) fn list(session: &mut Session) -> Result<Exit, Failure> {
    let local = Local::of(session)?;
    let found = lock::list(&local.spaces);
    let output = &mut session.output;
    match output.format() {
        Format::Json => {
            let found: Vec<_> = found
                .iter()
                .map(|lock| {
                    json!({
                        "tool": lock.tool,
                        "version": lock.version,
                        "space": lock.space.as_str(),
                        "path": lock.path,
                    })
                })
                .collect();
            output.json(&found)?;
        }
        Format::Text => {
            let rows: Vec<[String; 4]> = found
                .into_iter()
                .map(|lock| {
                    let (space, path) = (lock.space.to_string(), lock.path.display().to_string());
                    [lock.tool, lock.version, space, path]
                })
                .collect();
            output.line(&render::table(["TOOL", "VERSION", "SPACE", "FILE"], &rows))?;
        }
    }
    Ok(Exit::Done)
}
