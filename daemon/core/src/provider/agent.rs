//! `agent.yaml`: which models are meant when nobody names one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::file;
use super::usage::Prices;
use crate::declared::{At, Finding, ITEM, Key, Keys, OF_THE_ORIGINAL, Reader, is_free};
use crate::yaml::Document;

/// Most tokens of one answer where neither model nor directive ask for less.
const MAX_OUTPUT: u32 = 16_384;
/// The tier that is meant if nobody names one.
const TIER: &str = "general";

const FILE: Keys = Keys {
    misplaced: &[("tier", "write `default_tier`")],
    ..Keys::new(
        "`config:agent/agent`",
        &[
            ITEM,
            Key::named(&[
                "provider",
                "default_tier",
                "tiers",
                "tier_mapping",
                "aliases",
                "prices",
                "max_output_tokens",
            ]),
            Key::named(&OF_THE_ORIGINAL),
        ],
    )
};
const PROVIDER: Keys = Keys::new("`provider`", &[Key::named(&["default"])]);

/// The merged `agent.yaml`.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// The provider to take where several have a model.
    pub default_provider: Option<String>,
    /// The tier that is meant if nobody names a model.
    pub default_tier: String,
    /// Of each tier, what may be taken, the best first.
    pub tiers: BTreeMap<String, Vec<String>>,
    /// Other names of tiers and models.
    pub aliases: BTreeMap<String, String>,
    /// Prices over those of the provider files, by `provider/model`.
    pub prices: BTreeMap<String, Prices>,
    /// Most tokens of one answer.
    pub max_output: u32,
}

impl Agent {
    /// Reads the merged configuration: with warnings, or all errors and warnings. It stands in several files, so that nothing in
    /// it has a place.
    pub fn from_config(value: &Value) -> Result<(Self, Vec<Finding>), Vec<Finding>> {
        let document = Document::without_positions(value.clone());
        let mut reader = Reader::new(&document, ());
        let agent = read(&mut reader);
        reader.end(agent)
    }
}

fn read(reader: &mut Reader<'_>) -> Option<Agent> {
    let root = reader.root();
    reader.map(&root, &FILE)?;
    for key in OF_THE_ORIGINAL {
        if let Some(at) = root.child(key) {
            let message = format!("`{key}` has no effect; nothing here reads it");
            reader.warn("no_effect", at.named(), message);
        }
    }
    let provider = root.given("provider");
    let default_provider = provider.and_then(|at| {
        reader.map(&at, &PROVIDER)?;
        at.given("default")
            .and_then(|_| reader.text(&at, "default"))
    });
    let default_tier = root
        .given("default_tier")
        .and_then(|_| reader.text(&root, "default_tier"));
    let mut tiers = BTreeMap::new();
    for (key, at) in children(reader, &root, "tiers") {
        let list = reader.texts(&at)?;
        let entries = list.into_iter().map(ToOwned::to_owned).collect();
        tiers.insert(key.to_owned(), entries);
    }
    for (key, at) in children(reader, &root, "tier_mapping") {
        let message = "`tier_mapping` is read as `tiers`";
        reader.warn("old_spelling", at.named(), message);
        let model = text(reader, &at)?;
        tiers.entry(key.to_owned()).or_insert_with(|| vec![model]);
    }
    let mut aliases = BTreeMap::new();
    for (key, at) in children(reader, &root, "aliases") {
        aliases.insert(key.to_owned(), text(reader, &at)?);
    }
    let mut prices = BTreeMap::new();
    for (key, at) in children(reader, &root, "prices") {
        if !key.contains('/') {
            let message = format!("`{key}` must be `provider/model`");
            reader.error("bad_name", at.named(), message);
        }
        prices.insert(key.to_owned(), file::prices(reader, &at)?);
    }
    let max_output = reader.whole(&root, "max_output_tokens", 1);
    Some(Agent {
        default_provider: default_provider.map(ToOwned::to_owned),
        default_tier: default_tier.unwrap_or(TIER).to_owned(),
        tiers,
        aliases,
        prices,
        max_output: max_output.unwrap_or(MAX_OUTPUT),
    })
}

/// The entries of the map below `key`, if there is one.
fn children<'d>(reader: &mut Reader<'d>, root: &At<'d>, key: &str) -> Vec<(&'d str, At<'d>)> {
    let Some(at) = root.given(key) else {
        return Vec::new();
    };
    let mut members = reader.members(&at, "a map").unwrap_or_default();
    members.retain(|(key, at)| !is_free(key) && !at.value.is_null());
    members
}

fn text<'d>(reader: &mut Reader<'d>, at: &At<'d>) -> Option<String> {
    let found = at.value.as_str();
    if found.is_none() {
        reader.wrong_type(at, "the name of a tier or a model");
    }
    found.map(ToOwned::to_owned)
}
