//! `ls`, `show` and `completions`.

use rye_client::Client;
use rye_client::exit::Exit;
use rye_core::id::{ItemKind, ItemRef};
use rye_proto::v1;

use super::local::no_type;
use crate::cli::{self, ItemName};
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::Format;
use crate::render;
use crate::session::Session;

/// Items per page of a request.
const PAGE: u32 = 1000;

/// Selection of items for a listing.
#[derive(Debug, PartialEq, Eq)]
struct ItemSelection {
    /// Types; empty means all types that run.
    kinds: Vec<ItemKind>,
    /// Pattern of ids; empty means all.
    pattern: String,
}

impl ItemSelection {
    /// Parses `TYPE`, `GLOB`, `TYPE:GLOB`, or `TYPE GLOB`.
    fn read(first: Option<String>, second: Option<String>) -> Result<Self, Failure> {
        let first = first.unwrap_or_default();
        let (word, rest) = first.split_once(':').unwrap_or((&first, ""));
        let kind: Option<ItemKind> = word.parse().ok();
        let (kinds, pattern) = match (kind, second) {
            (Some(kind), Some(pattern)) if rest.is_empty() => (vec![kind], pattern),
            (Some(kind), None) => (vec![kind], rest.to_owned()),
            (None, None) if rest.is_empty() => (RUN.to_vec(), first),
            (None, _) => {
                return Err(no_type(word, &first).into());
            }
            (Some(_), Some(pattern)) => {
                return Err(LocalError::usage(format!(
                    "`{first}` is a pattern already, and `{pattern}` another"
                ))
                .into());
            }
        };
        Ok(Self { kinds, pattern })
    }
}

/// Types of items that run.
const RUN: [ItemKind; 2] = [ItemKind::Tool, ItemKind::Directive];

pub(super) async fn list(asked: cli::Ls, session: &mut Session) -> Result<Exit, Failure> {
    let wanted = ItemSelection::read(asked.first, asked.pattern)?;
    let project = session.project()?.display().to_string();
    let client = session.client().await?;
    let mut items = Vec::new();
    for kind in wanted.kinds {
        let request = v1::ListItemsRequest {
            project: project.clone(),
            r#type: v1::ItemType::from(kind).into(),
            pattern: wanted.pattern.clone(),
            space: asked.space.clone().unwrap_or_default(),
            page_size: PAGE,
            page_token: String::new(),
        };
        items.extend(all_pages(&client, request).await?);
    }
    // The user's own items come first.
    items.sort_by_key(|item| match item.space.as_str() {
        "project" => 0,
        "user" => 1,
        _ => 2,
    });
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&items)?,
        Format::Text => {
            let width = output.width();
            output.line(&render::items::listed(&items, width))?;
        }
    }
    Ok(Exit::Done)
}

/// Requests all pages of a listing.
async fn all_pages(
    client: &Client,
    mut request: v1::ListItemsRequest,
) -> Result<Vec<v1::Item>, Failure> {
    let mut items = Vec::new();
    loop {
        let page = client.list_items(request.clone()).await?;
        items.extend(page.items);
        if page.next_page_token.is_empty() {
            return Ok(items);
        }
        request.page_token = page.next_page_token;
    }
}

/// Returns the graphs or directives that `pattern` matches: those of the project and the user or, if there are none,
/// those that come with the daemon.
pub(super) async fn matching(
    kind: ItemKind,
    pattern: &str,
    session: &mut Session,
) -> Result<Vec<ItemRef>, Failure> {
    let request = v1::ListItemsRequest {
        project: session.project()?.display().to_string(),
        r#type: v1::ItemType::from(kind).into(),
        pattern: pattern.to_owned(),
        space: String::new(),
        page_size: PAGE,
        page_token: String::new(),
    };
    let client = session.client().await?;
    let mut items = all_pages(&client, request).await?;
    items.retain(|item| kind == ItemKind::Directive || item.tool_type == "graph");
    if items.iter().any(|item| item.space != "system") {
        items.retain(|item| item.space != "system");
    }
    if items.is_empty() {
        let what = if kind == ItemKind::Tool {
            "graph"
        } else {
            "directive"
        };
        let message = format!("no {what} matches `{pattern}`");
        return Err(LocalError::not_found(message)
            .with_hint("`ryectl ls` lists items")
            .into());
    }
    let names = items
        .into_iter()
        .map(|item| item.item.unwrap_or_default().name());
    let names = names.map(|name| ItemRef::parse(&name, kind));
    Ok(names.collect::<Result<_, _>>()?)
}

/// Requests the description of an item.
pub(super) async fn describe(
    name: &ItemName,
    session: &mut Session,
) -> Result<v1::DescribeResponse, Failure> {
    let (kind, id) = match name.as_str().split_once(':') {
        Some((word, id)) => (v1::ItemType::from(word.parse::<ItemKind>()?), id),
        None => (v1::ItemType::Unspecified, name.as_str()),
    };
    let request = v1::DescribeRequest {
        item: Some(v1::ItemRef {
            r#type: kind.into(),
            id: id.to_owned(),
        }),
        project: session.project()?.display().to_string(),
    };
    Ok(session.client().await?.describe(request).await?)
}

pub(super) async fn show(name: &ItemName, session: &mut Session) -> Result<Exit, Failure> {
    let described = describe(name, session).await?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&described)?,
        Format::Text => {
            let style = output.style();
            output.line(&render::items::described(&described, style)?)?;
        }
    }
    Ok(Exit::Done)
}

pub(super) fn completions(
    asked: &cli::Completions,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, &mut cli::command(), "ryectl", &mut script);
    let script = String::from_utf8_lossy(&script);
    session.output.line(script.trim_end())?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ls_parses_type_and_pattern() {
        let read = |words: &[&str]| {
            let mut words = words.iter().map(ToString::to_string);
            ItemSelection::read(words.next(), words.next()).ok()
        };
        let wanted = |kinds: &[ItemKind], pattern: &str| {
            Some(ItemSelection {
                kinds: kinds.to_vec(),
                pattern: pattern.to_owned(),
            })
        };
        assert_eq!(read(&[]), wanted(&RUN, ""));
        assert_eq!(read(&["app/*"]), wanted(&RUN, "app/*"));
        assert_eq!(read(&["knowledge"]), wanted(&[ItemKind::Knowledge], ""));
        assert_eq!(read(&["tool", "app/*"]), wanted(&[ItemKind::Tool], "app/*"));
        assert_eq!(read(&["tool:app/*"]), wanted(&[ItemKind::Tool], "app/*"));
        assert_eq!(read(&["tols", "app/*"]), None);
        assert_eq!(read(&["tols:app/*"]), None);
        assert_eq!(read(&["tool:a", "app/*"]), None);
    }
}
