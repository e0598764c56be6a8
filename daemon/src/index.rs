//! Search for items of a project, by id and by content.
//!
//! **Owns** the search index of one library ([`Search`]), which is in memory only. The first query builds it. After ten
//! minutes without a query, the next visit of a project drops it. **Never** shows or counts an item that the caller's
//! layers do not allow to fetch. Never shows more of an unverified file than its metadata, and never returns an
//! unverified text by its id.
//!
//! **Order.** Changes of folders are checked for every query; changes of files are checked when two seconds have
//! passed. Results are verified when they are shown. **Failure.** An unreadable file is not found. Calls block, and are
//! made in the file pool of the project.

mod copy;
mod documents;
mod listed;
mod one;
mod query;
#[cfg(test)]
pub(crate) mod tests;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rye_core::capability::{Denied, Layer, Primary, permit};
use rye_core::clock::Uptime;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::expr::did_you_mean;
use rye_core::id::{InvalidId, ItemKind, ItemRef};
use rye_core::search::BadQuery;
use rye_item::library;
use rye_item::{Library, Space};
use serde::Deserialize;
use serde_json::Value;

use self::documents::Documents;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The item is refused or missing; its own error names it, its file and the fix.
    #[error(transparent)]
    Item(Box<library::Error>),
    /// An id, or a part of a scope, is invalid.
    #[error("failed to read `{field}`")]
    Id {
        field: &'static str,
        #[source]
        source: InvalidId,
    },
    #[error(transparent)]
    Query(#[from] BadQuery),
    /// Parameters are invalid, alone or together.
    #[error("{0}")]
    Invalid(String),
    /// No item of any type has this id.
    #[error(
        "no tool, directive or knowledge `{id}` that may be fetched exists{}; look for it with a `query`",
        did_you_mean(near.as_ref())
    )]
    NotFound {
        id: String,
        /// Suggested item.
        near: Option<ItemRef>,
    },
    /// A layer does not allow it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The destination of a copy exists.
    #[error("`{path}` is there already; {fix}")]
    Exists { path: PathBuf, fix: &'static str },
    #[error("failed to write `{path}`")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Item(error) => error.kind(),
            Self::Id { .. } | Self::Query(_) | Self::Invalid(_) => ErrorKind::Invalid,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Denied(_) => ErrorKind::Denied,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Write { .. } => ErrorKind::Unavailable,
        }
    }
}

impl From<library::Error> for Error {
    fn from(error: library::Error) -> Self {
        Self::Item(Box::new(error))
    }
}

impl From<Box<library::Error>> for Error {
    fn from(error: Box<library::Error>) -> Self {
        Self::Item(error)
    }
}

pub use self::listed::{Described, ItemFilter, describe, list};

/// Types that are tried if the type is not given.
const TRIED: [ItemKind; 3] = [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge];

/// Parameters of a request: an item by its id, or items by a query.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchRequest {
    item_id: Option<String>,
    item_type: Option<String>,
    source: Option<String>,
    destination: Option<String>,
    #[serde(default)]
    replace: bool,
    #[serde(default)]
    parsed: bool,
    query: Option<String>,
    scope: Option<String>,
    limit: Option<usize>,
    offset: Option<usize>,
}

impl FetchRequest {
    /// Reads parameters; null counts as absent.
    pub fn read(mut params: rye_core::model::Object) -> Result<Self, Error> {
        params.retain(|_, value| !value.is_null());
        let asked: Self = serde_json::from_value(Value::Object(params))
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let of_query = asked.scope.is_some() || asked.limit.is_some() || asked.offset.is_some();
        let of_item = asked.destination.is_some() || asked.replace || asked.parsed;
        let problem = match (&asked.item_id, &asked.query) {
            (None, None) => "name an item by `item_id`, or look for items with a `query`",
            (Some(_), Some(_)) => "`item_id` and `query` do not go together",
            (Some(_), None) if of_query => "`scope`, `limit` and `offset` go with a `query`",
            (None, Some(_)) if of_item => {
                "`destination`, `replace` and `parsed` go with an `item_id`"
            }
            (Some(_), None) | (None, Some(_)) => return Ok(asked),
        };
        Err(Error::Invalid(problem.to_owned()))
    }
}

/// Context of a request.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Each of these must allow the access.
    pub layers: &'a [Layer],
    /// Current time, for the age of the index.
    pub now: Uptime,
    /// Random number for the name of a temporary file.
    pub random: u64,
}

impl Caller<'_> {
    fn may(&self, primary: Primary, item: &ItemRef) -> Result<(), Error> {
        Ok(permit(self.layers, primary, item)?)
    }
}

/// Search index of one library.
#[derive(Debug, Default)]
pub struct Search {
    documents: Mutex<Option<Documents>>,
}

impl Search {
    /// Answers the request `asked`.
    pub fn fetch(
        &self,
        library: &Library,
        asked: &FetchRequest,
        caller: &Caller<'_>,
    ) -> Result<Value, Error> {
        match (&asked.item_id, &asked.query) {
            (Some(id), _) => one::fetch(library, id, asked, caller),
            (None, Some(query)) => {
                let query = query::SearchRequest::read(query, asked)?;
                let mut documents = self.documents();
                let documents = documents.get_or_insert_default();
                documents.refresh(library, caller.now);
                Ok(query.answer(documents, library, caller))
            }
            (None, None) => Err(Error::Invalid("nothing is requested".to_owned())),
        }
    }

    /// Drops the index if it was idle for long.
    pub fn drop_if_idle(&self, now: Uptime) {
        // A locked index is in use.
        if let Ok(mut documents) = self.documents.try_lock() {
            documents.take_if(|documents| documents.is_old(now));
        }
    }

    fn documents(&self) -> std::sync::MutexGuard<'_, Option<Documents>> {
        self.documents
            .lock()
            .unwrap_or_else(|poisoned: PoisonError<_>| {
                // A partial update is discarded.
                let mut documents = poisoned.into_inner();
                *documents = None;
                documents
            })
    }
}

fn space(field: &str, word: &str) -> Result<Space, Error> {
    let spaces = [Space::Project, Space::User, Space::System];
    let found = spaces.into_iter().find(|space| space.as_str() == word);
    found.ok_or_else(|| {
        Error::Invalid(format!(
            "`{field}` is one of project, user and system, not {word:?}"
        ))
    })
}
