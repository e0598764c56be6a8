//! Finding items of a project: by their ids, and by what they say.
//!
//! **Owns** the search index of one library ([`Search`]), which is in memory only: it is built by the first query, and dropped when
//! nobody has asked for ten minutes, the next time that a project is visited. **Never** shows an item that the layers of whoever asks
//! do not allow to fetch, nor counts it; never shows more of a file that is not verified than what it says of itself; and never
//! hands out an unverified text by its id.
//!
//! **Order.** Whether folders have changed is looked at for every query, whether files have changed when two seconds have passed.
//! Results are verified when they are shown. **Failure.** A file that cannot be read is not found. Calls block, and are made in a visit
//! of the project.

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

/// Why nothing is fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The item is refused or not there; the item's own error names it, its file and the fix.
    #[error(transparent)]
    Item(Box<library::Error>),
    /// An id, or a part of a scope, is none.
    #[error("failed to read `{field}`")]
    Id {
        /// The parameter.
        field: &'static str,
        /// Why.
        #[source]
        source: InvalidId,
    },
    /// The query cannot be read.
    #[error(transparent)]
    Query(#[from] BadQuery),
    /// Parameters that cannot be, or not together.
    #[error("{0}")]
    Invalid(String),
    /// Nothing of any type has this id.
    #[error(
        "no tool, directive or knowledge `{id}` that may be fetched exists{}; look for it with a `query`",
        did_you_mean(near.as_ref())
    )]
    NotFound {
        /// The id.
        id: String,
        /// What may have been meant.
        near: Option<ItemRef>,
    },
    /// A layer does not allow it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Something is in the place of a copy.
    #[error("`{path}` is there already; {fix}")]
    Exists {
        /// The file.
        path: PathBuf,
        /// What to do.
        fix: &'static str,
    },
    /// A copy cannot be written.
    #[error("failed to write `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
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

pub use self::listed::{Described, Wanted, describe, list};

/// The types that are tried if nobody says which.
const TRIED: [ItemKind; 3] = [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge];

/// What is asked for: an item by its id, or items by a query.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
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

impl Asked {
    /// Reads parameters; those that are null count as absent.
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

/// On whose behalf something is fetched.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Each of these must allow it.
    pub layers: &'a [Layer],
    /// When, for what grows old.
    pub now: Uptime,
    /// What tells a file that is being written from those of others.
    pub random: u64,
}

impl Caller<'_> {
    fn may(&self, primary: Primary, item: &ItemRef) -> Result<(), Error> {
        Ok(permit(self.layers, primary, item)?)
    }
}

/// The search index of one library.
#[derive(Debug, Default)]
pub struct Search {
    documents: Mutex<Option<Documents>>,
}

impl Search {
    /// What `asked` names, or finds.
    pub fn fetch(
        &self,
        library: &Library,
        asked: &Asked,
        caller: &Caller<'_>,
    ) -> Result<Value, Error> {
        match (&asked.item_id, &asked.query) {
            (Some(id), _) => one::fetch(library, id, asked, caller),
            (None, Some(query)) => {
                let query = query::Asked::read(query, asked)?;
                let mut documents = self.documents();
                let documents = documents.get_or_insert_default();
                documents.refresh(library, caller.now);
                Ok(query.answer(documents, library, caller))
            }
            (None, None) => Err(Error::Invalid("nothing is asked for".to_owned())),
        }
    }

    /// Drops the index if nobody has asked for a while.
    pub fn drop_if_idle(&self, now: Uptime) {
        // Whoever holds it is using it.
        if let Ok(mut documents) = self.documents.try_lock() {
            documents.take_if(|documents| documents.is_old(now));
        }
    }

    fn documents(&self) -> std::sync::MutexGuard<'_, Option<Documents>> {
        self.documents
            .lock()
            .unwrap_or_else(|poisoned: PoisonError<_>| {
                // Half of an update is worse than none.
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
