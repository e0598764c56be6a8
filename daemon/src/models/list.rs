//! Listing of a project's models for people, with prices and missing prerequisites.

use std::collections::BTreeMap;

use rye_core::clock::Timestamp;
use rye_core::provider::{Api, Owner, Prices, Provider};

use super::Models;

#[derive(Debug)]
pub struct Listing {
    /// Providers, ordered by name.
    pub providers: Vec<Offerer>,
    /// Models of each tier, the preferred one first.
    pub tiers: BTreeMap<String, Vec<String>>,
    /// Tier used if no model is named.
    pub default_tier: String,
    /// Aliases of tiers and models.
    pub aliases: BTreeMap<String, String>,
    pub warnings: Vec<String>,
}

#[derive(Debug)]
pub struct Offerer {
    pub name: String,
    pub api: Api,
    /// Date of the information in its file.
    pub as_of: Option<Timestamp>,
    /// True if models that are not listed may be used too.
    pub open: bool,
    /// Missing prerequisites, with the fix.
    pub missing: Option<String>,
    /// Models in the order of the file.
    pub models: Vec<Offer>,
}

#[derive(Debug)]
pub struct Offer {
    pub id: String,
    pub aliases: Vec<String>,
    /// Context window in tokens, input and output together.
    pub window: u32,
    /// Maximum tokens of one answer.
    pub max_output: u32,
    /// True if the model can call tools.
    pub tools: bool,
    /// Prices; a model without a price is refused.
    pub prices: Option<Prices>,
}

impl Models {
    /// Lists all models as of `now`. `has_secret` is true if there is a secret of that name for files of that owner.
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
        missing: (!endpoint.is_usable(has_secret)).then(|| endpoint.missing_secrets()),
        models: models.collect(),
    }
}
