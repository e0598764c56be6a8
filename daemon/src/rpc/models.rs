//! Models and previews of threads as wire types.

use rye_core::capability::Layer;
use rye_core::clock::Timestamp;
use rye_core::model::{Limits, Run};
use rye_core::money::Usd;
use rye_core::policy::Risk;
use rye_core::provider::{Api, Prices, Size};
use rye_core::thread::OfferedTool;
use rye_proto::v1;
use serde::Deserialize;

use crate::models::{Listing, Offer, Offerer};
use crate::supervisor::Preview;

/// The model of a thread, as its contract names it.
#[derive(Debug, Deserialize)]
pub(super) struct Origin {
    pub(super) provider: String,
    pub(super) id: String,
}

/// Returns `None` for a run that is not a thread.
pub(super) fn origin(run: &Run) -> Option<Origin> {
    #[derive(Deserialize)]
    struct Contract {
        model: Origin,
    }
    let contract = &run.spec.thread()?.contract;
    let contract: Contract = serde_json::from_str(contract).ok()?;
    Some(contract.model)
}

const fn api(api: Api) -> &'static str {
    match api {
        Api::Anthropic => "anthropic",
        Api::OpenaiChat => "openai_chat",
    }
}

pub(super) fn listing(listing: Listing) -> v1::ModelsResponse {
    let tiers = listing.tiers.into_iter();
    v1::ModelsResponse {
        providers: listing.providers.into_iter().map(provider).collect(),
        tiers: tiers
            .map(|(name, models)| v1::ModelTier { name, models })
            .collect(),
        default_tier: listing.default_tier,
        aliases: listing.aliases.into_iter().collect(),
        warnings: listing.warnings,
    }
}

fn provider(provider: Offerer) -> v1::Provider {
    v1::Provider {
        name: provider.name,
        api: api(provider.api).to_owned(),
        as_of: provider
            .as_of
            .map(Timestamp::to_day_string)
            .unwrap_or_default(),
        open: provider.open,
        lacks: provider.missing.unwrap_or_default(),
        models: provider.models.into_iter().map(model).collect(),
    }
}

fn model(model: Offer) -> v1::Model {
    v1::Model {
        id: model.id,
        aliases: model.aliases,
        window: model.window,
        max_output: model.max_output,
        tools: model.tools,
        prices: model.prices.iter().flat_map(prices).collect(),
    }
}

fn prices(prices: &Prices) -> impl Iterator<Item = v1::ModelPrice> {
    prices.tiers().iter().map(|tier| v1::ModelPrice {
        until_prompt: tier.until_prompt,
        input: tier.input.of_a_million().to_string(),
        cache_read: tier.cache_read.of_a_million().to_string(),
        cache_write: tier.cache_write.of_a_million().to_string(),
        output: tier.output.of_a_million().to_string(),
    })
}

pub(super) fn preview(preview: Preview) -> v1::PreviewResponse {
    let resolved = preview.contract.model;
    let (size, too_small) = match preview.first {
        Ok(size) => (Some(size), String::new()),
        Err(small) => (None, small.to_string()),
    };
    v1::PreviewResponse {
        system: preview.prompt.system.unwrap_or_default(),
        message: preview.prompt.message,
        tools: preview.contract.offered.into_iter().map(tool).collect(),
        limits: Some(limits(&preview.limits, preview.spend)),
        provider: resolved.provider,
        model: Some(v1::Model {
            id: resolved.id,
            aliases: Vec::new(),
            window: resolved.window,
            max_output: resolved.max_output,
            tools: resolved.tools,
            prices: prices(&resolved.prices).collect(),
        }),
        input_tokens: size.map_or(0, |size: Size| size.input),
        max_output: size.map_or(0, |size| size.max_output),
        hold: size.map(|size| size.hold.to_string()).unwrap_or_default(),
        too_small,
        layers: preview.layers.into_iter().map(layer).collect(),
        warnings: preview.warnings,
        risks: risks(preview.risks),
        left_out: preview
            .omitted_tools
            .0
            .into_iter()
            .map(omitted_tool)
            .collect(),
    }
}

fn omitted_tool((item, reason): (String, String)) -> v1::LeftOutTool {
    v1::LeftOutTool { item, reason }
}

pub(super) fn risks(risks: Vec<(String, Risk)>) -> Vec<v1::PermissionRisk> {
    let risks = risks.into_iter();
    risks
        .map(|(permission, risk)| v1::PermissionRisk {
            permission,
            risk: risk.as_str().to_owned(),
            policy: risk.policy().as_str().to_owned(),
        })
        .collect()
}

fn tool(offered: OfferedTool) -> v1::OfferedTool {
    v1::OfferedTool {
        name: offered.tool.name,
        description: offered.tool.description,
        schema_json: offered.tool.schema.to_string(),
    }
}

fn layer(layer: Layer) -> v1::CapabilityLayer {
    v1::CapabilityLayer {
        source: layer.source,
        patterns: layer.patterns,
    }
}

fn limits(limits: &Limits, spend: Option<Usd>) -> v1::Limits {
    v1::Limits {
        steps: limits.steps,
        depth: limits.depth,
        spend: spend.map(|spend| spend.to_string()),
        spawns: limits.spawns,
        turns: limits.turns,
        tokens: limits.tokens,
        duration_ms: limits.duration_ms,
    }
}
