//! A chain whose elements are verified.

use std::sync::Arc;

use rye_core::definition::{Inputs, MISFIT};
use rye_core::id::ItemRef;
use rye_core::model::{Effect, Failure, Object};
use rye_item::{Item, OutputFormat};
use serde_json::{Value, json};

use super::anchor::Anchored;
use super::error::Error;
use super::given::Given;
use super::terminal::Terminal;

/// A verified chain, tool first.
#[derive(Debug, Clone)]
pub struct Chain {
    pub(super) item: ItemRef,
    pub(super) elements: Vec<Arc<Item>>,
    /// Configuration that the tool receives.
    pub(super) given: Option<Arc<Given>>,
    /// Files of a multi-file tool, until they are planned.
    pub(super) anchored: Option<Arc<Anchored>>,
    /// Hash over all these files.
    pub(super) files_hash: Option<Arc<str>>,
    /// The MCP server of the tool.
    pub(super) server: Option<Arc<Item>>,
    pub terminal: Terminal,
}

impl Chain {
    /// The first element.
    pub fn tool(&self) -> &Item {
        self.elements
            .first()
            .expect("a chain has at least one element")
    }

    /// All elements, tool first.
    pub fn elements(&self) -> impl Iterator<Item = &Item> {
        self.elements.iter().map(|element| &**element)
    }

    /// The `chain` member of an envelope. The server of a tool is its last element.
    pub fn links(&self) -> Vec<Value> {
        self.elements
            .iter()
            .chain(&self.server)
            .map(|element| {
                json!({
                    "item_id": element.item.id.as_str(),
                    "space": element.space.as_str(),
                    "tool_type": element.metadata.tool_type,
                    "executor_id": element.metadata.executor_id,
                    "integrity": element.content_hash,
                })
            })
            .collect()
    }

    /// Content hashes of the elements with the tool first, of the tool's configuration, of its further files, and of
    /// its server.
    pub fn content_hashes(&self) -> impl Iterator<Item = &str> {
        let elements = self.elements.iter();
        let given = self.given.iter().map(|given| given.hash.as_str());
        elements
            .map(|element| element.content_hash.as_str())
            .chain(given)
            .chain(self.files_hash.as_deref())
            .chain(
                self.server
                    .iter()
                    .map(|server| server.content_hash.as_str()),
            )
    }

    /// Frees the memory of the files of a multi-file tool. They are planned, and are in their copy.
    pub fn drop_files(&mut self) {
        self.anchored = None;
    }

    /// True if it holds the files of a multi-file tool.
    #[cfg(test)]
    pub(crate) fn has_files(&self) -> bool {
        self.anchored.is_some()
    }

    /// Returns the error that the parameters are invalid.
    pub(super) fn refuse_params(&self, message: String) -> Error {
        Error::Params {
            item: self.item.clone(),
            failure: Box::new(Failure::permanent(MISFIT, message)),
        }
    }

    /// Effect of a second execution, if the tool declares it. A program that repeats its calls in order may be repeated.
    pub fn effect(&self) -> Option<Effect> {
        let declared = self.tool().metadata.effect;
        declared.or_else(|| self.replays().then_some(Effect::Idempotent))
    }

    /// True if the program of the tool repeats its calls of the daemon in order.
    pub fn replays(&self) -> bool {
        self.tool().metadata.replays
    }

    /// Conversion of what the process prints, as the nearest element of the chain declares it.
    pub(super) fn output_format(&self) -> OutputFormat {
        let declared = self.elements().find_map(|element| element.metadata.output);
        declared.unwrap_or_default()
    }

    /// Maximum size in bytes of a result that a model receives unabridged, if the tool declares it.
    pub fn result_limit(&self) -> Option<u32> {
        self.tool().metadata.result_limit
    }

    /// The `config_schema` of the tool.
    pub fn schema(&self) -> Option<&Value> {
        self.tool().metadata.config_schema.as_ref()
    }

    /// Compiles the `config_schema` of the tool.
    pub fn inputs(&self) -> Result<Inputs, Error> {
        let Some(schema) = self.schema() else {
            return Ok(Inputs::default());
        };
        Inputs::new(schema).map_err(|(place, problem)| Error::Malformed {
            path: self.tool().path.clone(),
            field: format!("`config_schema{}`", place.replace('/', ".")),
            problem,
        })
    }

    /// Returns the parameters with the defaults of `inputs`. Refuses parameters that do not match.
    pub fn fit(&self, inputs: &Inputs, params: Object) -> Result<Object, Error> {
        match inputs.resolve(params) {
            Ok((params, _undeclared)) => Ok(params),
            Err(failure) => Err(Error::Params {
                item: self.item.clone(),
                failure: Box::new(failure),
            }),
        }
    }
}
