//! What there is to choose from, for people: the models of a project with what they cost, and what is missing to use them.

use std::collections::BTreeMap;

use rye_core::clock::Timestamp;
use rye_core::provider::{Api, Owner, Prices, Provider};

use super::Models;

/// The models of a project.
#[derive(Debug)]
pub struct Listing {
    /// Its providers, by name.
    pub providers: Vec<Offerer>,
    /// Of each tier, what may be taken, the best first.
    pub tiers: BTreeMap<String, Vec<String>>,
    /// The tier that is meant if nobody names a model.
    pub default_tier: String,
    /// Other names of tiers and models.
    pub aliases: BTreeMap<String, String>,
    /// What the authors of the files should know.
    pub warnings: Vec<String>,
}

/// A provider.
#[derive(Debug)]
pub struct Offerer {
    /// Its name.
    pub name: String,
    /// How it is talked to.
    pub api: Api,
    /// When what its file says was looked up.
    pub as_of: Option<Timestamp>,
    /// Whether models that are not listed are taken as well.
    pub open: bool,
    /// What it lacks to be called, and how to give it.
    pub lacks: Option<String>,
    /// Its models, in the order of the file.
    pub models: Vec<Offer>,
}

/// A model.
#[derive(Debug)]
pub struct Offer {
    /// By which it is asked for.
    pub id: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// Tokens of input and output together.
    pub window: u32,
    /// Most tokens of one answer.
    pub max_output: u32,
    /// Whether it calls tools.
    pub tools: bool,
    /// What it costs; a model without a price is refused.
    pub prices: Option<Prices>,
}

impl Models {
    /// All of them, as they are at `now`. `has_secret` tells whether there is a secret of that name for files of that owner.
    pub fn list(self, now: Timestamp, has_secret: &dyn Fn(Owner, &str) -> bool) -> Listing {
        let mut warnings = self.warnings;
        for provider in self.providers.values().filter(|one| one.is_stale(now)) {
            let as_of = provider.as_of.map(Timestamp::to_day_string);
            warnings.push(format!(
                "the prices of `{}` are as of {}: look them up again, and write `as_of` into its file",
                provider.name,
                as_of.unwrap_or_default()
            ));
        }
        let providers = self.providers.values();
        let providers = providers.map(|provider| offerer(provider, &self.agent.prices, has_secret));
        Listing {
            providers: providers.collect(),
            tiers: self.agent.tiers,
            default_tier: self.agent.default_tier,
            aliases: self.agent.aliases,
            warnings,
        }
    }
}

fn offerer(
    provider: &Provider,
    prices: &BTreeMap<String, Prices>,
    has_secret: &dyn Fn(Owner, &str) -> bool,
) -> Offerer {
    let endpoint = &provider.endpoint;
    let models = provider.models().iter().map(|model| Offer {
        id: model.id.clone(),
        aliases: model.aliases.clone(),
        window: model.window,
        max_output: model.max_output,
        tools: model.tools,
        prices: prices
            .get(&format!("{}/{}", provider.name, model.id))
            .or(model.prices.as_ref())
            .cloned(),
    });
    Offerer {
        name: provider.name.clone(),
        api: provider.api,
        as_of: provider.as_of,
        open: provider.open,
        lacks: (!endpoint.is_usable(has_secret)).then(|| endpoint.lacking()),
        models: models.collect(),
    }
}
