//! `rye/core/fetch`: items of the project, by id and by query.
//!
//! The layers of the run decide which items may be fetched ([`crate::index`]).

use rye_core::error::{ErrorKind, Kinded};
use rye_core::model::{Failure, Object};
use serde_json::Value;

use super::session::Session;
use crate::index::{self, Caller, FetchRequest};
use crate::port::Refusal;
use crate::projects;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Project(#[from] projects::Error),
    #[error(transparent)]
    Index(#[from] index::Error),
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Project(error) => error.kind(),
            Self::Index(error) => error.kind(),
        }
    }
}

/// Answers the request in the parameters.
pub(super) async fn fetch(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let failed = |error: Error| match error {
        Error::Index(index::Error::Denied(denied)) => {
            Failure::permanent("permission_denied", denied.to_string())
        }
        Error::Project(error) => {
            let gone = error.gone();
            gone.unwrap_or_else(|| Refusal::from(&error).of_item())
        }
        error @ Error::Index(_) => Refusal::from(&error).of_item(),
    };
    let asked = FetchRequest::read(params).map_err(|error| failed(error.into()))?;
    let layers = session.spec.layers.clone();
    let (now, random) = (session.clock.up(), session.clock.random());
    let fetched = session
        .projects
        .visit(session.spec, "fetch items", move |inside| {
            let caller = Caller {
                layers: &layers,
                now,
                random,
            };
            let found = inside.search.fetch(inside.library, &asked, &caller);
            found.map_err(Error::from)
        });
    fetched.await.map_err(failed)
}
