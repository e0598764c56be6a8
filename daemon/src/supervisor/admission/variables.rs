//! Environment variables that a graph requires for itself or for the tools of its nodes.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::error::VARIABLES_MISSING;
use rye_core::definition::{Action, Graph};
use rye_core::id::ItemRef;
use rye_core::model::{Failure, Spec};
use rye_item::Library;

use crate::chain::{self, Chain, InheritedVariables};
use crate::config::Config;
use crate::models;
use crate::port::Refusal;

/// Returns a failure if a required variable is not set. A node also has the variables that its tools set.
pub(super) fn unset(
    spec: &Spec,
    graph: &Graph,
    library: &Library,
    config: &Config,
) -> Option<Failure> {
    let mut demanding = graph
        .nodes
        .iter()
        .filter(|node| !node.env_requires.is_empty())
        .peekable();
    if graph.env_requires.is_empty() && demanding.peek().is_none() {
        return None;
    }
    let project = Path::new(&spec.project);
    let offer = match InheritedVariables::of(project, config, || models::secrets(library)) {
        Ok(offer) => offer,
        Err(error) => return Some(Refusal::from(&error).of_item()),
    };
    let mut missing = BTreeSet::new();
    let mut told = Vec::new();
    for name in &graph.env_requires {
        if !offer.has(name, []) && missing.insert(name) {
            told.push(format!("graph requires '{name}'"));
        }
    }
    for node in demanding {
        let items: Vec<ItemRef> = node.work.actions().filter_map(Action::named).collect();
        let chain = |item: &ItemRef| chain::resolve(library, item, None).ok();
        let chains: Vec<_> = items.iter().map(chain).collect();
        for name in &node.env_requires {
            let lacks = |chain: &Option<Chain>| {
                let elements = chain.iter().flat_map(Chain::elements);
                !offer.has(name, elements)
            };
            let lacking = chains.iter().position(lacks);
            let is_lacking = lacking.is_some() || (items.is_empty() && !offer.has(name, []));
            if is_lacking && missing.insert(name) {
                let item = lacking.and_then(|place| items.get(place));
                let of = item.map_or_else(String::new, |item| format!(" ({})", item.id));
                told.push(format!("node '{}'{of} requires '{name}'", node.name));
            }
        }
    }
    (!told.is_empty()).then(|| {
        let text = format!(
            "missing environment variables: {}; set them in the project's `.env`, or name them in the daemon's setting \
             `env.pass` (RYE_ENV_PASS) and start it where they are set; what a provider file uses as a secret is not given to tools",
            told.join(", ")
        );
        Failure::permanent(VARIABLES_MISSING, text)
    })
}
