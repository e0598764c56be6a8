//! Models, and what a thread would begin with, as JSON.

use std::collections::BTreeMap;

use rye_proto::v1;
use serde::Serialize;
use serde_json::Value;

use super::capability::Risk;
use super::some;
use crate::error::Error;
use crate::wire;

/// `models --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Models {
    /// By name.
    pub providers: Vec<Provider>,
    /// Of each tier, what may be taken, as `provider/model`, the best first.
    pub tiers: BTreeMap<String, Vec<String>>,
    /// The tier that is meant if nobody names a model.
    pub default_tier: String,
    /// Other names of tiers and models.
    pub aliases: BTreeMap<String, String>,
    /// What the authors of the files should know.
    pub warnings: Vec<String>,
}

/// A provider of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provider {
    /// Its name.
    pub name: String,
    /// How it is talked to.
    pub api: String,
    /// The day on which its prices were looked up.
    pub as_of: Option<String>,
    /// Whether models that are not listed are taken as well.
    pub open: bool,
    /// Whether it can be called.
    pub usable: bool,
    /// What it lacks otherwise, and how to give it.
    pub lacks: Option<String>,
    /// In the order of its file.
    pub models: Vec<Model>,
}

/// A model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Model {
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
    /// From the smallest prompts to the largest; without any the model is refused.
    pub prices: Vec<Price>,
}

/// What a million tokens cost, as decimal text of US dollars, of requests up to a size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Price {
    /// The most tokens of input of such a request.
    pub until_prompt: Option<u64>,
    /// Of input.
    pub input: String,
    /// Of input that a cache gives.
    pub cache_read: String,
    /// Of input that a cache takes.
    pub cache_write: String,
    /// Of output.
    pub output: String,
}

/// `thread show --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Preview {
    /// The directive.
    pub item_id: String,
    /// What the model is told before everything else.
    pub system: Option<String>,
    /// The first message.
    pub message: String,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// The tools, and folders of tools, that it is not offered by name.
    pub left_out: Vec<LeftOut>,
    /// The limits that would be in force.
    pub limits: Limits,
    /// The provider of the model.
    pub provider: String,
    /// The model.
    pub model: Model,
    /// The first call of the model; null if there would be none.
    pub first_call: Option<FirstCall>,
    /// Why there would be none.
    pub too_small: Option<String>,
    /// What the thread may do: every layer must allow an action.
    pub layers: Vec<Layer>,
    /// How risky its permissions are.
    pub risks: Vec<Risk>,
    /// What the author should know.
    pub warnings: Vec<String>,
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
}

/// A tool, or a folder of tools, that a model is not offered by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its id, or the pattern of the folder.
    pub item: String,
    /// Why not.
    pub reason: String,
}

/// Limits of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Turns.
    pub turns: Option<u32>,
    /// Tokens, without what a cache gives.
    pub tokens: Option<u64>,
    /// Decimal text of US dollars.
    pub spend: Option<String>,
    /// Child runs.
    pub spawns: Option<u32>,
    /// Levels of child runs.
    pub depth: Option<u32>,
    /// Time in its turns, in milliseconds.
    pub duration_ms: Option<u64>,
}

/// A call of a model, estimated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirstCall {
    /// About how many tokens are sent.
    pub input_tokens: u64,
    /// The most tokens of the answer.
    pub max_output: u32,
    /// What is held for it: the most that it may cost.
    pub hold: String,
}

/// One narrowing of what a thread may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Who or what narrows.
    pub source: String,
    /// What it allows.
    pub patterns: Vec<String>,
}

impl From<v1::ModelsResponse> for Models {
    fn from(answer: v1::ModelsResponse) -> Self {
        let tiers = answer.tiers.into_iter();
        Self {
            providers: answer.providers.into_iter().map(Provider::from).collect(),
            tiers: tiers.map(|tier| (tier.name, tier.models)).collect(),
            default_tier: answer.default_tier,
            aliases: answer.aliases.into_iter().collect(),
            warnings: answer.warnings,
        }
    }
}

impl From<v1::Provider> for Provider {
    fn from(provider: v1::Provider) -> Self {
        Self {
            name: provider.name,
            api: provider.api,
            as_of: some(&provider.as_of),
            open: provider.open,
            usable: provider.lacks.is_empty(),
            lacks: some(&provider.lacks),
            models: provider.models.into_iter().map(Model::from).collect(),
        }
    }
}

impl From<v1::Model> for Model {
    fn from(model: v1::Model) -> Self {
        let prices = model.prices.into_iter().map(|price| Price {
            until_prompt: price.until_prompt,
            input: price.input,
            cache_read: price.cache_read,
            cache_write: price.cache_write,
            output: price.output,
        });
        Self {
            id: model.id,
            aliases: model.aliases,
            window: model.window,
            max_output: model.max_output,
            tools: model.tools,
            prices: prices.collect(),
        }
    }
}

impl Preview {
    /// What a thread of `item_id` would begin with.
    pub fn new(item_id: String, answer: v1::PreviewResponse) -> Result<Self, Error> {
        let limits = answer.limits.unwrap_or_default();
        let tools = answer.tools.into_iter().map(|tool| {
            Ok::<_, Error>(Tool {
                name: tool.name,
                description: tool.description,
                schema: wire::json("schema_json", &tool.schema_json)?.unwrap_or_default(),
            })
        });
        let left_out = answer.left_out.into_iter().map(|tool| LeftOut {
            item: tool.item,
            reason: tool.reason,
        });
        let layers = answer.layers.into_iter().map(|layer| Layer {
            source: layer.source,
            patterns: layer.patterns,
        });
        Ok(Self {
            item_id,
            system: some(&answer.system),
            message: answer.message,
            tools: tools.collect::<Result<_, _>>()?,
            left_out: left_out.collect(),
            limits: Limits {
                turns: limits.turns,
                tokens: limits.tokens,
                spend: limits.spend,
                spawns: limits.spawns,
                depth: limits.depth,
                duration_ms: limits.duration_ms,
            },
            provider: answer.provider,
            model: answer.model.unwrap_or_default().into(),
            first_call: some(&answer.hold).map(|hold| FirstCall {
                input_tokens: answer.input_tokens,
                max_output: answer.max_output,
                hold,
            }),
            too_small: some(&answer.too_small),
            layers: layers.collect(),
            risks: answer.risks.into_iter().map(Risk::from).collect(),
            warnings: answer.warnings,
        })
    }
}
