//! The program that runs the files of a runtime. It is searched in the environments of the project, then on the PATH.
//!
//! **Never** starts a program or reads a file for the search: the program only has to exist. A setting of the daemon
//! takes precedence over the runtime.

use std::path::{Path, PathBuf};

use rye_core::declared::Fields as _;
use serde_json::{Value, json};

use super::environment::{self, Environment};
use super::error::Error;
use super::fields::Section;
use super::template_paths::TemplatePaths;
use super::verified::Chain;
use crate::config::Config;

/// Keys of `env_config`.
pub(super) const SECTION: [&str; 2] = ["interpreter", "env"];
/// Keys of `env_config.interpreter`.
pub(super) const KEYS: [&str; 7] = [
    "type",
    "binary",
    "candidates",
    "search_roots",
    "search_paths",
    "var",
    "fallback",
];

#[derive(Debug)]
pub(super) struct Interpreter {
    /// Variable for the program in templates.
    pub(super) variable: String,
    pub(super) path: PathBuf,
    searched: Vec<PathBuf>,
}

impl Interpreter {
    pub(super) fn traced(&self) -> Value {
        json!({
            "step": "interpreter",
            "var": self.variable,
            "path": self.path,
            "looked_in": self.searched,
        })
    }
}

/// Request of an element for an interpreter.
struct InterpreterRequest<'e>(Section<'e>);

/// Finds the interpreter that an element of `chain` requests.
pub(super) fn find(
    chain: &Chain,
    places: &TemplatePaths,
    environment: &Environment,
    config: &Config,
) -> Result<Option<Interpreter>, Error> {
    let wanted = request(chain)?;
    let found = wanted.map(|wanted| wanted.find(chain, places, environment, config));
    found.transpose()
}

/// Finds the interpreter if an `env` of `chain` names its variable. That `env` is not part of `environment` yet.
pub(super) fn find_for_env(
    chain: &Chain,
    places: &TemplatePaths,
    environment: &Environment,
    config: &Config,
) -> Result<Option<Interpreter>, Error> {
    let Some(wanted) = request(chain)? else {
        return Ok(None);
    };
    let variable = wanted.0.text("var")?.unwrap_or_default();
    let is_named = chain
        .elements()
        .any(|element| environment::names(element, variable));
    let found = is_named.then(|| wanted.find(chain, places, environment, config));
    found.transpose()
}

/// Returns the request for an interpreter. That of the tool takes precedence over its runtime's.
fn request(chain: &Chain) -> Result<Option<InterpreterRequest<'_>>, Error> {
    for element in &chain.elements {
        let Some(section) = &element.metadata.env_config else {
            continue;
        };
        let section = Section::new(element, "env_config", section, &SECTION)?;
        if let Some(keys) = section.map("interpreter", "a mapping")? {
            let wanted = Section::new(element, "env_config.interpreter", keys, &KEYS)?;
            return Ok(Some(InterpreterRequest(wanted)));
        }
    }
    Ok(None)
}

/// Returns the names and the directories that were tried, or `None` if either is empty.
fn names_in(names: &[&str], place: &str) -> Option<String> {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    (!names.is_empty() && !place.is_empty()).then(|| format!("{} in {place}", names.join(", ")))
}

impl InterpreterRequest<'_> {
    fn find(
        &self,
        chain: &Chain,
        places: &TemplatePaths,
        environment: &Environment,
        config: &Config,
    ) -> Result<Interpreter, Error> {
        let is_local = match self.0.text("type")? {
            Some("local_binary") => true,
            Some("system_binary") => false,
            Some("command") => {
                return Err(self.0.malformed(
                    "type",
                    "is `command`, which this version of ryed does not run; name the program in the daemon's setting \
                     `interpreters`, and write `local_binary` or `system_binary`",
                ));
            }
            _ => {
                return Err(self
                    .0
                    .malformed("type", "must be `local_binary` or `system_binary`"));
            }
        };
        let missing = |key| self.0.malformed(key, "is missing");
        let variable = self
            .0
            .text("var")?
            .ok_or_else(|| missing("var"))?
            .to_owned();
        if let Some(path) = config.interpreters.get(&variable) {
            return Self::set(chain, variable, path);
        }
        let mut names = vec![self.0.text("binary")?.ok_or_else(|| missing("binary"))?];
        names.extend(self.0.texts("candidates")?);
        let fallback = self.0.text("fallback")?;
        let local = if is_local {
            self.directories(places)?
        } else {
            Vec::new()
        };
        let beside = local
            .iter()
            .flat_map(|directory| names.iter().map(move |name| directory.join(name)));
        let on_path: Vec<&str> = match (is_local, fallback) {
            (true, fallback) => fallback.into_iter().collect(),
            (false, fallback) => names.iter().copied().chain(fallback).collect(),
        };
        let search = environment.path();
        // An empty part of PATH means the working directory, which is that of the daemon.
        let directories: Vec<PathBuf> = std::env::split_paths(&search)
            .filter(|directory| directory.is_absolute())
            .collect();
        let installed = on_path.iter().flat_map(|name| {
            directories
                .iter()
                .map(move |directory| directory.join(name))
        });
        let found = beside.chain(installed).find(|path| path.is_file());
        let Some(path) = found else {
            let shown = |path: &PathBuf| path.display().to_string();
            let beside = local.iter().map(shown).collect::<Vec<_>>().join(", ");
            let path = format!("PATH ({})", search.to_string_lossy());
            let looked_for = [(&names, beside), (&on_path, path)];
            let looked_for = looked_for
                .into_iter()
                .filter_map(|(names, place)| names_in(names, &place));
            return Err(Error::NoInterpreter {
                item: chain.item.clone(),
                looked_for: looked_for.collect::<Vec<_>>().join(", and for "),
                variable,
            });
        };
        let looked_in = local.into_iter().chain(directories).collect();
        Ok(Interpreter {
            variable,
            path,
            searched: looked_in,
        })
    }

    /// Returns the program that the setting of the daemon names.
    fn set(chain: &Chain, variable: String, path: &Path) -> Result<Interpreter, Error> {
        if path.is_file() {
            return Ok(Interpreter {
                variable,
                path: path.to_owned(),
                searched: Vec::new(),
            });
        }
        Err(Error::NoInterpreter {
            item: chain.item.clone(),
            looked_for: format!(
                "`{}`, which the setting `interpreters` gives for {variable}",
                path.display()
            ),
            variable,
        })
    }

    /// Directories searched before the PATH: each of the `search_paths` in each of the `search_roots`, which default to
    /// the project.
    fn directories(&self, places: &TemplatePaths) -> Result<Vec<PathBuf>, Error> {
        let templates = self.0.texts("search_roots")?;
        let mut roots = Vec::new();
        for template in &templates {
            let root = places.path(template).map_err(|problem| {
                let field = "search_roots";
                self.0.malformed(field, &problem)
            })?;
            roots.extend(root);
        }
        if templates.is_empty() {
            roots.push(places.project().to_owned());
        }
        let below = self.0.texts("search_paths")?;
        let joined = roots
            .iter()
            .flat_map(|root| below.iter().map(|path| root.join(path)));
        let mut directories: Vec<PathBuf> = Vec::new();
        for directory in joined {
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
        Ok(directories)
    }
}
