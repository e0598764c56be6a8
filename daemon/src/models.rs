//! The models that a project offers.
//!
//! **Owns** the reading of provider files (`config:agent/providers/*`) and of `config:agent/agent` as a project sees
//! them. **Never** reads the value of a secret, and never skips a refused file: its models would seem not to exist.
//!
//! **Order.** A provider file of a higher space replaces the one of that name in a lower space as a whole; the files of
//! `agent` are merged. **Failure.** All errors of all files are reported, with the file and the position.

mod list;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rye_core::definition::{Finding, Severity};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::provider::{
    self, AGENT, Agent, ModelRequest, Owner, PROVIDERS, Provider, ResolvedModel, Unresolved,
};
use rye_item::{Item, Library, Space, library};
use serde_json::Value;

use crate::provider::names;

pub use self::list::{Listing, Offer, Offerer};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is refused; its own error names it and the fix.
    #[error(transparent)]
    Item(Box<library::Error>),
    /// The content of files is invalid.
    #[error("the configuration of models does not validate:\n{findings}")]
    Invalid {
        /// The findings, one per line.
        findings: String,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Item(source) => source.kind(),
            Self::Invalid { .. } => ErrorKind::Invalid,
        }
    }
}

/// Providers of a project, with its tiers and aliases.
#[derive(Debug)]
pub struct Models {
    agent: Agent,
    providers: BTreeMap<String, Provider>,
    pub warnings: Vec<String>,
}

/// Findings in the files, one per line.
#[derive(Default)]
struct Found {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Found {
    fn note(&mut self, place: &str, findings: &[Finding]) {
        for finding in findings {
            let list = match finding.severity {
                Severity::Error => &mut self.errors,
                Severity::Warning => &mut self.warnings,
            };
            list.push(format!("{place}:{finding}"));
        }
    }
}

impl Models {
    /// Reads the files that `library` sees. Blocks.
    pub fn read(library: &Library) -> Result<Self, Error> {
        let mut found = Found::default();
        let agent = agent(library, &mut found)?;
        let mut providers = BTreeMap::new();
        for file in provider_files(library)? {
            let path = file.path.display().to_string();
            match Provider::parse(&file.text, file.id(), owner(&file)) {
                Ok((provider, findings)) => {
                    found.note(&path, &findings);
                    providers.insert(provider.name.clone(), provider);
                }
                Err(findings) => found.note(&path, &findings),
            }
        }
        match agent {
            Some(agent) if found.errors.is_empty() => Ok(Self {
                agent,
                providers,
                warnings: found.warnings,
            }),
            Some(_) | None => Err(Error::Invalid {
                findings: found.errors.join("\n"),
            }),
        }
    }

    /// Chooses a model. The text explains a choice that differs from the request. `has_secret` is true if there is a
    /// secret of that name for files of that owner.
    pub fn choose(
        &self,
        asked: &ModelRequest<'_>,
        has_secret: &dyn Fn(Owner, &str) -> bool,
    ) -> Result<(ResolvedModel, Option<String>), Unresolved> {
        provider::resolve(asked, &self.agent, &self.providers, has_secret)
    }
}

/// Names of the secrets that provider files refer to: variables that are withheld from prompts and processes. Files
/// that another one replaces are included, so that a project cannot expose a secret by a file of its own. Blocks.
pub fn secrets(library: &Library) -> Result<BTreeSet<String>, Error> {
    let mut found = Found::default();
    let mut secrets = BTreeSet::new();
    for file in provider_files(library)? {
        let mut next = Some(file);
        while let Some(file) = next {
            match Provider::parse(&file.text, file.id(), owner(&file)) {
                Ok((provider, _)) => secrets.append(&mut names([&provider.endpoint])),
                Err(findings) => found.note(&file.path.display().to_string(), &findings),
            }
            next = replaced(library, &file)?;
        }
    }
    if found.errors.is_empty() {
        return Ok(secrets);
    }
    Err(Error::Invalid {
        findings: found.errors.join("\n"),
    })
}

/// The file that `file` replaces.
fn replaced(library: &Library, file: &Item) -> Result<Option<Arc<Item>>, Error> {
    let below = match file.space {
        Space::Project => Space::User,
        Space::User => Space::System,
        Space::System => return Ok(None),
    };
    match library.resolve(&file.item, below) {
        Ok(file) => Ok(Some(file)),
        Err(library::Error::NotFound { .. } | library::Error::OutOfReach { .. }) => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

fn refused(source: library::Error) -> Error {
    Error::Item(Box::new(source))
}

/// Provider files of a project, those of the user and of the system included.
fn provider_files(library: &Library) -> Result<Vec<Arc<Item>>, Error> {
    let folder = ItemId::new(PROVIDERS).expect("the folder is a plain path");
    let files = library.category(ItemKind::Config, &folder);
    files.map_err(refused)
}

fn owner(file: &Item) -> Owner {
    match file.space {
        Space::Project => Owner::Project,
        Space::User | Space::System => Owner::User,
    }
}

/// Parses the merged files of `agent`; `None` if they are invalid.
fn agent(library: &Library, found: &mut Found) -> Result<Option<Agent>, Error> {
    let item = ItemRef {
        kind: ItemKind::Config,
        id: ItemId::new(AGENT).expect("the name of the file is a plain path"),
    };
    let merged = library.config(&item).map_err(refused)?;
    let place = item.to_string();
    Ok(match Agent::from_config(&Value::Object(merged)) {
        Ok((agent, findings)) => {
            found.note(&place, &findings);
            Some(agent)
        }
        Err(findings) => {
            found.note(&place, &findings);
            None
        }
    })
}
