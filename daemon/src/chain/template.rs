//! The merged settings of a chain, and the typed slots of its templates.
//!
//! An argument is a literal or exactly one slot. A slot is a path such as `{project_path}`, a scalar of the merged
//! `config` (`{script}`), or `${VAR}` of the interpreter. A path may have a literal after it (`{tool_dir}/data`).
//! **Never** replaces anything inside a text, and never expands values of a caller.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::declared::{Fields, is_free};
use rye_core::expr::nearest;
use rye_core::model::Object;
use rye_item::Item;
use serde_json::Value;

use super::error::Error;
use super::fields::{malformed, unknown_key};
use super::interpreter::Interpreter;
use super::template_paths::TemplatePaths;
use super::verified::Chain;

/// Keys of `config` with the same meaning in each element of a chain that ends at a process.
pub(super) const KEYS: [&str; 9] = [
    "command",
    "args",
    "input_data",
    "timeout",
    "env",
    "cwd",
    "fixed_params",
    "params_key",
    "binaries",
];

/// Longest time that may be set.
const LONGEST: Duration = Duration::from_hours(365 * 24);
/// Valid times, for error messages.
pub(super) const SECONDS: &str = "a number of seconds above 0 and up to 31536000, a year";

/// Slot for the program that is part of a tool.
const BINARY: &str = "binary";

/// The merged `config` of all elements. A tool overrides its runtime.
pub(super) struct Settings<'c> {
    chain: &'c Chain,
    merged: BTreeMap<&'c str, (&'c Item, &'c Value)>,
}

impl<'c> Fields<'c> for Settings<'c> {
    type Error = Error;

    fn find(&self, key: &str) -> Option<&'c Value> {
        self.merged.get(key).map(|(_, value)| *value)
    }

    fn misfit(&self, key: &str, expected: &str, _given: &Value) -> Error {
        self.malformed(key, &format!("must be {expected}"))
    }
}

impl<'c> Settings<'c> {
    /// Merges the settings of `chain`. Refuses a key that is neither in `known` nor a slot in a template of the chain.
    pub(super) fn merge(chain: &'c Chain, known: &[&str]) -> Result<Self, Error> {
        let mut merged = BTreeMap::new();
        for element in chain.elements.iter().rev() {
            for (key, value) in element.metadata.config.iter().flatten() {
                let _lower = merged.insert(key.as_str(), (&**element, value));
            }
        }
        let settings = Self { chain, merged };
        settings.close(known)?;
        Ok(settings)
    }

    fn close(&self, known: &[&str]) -> Result<(), Error> {
        let mut named: Vec<&str> = self.texts("args")?;
        for key in ["command", "cwd"] {
            named.extend(self.text(key)?);
        }
        let named: Vec<&str> = named.into_iter().filter_map(slot_name).collect();
        let known = known.iter().copied().chain(named.iter().copied());
        for (key, (element, _)) in &self.merged {
            if !is_free(key) && !known.clone().any(|known| known == *key) {
                return Err(unknown_key(element, "config", key, nearest(key, known)));
            }
        }
        Ok(())
    }

    /// Returns an error about `key` in the element that sets it.
    pub(super) fn malformed(&self, key: &str, problem: &str) -> Error {
        self.malformed_below(key, key, problem)
    }

    /// Returns an error about `field` within `key`.
    pub(super) fn malformed_below(&self, key: &str, field: &str, problem: &str) -> Error {
        let element = self.setter(key).unwrap_or_else(|| self.chain.tool());
        malformed(element, &format!("config.{field}"), problem)
    }

    pub(super) fn command(&self) -> Result<&'c str, Error> {
        let command = self.text("command")?;
        command.ok_or_else(|| self.malformed("command", "is missing"))
    }

    pub(super) fn seconds(&self, key: &str) -> Result<Option<Duration>, Error> {
        self.read(key, SECONDS, |value| value.as_f64().and_then(seconds))
    }

    pub(super) fn mapping(&self, key: &str) -> Result<Option<&'c Object>, Error> {
        self.map(key, "a mapping")
    }

    /// The element that sets `key`.
    pub(super) fn setter(&self, key: &str) -> Option<&'c Item> {
        self.merged.get(key).map(|(element, _)| *element)
    }

    /// True if the command is the program that is part of the tool.
    pub(super) fn uses_binary(&self) -> Result<bool, Error> {
        Ok(self.text("command")?.and_then(slot_name) == Some(BINARY))
    }

    /// True if an argument is the slot `name`.
    pub(super) fn uses(&self, name: &str) -> Result<bool, Error> {
        let args = self.texts("args")?;
        Ok(args.iter().any(|arg| slot_name(arg) == Some(name)))
    }

    /// Adds the `fixed_params` of the tool to `params`, which are nested under `params_key` if that is set.
    pub(super) fn with_fixed(&self, params: Object) -> Result<Object, Error> {
        let fixed = self.mapping("fixed_params")?;
        let key = self.text("params_key")?;
        let (Some(fixed), key) = (fixed, key) else {
            return match key {
                None => Ok(params),
                Some(_) => Err(self.malformed("params_key", "also needs `config.fixed_params`")),
            };
        };
        let mut whole = fixed.clone();
        let added = match key {
            Some(key) => Object::from_iter([(key.to_owned(), Value::Object(params))]),
            None => params,
        };
        for (name, value) in added {
            if whole.insert(name.clone(), value).is_some() {
                let message = format!("`{name}` is fixed by the tool and cannot be given");
                return Err(self.chain.refuse_params(message));
            }
        }
        Ok(whole)
    }
}

/// Values that a template may name.
pub(super) struct Slots<'a> {
    pub(super) settings: &'a Settings<'a>,
    pub(super) paths: &'a TemplatePaths,
    pub(super) interpreter: Option<&'a Interpreter>,
    pub(super) binary: Option<&'a Path>,
    /// Working directory if the chain sets none.
    pub(super) cwd: PathBuf,
}

impl Slots<'_> {
    /// Returns the value of one argument. `key` is the setting that contains it.
    pub(super) fn fill(&self, key: &str, template: &str) -> Result<OsString, Error> {
        let wrong = |problem: &str| self.settings.malformed(key, problem);
        if let Some(name) = template
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'))
        {
            return match self.interpreter {
                Some(found) if found.variable == name => Ok(found.path.as_os_str().to_owned()),
                Some(_) | None => Err(wrong(&format!(
                    "names `${{{name}}}`, which no `env_config.interpreter` sets"
                ))),
            };
        }
        if self.paths.slot(template).is_some() {
            let path = self
                .paths
                .path(template)
                .map_err(|problem| wrong(&problem))?;
            return Ok(path.map(PathBuf::into_os_string).unwrap_or_default());
        }
        let Some(name) = slot_name(template) else {
            return Ok(template.into());
        };
        match (name, self.binary) {
            ("params_json", _) => Err(wrong(
                "may not hold `{params_json}`: parameters travel on stdin",
            )),
            (BINARY, Some(path)) => Ok(path.as_os_str().to_owned()),
            _ => match self.settings.given(name) {
                Some(Value::String(text)) => Ok(text.into()),
                Some(number @ (Value::Number(_) | Value::Bool(_))) => Ok(number.to_string().into()),
                Some(_) => Err(self.settings.malformed(name, "must be a text or a number")),
                None => Err(wrong(&format!(
                    "names `{{{name}}}`; set `config.{name}` in the tool, {}",
                    self.paths.known_paths()
                ))),
            },
        }
    }

    /// Working directory that the chain sets, or the default.
    pub(super) fn cwd(&self) -> Result<PathBuf, Error> {
        let Some(template) = self.settings.text("cwd")? else {
            return Ok(self.cwd.clone());
        };
        let wrong = |problem: &str| self.settings.malformed("cwd", problem);
        let path = self
            .paths
            .path(template)
            .map_err(|problem| wrong(&problem))?;
        path.ok_or_else(|| {
            wrong(&format!(
                "holds `{template}`, and there is no such path here"
            ))
        })
    }
}

/// Returns the name of the slot if the template is exactly one slot.
pub(super) fn slot_name(template: &str) -> Option<&str> {
    let name = template.strip_prefix('{')?.strip_suffix('}')?;
    let word = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    word.then_some(name)
}

/// Returns `number` seconds, or `None` unless they are a positive duration.
pub(super) fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number)
        .ok()
        .filter(|time| !time.is_zero() && *time <= LONGEST)
}
