//! A chain whose elements are verified.

use std::sync::Arc;

use rye_core::definition::{Inputs, MISFIT};
use rye_core::id::ItemRef;
use rye_core::model::{Effect, Failure, Object};
use rye_item::Item;
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
    /// What the tool is given of the configuration.
    pub(super) given: Option<Arc<Given>>,
    /// The files of the tool, if it is one of several and not planned yet.
    pub(super) anchored: Option<Arc<Anchored>>,
    /// What stands for all of them.
    pub(super) files_hash: Option<Arc<str>>,
    /// The item of its server, if it is a tool of one.
    pub(super) server: Option<Arc<Item>>,
    /// What stands at its end.
    pub terminal: Terminal,
}

impl Chain {
    /// The element the chain starts at.
    pub fn tool(&self) -> &Item {
        self.elements
            .first()
            .expect("a chain has at least one element")
    }

    /// All elements, the tool first.
    pub fn elements(&self) -> impl Iterator<Item = &Item> {
        self.elements.iter().map(|element| &**element)
    }

    /// The `chain` member of an envelope; the server of a tool is its last element.
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

    /// Content hashes of its elements, tool first, of what the tool is given of the configuration, of its further files, and of its server.
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

    /// Gives back the memory that the files of a tool of several take: they have been planned, and are in their copy.
    pub fn let_go_of_files(&mut self) {
        self.anchored = None;
    }

    /// Whether it holds the files of a tool of several.
    #[cfg(test)]
    pub(crate) fn has_files(&self) -> bool {
        self.anchored.is_some()
    }

    /// Parameters that cannot be taken.
    pub(super) fn refuse_params(&self, message: String) -> Error {
        Error::Params {
            item: self.item.clone(),
            failure: Box::new(Failure::permanent(MISFIT, message)),
        }
    }

    /// What a second execution of the tool means, if it says so.
    pub fn effect(&self) -> Option<Effect> {
        self.tool().metadata.effect
    }

    /// Most bytes of its result that a model is sent whole, if the tool says so.
    pub fn result_limit(&self) -> Option<u32> {
        self.tool().metadata.result_limit
    }

    /// The tool's `config_schema`.
    pub fn schema(&self) -> Option<&Value> {
        self.tool().metadata.config_schema.as_ref()
    }

    /// What the tool takes, compiled from its `config_schema`.
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

    /// The parameters with the defaults of `inputs` put in, if they fit it.
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
