//! The models of a provider file, and their prices.

use globset::Glob;

use super::Reader;
use crate::conversation::{Reseed, TokenSize};
use crate::declared::{self, At, Key, Keys};
use crate::money::{Price, Usd};
use crate::provider::model::{LEAST_OUTPUT, Model, ModelSettings, Profile, Reasoning};
use crate::provider::protocol::Api;
use crate::provider::usage::{Prices, Tier};

const PROFILE: Keys = Keys {
    required: &[("match", "it is a pattern of ids, like \"claude-*\"")],
    ..Keys::new("a profile", &[Key::named(&["match", "model"])])
};
const PART: Key = Key::named(&[
    "window",
    "max_input",
    "max_output",
    "bytes_per_token",
    "tools",
    "reseed",
    "reasoning",
    "temperature",
    "prices",
]);
const OF_PROFILE: Keys = Keys::new("`model` of a profile", &[PART]);
const MODEL: Keys = Keys {
    required: &[("id", "it is what the provider calls it")],
    ..Keys::new("a model", &[Key::named(&["id", "aliases"]), PART])
};
const REASONING: Keys = Keys {
    required: &[("kind", "it is none, effort or budget")],
    ..Keys::new(
        "`reasoning`",
        &[Key::named(&["kind", "levels", "default", "max"])],
    )
};
const TIER: Keys = Keys::new(
    "an entry of `prices`",
    &[Key::named(&[
        "until_prompt",
        "input",
        "cache_read",
        "cache_write",
        "output",
    ])],
);

/// Reads `prices` of a model: a list of tiers, or `free`.
pub(crate) fn prices<'d, C>(reader: &mut declared::Reader<'d, C>, at: &At<'d>) -> Option<Prices> {
    if at.value == "free" {
        return Some(Prices::free());
    }
    let entries = reader.entries(at, "`free` or a list of prices")?;
    let tiers: Vec<Option<Tier>> = entries.iter().map(|entry| tier(reader, entry)).collect();
    let tiers: Option<Vec<Tier>> = tiers.into_iter().collect();
    Prices::new(tiers?)
        .map_err(|problem| reader.error("bad_prices", at, format!("`prices`: {problem}")))
        .ok()
}

fn tier<'d, C>(reader: &mut declared::Reader<'d, C>, at: &At<'d>) -> Option<Tier> {
    reader.map(at, &TIER)?;
    let until = at.given("until_prompt");
    let until = match &until {
        Some(bound) => {
            let number = bound.value.as_u64();
            if number.is_none() {
                reader.error(
                    "wrong_type",
                    bound,
                    "`until_prompt` must be a whole number or null",
                );
            }
            Some(number?)
        }
        None => None,
    };
    let input = price(reader, at, "input");
    if at.given("input").is_none() || at.given("output").is_none() {
        reader.error("missing_key", at, "a price needs `input` and `output`");
    }
    let cache_read = price(reader, at, "cache_read");
    let cache_write = price(reader, at, "cache_write");
    let output = price(reader, at, "output");
    let input = input?;
    Some(Tier {
        until_prompt: until,
        input,
        // What has no price of its own costs what input costs.
        cache_read: cache_read.unwrap_or(input),
        cache_write: cache_write.unwrap_or(input),
        output: output?,
    })
}

/// The price below `key`, if there is one; it stands in quotes, so that no reader makes a float of it.
fn price<'d, C>(reader: &mut declared::Reader<'d, C>, at: &At<'d>, key: &str) -> Option<Price> {
    let child = at.given(key)?;
    Price::from_json(child.value)
        .map_err(|error| reader.error("bad_prices", &child, format!("`{key}`: {error}")))
        .ok()
}

impl<'d> Reader<'d> {
    pub(super) fn profiles(&mut self, root: &At<'d>) -> Vec<Profile> {
        let Some(at) = root.given("profiles") else {
            return Vec::new();
        };
        let entries = self.entries(&at, "a list of {match, model}");
        let entries = entries.unwrap_or_default();
        entries.iter().filter_map(|at| self.profile(at)).collect()
    }

    fn profile(&mut self, at: &At<'d>) -> Option<Profile> {
        self.map(at, &PROFILE)?;
        let pattern = self.text(at, "match")?;
        let matcher = Glob::new(pattern).map_err(|error| {
            self.error("bad_pattern", at.at("/match"), format!("`match`: {error}"));
        });
        let model = at.given("model");
        let part = model.map(|model| {
            self.map(&model, &OF_PROFILE);
            self.part(&model)
        });
        Some(Profile {
            pattern: matcher.ok()?.compile_matcher(),
            part: part.unwrap_or_default(),
        })
    }

    pub(super) fn models(&mut self, root: &At<'d>, profiles: &[Profile], api: Api) -> Vec<Model> {
        let Some(at) = root.given("models") else {
            return Vec::new();
        };
        let entries = self.entries(&at, "a list of models").unwrap_or_default();
        let mut models: Vec<Model> = Vec::new();
        for entry in &entries {
            let Some(model) = self.model(entry, profiles, api) else {
                continue;
            };
            let names = std::iter::once(&model.id).chain(&model.aliases);
            for name in names {
                if models.iter().any(|other| other.is_called(name)) {
                    let message = format!("two models are called `{name}`");
                    self.error("duplicate_id", entry, message);
                }
            }
            models.push(model);
        }
        models
    }

    fn model(&mut self, at: &At<'d>, profiles: &[Profile], api: Api) -> Option<Model> {
        self.map(at, &MODEL)?;
        let part = self.part(at);
        let aliases = match at.given("aliases") {
            Some(aliases) => self.texts(&aliases)?,
            None => Vec::new(),
        };
        let id = self.text(at, "id")?;
        if id.is_empty() || id.len() > 256 || id.chars().any(|c| c.is_control() || c == ' ') {
            self.error("bad_name", at, "`id` is empty, too long, or holds blanks");
            return None;
        }
        let model = Model::new(id, part, profiles, api);
        let model = model.map_err(|key| {
            let message =
                format!("the model `{id}` has no `{key}`, nor has a profile that matches");
            self.error("missing_key", at, message);
        });
        let model = Model {
            aliases: aliases.into_iter().map(ToOwned::to_owned).collect(),
            ..model.ok()?
        };
        if model.max_output > model.window {
            let message = format!("`max_output` of `{id}` is larger than its `window`");
            self.error("conflict", at, message);
        }
        if api == Api::OpenaiChat && matches!(model.reasoning, Reasoning::Budget { .. }) {
            let message = format!("`{id}`: the api openai_chat knows no budget for reasoning");
            self.error("conflict", at, message);
        }
        if let Reasoning::Budget { max } = model.reasoning
            && max.saturating_add(LEAST_OUTPUT) > model.max_output
        {
            let message = format!(
                "the reasoning of `{id}` leaves no {LEAST_OUTPUT} tokens of its `max_output` for an answer"
            );
            self.error("conflict", at, message);
        }
        Some(model)
    }

    fn part(&mut self, at: &At<'d>) -> ModelSettings {
        let reseeds = [("text", Reseed::Text), ("pairs", Reseed::Pairs)];
        let reseed = at.given("reseed");
        let reseed = reseed.and_then(|_| self.word(at, "reseed", &reseeds));
        let prices_at = at.given("prices");
        let reasoning = at.given("reasoning");
        ModelSettings {
            window: self.whole(at, "window", 1),
            max_input: self.whole(at, "max_input", 1),
            max_output: self.whole(at, "max_output", 1),
            token_size: self.token_size(at),
            tools: self.switch(at, "tools"),
            reseed,
            reasoning: reasoning.and_then(|at| self.reasoning(&at)),
            temperature: self.switch(at, "temperature"),
            prices: prices_at.and_then(|at| prices(self, &at)),
        }
    }

    fn token_size(&mut self, at: &At<'d>) -> Option<TokenSize> {
        const THOUSANDTH: u64 = 1_000_000;
        let child = at.given("bytes_per_token")?;
        // A decimal number, read digit by digit as an amount of money is.
        let billionths = Usd::from_json(child.value).ok().map(Usd::nanos);
        let thousandths = billionths
            .filter(|billionths| billionths % THOUSANDTH == 0)
            .and_then(|billionths| u32::try_from(billionths / THOUSANDTH).ok());
        let size = thousandths.and_then(TokenSize::from_thousandths);
        if size.is_none() {
            let message =
                "`bytes_per_token` is a number above 0, at most 1000, with up to three decimals";
            self.error("wrong_type", &child, message);
        }
        size
    }

    fn reasoning(&mut self, at: &At<'d>) -> Option<Reasoning> {
        self.map(at, &REASONING)?;
        match self.text(at, "kind")? {
            "none" => Some(Reasoning::None),
            "effort" => {
                let Some(list) = at.given("levels") else {
                    let message = "`levels` is missing: the words the model knows";
                    self.error("missing_key", at, message);
                    return None;
                };
                let levels = self.texts(&list)?;
                let levels: Vec<String> = levels.into_iter().map(ToOwned::to_owned).collect();
                let default = at.given("default").and_then(|_| self.text(at, "default"));
                let default = default.map(ToOwned::to_owned);
                if default
                    .as_ref()
                    .is_some_and(|default| !levels.contains(default))
                {
                    let message = "`default` is not among `levels`";
                    self.error("unknown_value", at, message);
                }
                Some(Reasoning::Effort { levels, default })
            }
            "budget" => {
                if at.given("max").is_none() {
                    let message = "`max` is missing: the most tokens of reasoning";
                    self.error("missing_key", at, message);
                }
                let max = self.whole(at, "max", 1024)?;
                Some(Reasoning::Budget { max })
            }
            "level" => {
                self.not_supported(at, "reasoning of the kind `level`");
                None
            }
            other => {
                let message =
                    format!("there is no kind `{other}`; there are none, effort and budget");
                self.error("unknown_value", at, message);
                None
            }
        }
    }
}
