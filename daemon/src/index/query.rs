//! Searches items by a query.

use std::cmp::Ordering;

use itertools::Itertools as _;
use rye_core::capability::Primary;
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::search::{Hit, SearchQuery};
use rye_item::{Library, Space};
use serde_json::{Map, Value, json};

use super::documents::{Documents, Known};
use super::{Caller, Error, space};

/// Default number of results.
const RESULTS: usize = 10;
/// Maximum number of results.
const MOST_RESULTS: usize = 100;
/// Length of a preview in characters.
const PREVIEW: usize = 200;

/// A parsed query.
pub(super) struct SearchRequest<'a> {
    text: &'a str,
    query: SearchQuery,
    scope: Option<&'a str>,
    within: Scope,
    source: Option<Space>,
    limit: usize,
    offset: usize,
}

/// Filter of searched items.
struct Scope {
    kinds: Vec<ItemKind>,
    folder: Option<ItemId>,
}

impl<'a> SearchRequest<'a> {
    pub(super) fn read(text: &'a str, asked: &'a super::FetchRequest) -> Result<Self, Error> {
        let scope = asked.scope.as_deref().filter(|scope| !scope.is_empty());
        let kind = asked.item_type.as_deref().map(kind).transpose()?;
        let within = match scope {
            None => Scope {
                kinds: kind.map_or_else(every_kind, |kind| vec![kind]),
                folder: None,
            },
            Some(scope) => Scope::read(scope)?,
        };
        if let Some(kind) = kind.filter(|kind| !within.kinds.contains(kind)) {
            let text = format!("`scope` holds no {kind}, which `item_type` requests");
            return Err(Error::Invalid(text));
        }
        let source = match asked.source.as_deref() {
            None | Some("all" | "local") => None,
            Some(word) => Some(space("source", word)?),
        };
        Ok(Self {
            text,
            query: SearchQuery::parse(text)?,
            scope,
            within,
            source,
            limit: asked.limit.unwrap_or(RESULTS).clamp(1, MOST_RESULTS),
            offset: asked.offset.unwrap_or(0),
        })
    }

    pub(super) fn answer(
        &self,
        documents: &Documents,
        library: &Library,
        caller: &Caller<'_>,
    ) -> Value {
        let is_asked = |known: &Known| {
            self.within.holds(&known.item)
                && self.source.is_none_or(|source| source == known.space)
                && caller.may(Primary::Fetch, &known.item).is_ok()
        };
        let is_asked = |doc| documents.known(doc).is_some_and(is_asked);
        let hits = documents.index.search(&self.query, is_asked);
        let total = hits.len();
        let end = self.offset.saturating_add(self.limit).min(total);
        let found = hits
            .into_iter()
            .filter_map(|hit| Some((hit, documents.known(hit.doc)?)));
        let page = found.k_smallest_by(end, in_order).skip(self.offset);
        let results: Vec<Value> = page
            .map(|(hit, known)| shown(documents, library, hit, known))
            .collect();
        json!({
            "results": results,
            "total": total,
            "query": self.text,
            "scope": self.scope,
            "source": self.source.map_or("all", Space::as_str),
            "limit": self.limit,
            "offset": self.offset,
            "search_type": "keyword",
            "mode": "query",
        })
    }
}

/// By score, best first, then by space, nearest first, then by name.
fn in_order((one, known): &(Hit, &Known), (other, beside): &(Hit, &Known)) -> Ordering {
    let by_score = other.score.total_cmp(&one.score);
    let by_space = by_score.then(known.rank.0.cmp(&beside.rank.0));
    let by_item = by_space.then_with(|| known.item.cmp(&beside.item));
    by_item.then(known.rank.cmp(&beside.rank))
}

/// A result. The shown text of an item is verified.
fn shown(documents: &Documents, library: &Library, hit: Hit, known: &Known) -> Value {
    let verified = match &known.location {
        None => library.in_space(&known.item, known.space).ok().flatten(),
        Some(place) => library.at(place).ok(),
    };
    let preview = verified.as_ref().map(|item| {
        let text = match known.item.kind {
            ItemKind::Knowledge => item.knowledge(),
            ItemKind::Tool | ItemKind::Directive | ItemKind::Config => item.unsigned(),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").chars().take(PREVIEW).collect::<String>()
    });
    let score = (hit.score * 10_000.0).round() / 10_000.0;
    let mut result = Map::new();
    let mut put = |key: &str, value: Value| result.insert(key.to_owned(), value);
    put("id", json!(known.item.id));
    put("type", json!(known.item.kind.as_str()));
    put("name", json!(known.item.id.name()));
    put("title", json!(known.title));
    put("description", json!(known.description));
    put("preview", json!(preview));
    put("source", json!(known.space.as_str()));
    put("path", json!(known.path.display().to_string()));
    put("score", json!(score));
    put("verified", json!(verified.is_some()));
    let namesakes = documents.namesakes(hit.doc, &known.item);
    let (above, below): (Vec<&Known>, Vec<&Known>) = namesakes
        .into_iter()
        .partition(|other| other.rank < known.rank);
    if let Some(first) = above.first() {
        put("shadowed_by", place(first));
    }
    if !below.is_empty() {
        put("shadows", below.into_iter().map(place).collect());
    }
    Value::Object(result)
}

fn place(known: &Known) -> Value {
    json!({"path": known.path.display().to_string(), "space": known.space.as_str()})
}

/// Types searched by default; configuration is left out.
fn every_kind() -> Vec<ItemKind> {
    vec![ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge]
}

pub(super) fn kind(word: &str) -> Result<ItemKind, Error> {
    word.parse().map_err(|source| Error::Id {
        field: "item_type",
        source,
    })
}

impl Scope {
    /// Parses `TYPE`, `TYPE.a.b` or `TYPE.a.b.*`, also with a prefix such as `rye.fetch.`: the items in the folder
    /// `a/b` and below it, and the item `a/b` itself.
    fn read(text: &str) -> Result<Self, Error> {
        let words = ["rye.fetch.", "rye.search.", "rye.load.", "rye.*."];
        let stripped = words.iter().find_map(|start| text.strip_prefix(start));
        let rest = stripped.unwrap_or(text);
        let (word, folder) = rest.split_once(['.', ':']).unwrap_or((rest, ""));
        let folder = folder.strip_suffix(".*").unwrap_or(folder);
        let folder = if folder == "*" { "" } else { folder };
        let kinds = if word == "*" {
            every_kind()
        } else {
            vec![kind(word).map_err(|_unknown| {
                Error::Invalid(format!(
                    "`scope` {text:?} is not one; write a type, or a type and a folder as in `tool.rye.file-system`"
                ))
            })?]
        };
        let id = folder
            .replace('.', "/")
            .replace("%2E", ".")
            .replace("%25", "%");
        let folder = match id.as_str() {
            "" => None,
            id => Some(ItemId::new(id).map_err(|source| Error::Id {
                field: "scope",
                source,
            })?),
        };
        Ok(Self { kinds, folder })
    }

    fn holds(&self, item: &ItemRef) -> bool {
        let is_below = |folder: &ItemId| match item.id.as_str().strip_prefix(folder.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        self.kinds.contains(&item.kind) && self.folder.as_ref().is_none_or(is_below)
    }
}
