use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::agent::Agent;
use super::endpoint::{Endpoint, Owner};
use super::model::{LEAST_OUTPUT, Model, Reasoning};
use super::protocol::Api;
use super::quirks::Quirks;
use super::usage::Prices;
use super::vendor::Provider;
use crate::conversation::{Origin, Reseed, TokenSize};
use crate::directive::{CallStart, ToolUse, Wish};
use crate::error::{ErrorKind, Kinded, excerpt};
use crate::expr::{did_you_mean, nearest};

/// A model as a thread uses it. It is part of the thread's record, so an edit of a file never changes a running thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedModel {
    pub provider: String,
    pub api: Api,
    pub endpoint: Endpoint,
    /// Id of the model at the provider.
    pub id: String,
    /// Context window: tokens of input and output together.
    pub window: u32,
    /// Largest number of input tokens, if it is less than the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_input: Option<u32>,
    /// Largest number of tokens of one answer: the least that model, directive and configuration allow.
    pub max_output: u32,
    /// Token size for estimates.
    pub token_size: TokenSize,
    /// True if the model can call tools.
    pub tools: bool,
    /// True if it may make only one call per message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_call: bool,
    /// Form in which it accepts messages that are not its own.
    pub reseed: Reseed,
    /// Requested reasoning, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Temperature, if one is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    pub prices: Prices,
    #[serde(default)]
    pub quirks: Quirks,
    /// Point of an answer at which its calls may start.
    #[serde(default)]
    pub start: CallStart,
    /// Largest number of calls of one message that run at once.
    pub max_parallel: u32,
}

/// Request for reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// A named level; `None` leaves it to the model.
    Effort(Option<String>),
    /// A number of tokens.
    Budget(u32),
}

impl ResolvedModel {
    /// Returns the largest number of input tokens that leaves room for the longest answer.
    pub fn room(&self) -> u64 {
        let beside = self.window.saturating_sub(self.max_output);
        self.max_input.unwrap_or(beside).min(beside).into()
    }

    pub fn origin(&self) -> Origin {
        Origin {
            provider: self.provider.clone(),
            model: self.id.clone(),
        }
    }

    /// Returns the smallest number of output tokens for which a call is made. With fewer, a limit is reached.
    pub fn least_output(&self) -> u32 {
        let thinking = match self.thinking {
            // An answer must be larger than its reasoning.
            Some(Thinking::Budget(tokens)) => tokens,
            Some(Thinking::Effort(_)) | None => 0,
        };
        thinking.saturating_add(LEAST_OUTPUT).min(self.max_output)
    }
}

/// Model requested by a call; it takes precedence over the directive.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelRequest<'a> {
    /// Model or tier.
    pub model: Option<&'a str>,
    pub provider: Option<&'a str>,
    /// Model requested by the directive.
    pub wish: Option<&'a Wish>,
    /// Use of tools requested by the directive.
    pub tools: ToolUse,
}

/// Reason why no model can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    #[error("no provider has the model `{model}`{hint}")]
    UnknownModel {
        model: String,
        /// Suggestion for a misspelled name.
        hint: String,
    },
    #[error("there is no provider `{provider}`; there are {known}")]
    UnknownProvider {
        provider: String,
        /// Existing providers.
        known: String,
    },
    #[error("the model `{model}` is with {}; name one of them, like `{first}/{model}`", providers.join(", "), first = providers.first().map_or("", String::as_str))]
    AmbiguousModel {
        model: String,
        providers: Vec<String>,
    },
    #[error("the model `{model}` cannot be used: {lacks}")]
    Unusable {
        model: String,
        /// Missing part, with the way to supply it.
        lacks: String,
    },
    #[error(
        "the price of `{model}` is not known: give it in its provider file, or in `prices` of `config:agent/agent` (`free` if it costs nothing)"
    )]
    PriceUnknown {
        /// `provider/model`.
        model: String,
    },
    /// The model does not support this effort.
    #[error("the model `{model}` knows no effort `{effort}`: {known}")]
    UnknownEffort {
        model: String,
        effort: String,
        known: String,
    },
}

impl Unresolved {
    /// Returns the code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownModel { .. } => "unknown_model",
            Self::UnknownProvider { .. } => "unknown_provider",
            Self::AmbiguousModel { .. } => "ambiguous_model",
            Self::Unusable { .. } => "model_unusable",
            Self::PriceUnknown { .. } => "price_unknown",
            Self::UnknownEffort { .. } => "unknown_effort",
        }
    }
}

impl Kinded for Unresolved {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownModel { .. } | Self::UnknownProvider { .. } => ErrorKind::NotFound,
            Self::AmbiguousModel { .. } | Self::UnknownEffort { .. } => ErrorKind::Invalid,
            Self::Unusable { .. } | Self::PriceUnknown { .. } => ErrorKind::Precondition,
        }
    }
}

/// Models to choose from, and restrictions of the choice.
struct ModelChoice<'a> {
    agent: &'a Agent,
    providers: &'a BTreeMap<String, Provider>,
    has_secret: &'a dyn Fn(Owner, &str) -> bool,
    hint: Option<&'a str>,
}

/// Chooses the model of a thread. If the model of its directive is unusable, the directive's `fallback` is chosen. If
/// its model or provider does not exist, its `tier` is. The returned text is the reason. `has_secret` checks that a secret of that name exists for files of that owner.
pub fn resolve(
    asked: &ModelRequest<'_>,
    agent: &Agent,
    providers: &BTreeMap<String, Provider>,
    has_secret: &dyn Fn(Owner, &str) -> bool,
) -> Result<(ResolvedModel, Option<String>), Unresolved> {
    let nothing = Wish::default();
    let wish = asked.wish.unwrap_or(&nothing);
    let hint = asked.provider.or(wish.provider.as_deref());
    let market = ModelChoice {
        agent,
        providers,
        has_secret,
        hint,
    };
    let named = wish.id.as_deref().or(wish.tier.as_deref());
    let want = asked.model.or(named).unwrap_or(&agent.default_tier);
    let first = market
        .choose(want)
        .and_then(|found| market.fit(found, wish, asked.tools));
    let error = match first {
        Ok(model) => return Ok((model, None)),
        Err(error) => error,
    };
    let Some(other) = alternative(&error, wish, asked) else {
        return Err(error);
    };
    let (name, hint) = match other {
        Alternative::Fallback(model) => (model, None),
        Alternative::Tier(tier) => {
            let is_known = |provider: &&str| providers.contains_key(*provider);
            (tier, hint.filter(is_known))
        }
    };
    let market = ModelChoice { hint, ..market };
    let model = market.fit(market.choose(name)?, wish, asked.tools)?;
    Ok((model, Some(format!("{error}; `{name}` is used instead"))))
}

/// Substitutes that a directive names for a model that cannot be used.
enum Alternative<'w> {
    /// A model, from any provider.
    Fallback(&'w str),
    /// A tier, if the model or the provider next to it does not exist.
    Tier(&'w str),
}

/// Returns what to use instead of the model whose choice failed with `error`; `None` if the call itself names a model.
fn alternative<'w>(
    error: &Unresolved,
    wish: &'w Wish,
    asked: &ModelRequest<'_>,
) -> Option<Alternative<'w>> {
    if asked.model.is_some() {
        return None;
    }
    if let Some(fallback) = &wish.fallback {
        return Some(Alternative::Fallback(fallback));
    }
    let is_beside_tier = match error {
        Unresolved::UnknownModel { .. } => wish.id.is_some(),
        Unresolved::UnknownProvider { .. } => asked.provider.is_none(),
        Unresolved::AmbiguousModel { .. }
        | Unresolved::Unusable { .. }
        | Unresolved::PriceUnknown { .. }
        | Unresolved::UnknownEffort { .. } => false,
    };
    let tier = wish.tier.as_deref().filter(|_| is_beside_tier);
    tier.map(Alternative::Tier)
}

impl<'a> ModelChoice<'a> {
    /// Returns the model that a name refers to: an alias, `provider/model`, a tier, or a model id.
    fn choose(&self, want: &str) -> Result<(&'a Provider, Model), Unresolved> {
        if let Some(hint) = self.hint
            && !self.providers.contains_key(hint)
        {
            return Err(Unresolved::UnknownProvider {
                provider: excerpt(hint).into_owned(),
                known: self.names(),
            });
        }
        let want = self.agent.aliases.get(want).map_or(want, String::as_str);
        if let Some((provider, id)) = want.split_once('/')
            && let Some(provider) = self.providers.get(provider)
        {
            let model = provider.model(id).ok_or_else(|| self.unknown(want))?;
            return self.usable(provider, model);
        }
        match self.agent.tiers.get(want) {
            Some(entries) => self.of_tier(want, entries),
            None => self.by_name(want),
        }
    }

    /// Returns the first usable model of a tier.
    fn of_tier(&self, tier: &str, entries: &[String]) -> Result<(&'a Provider, Model), Unresolved> {
        let mut lacks = Vec::new();
        for entry in entries {
            let named = entry.split_once('/').and_then(|(provider, id)| {
                let provider = self.providers.get(provider)?;
                Some((provider, provider.model(id)?))
            });
            let Some((provider, model)) = named else {
                lacks.push(format!("`{entry}` is with no provider"));
                continue;
            };
            if self.hint.is_some_and(|hint| hint != provider.name) {
                lacks.push(format!("`{entry}` is not with the requested provider"));
                continue;
            }
            match self.missing(provider) {
                None => return Ok((provider, model)),
                Some(lacking) => lacks.push(format!("`{entry}`: {lacking}")),
            }
        }
        Err(Unresolved::Unusable {
            model: excerpt(tier).into_owned(),
            lacks: format!("nothing of this tier can be used: {}", lacks.join("; ")),
        })
    }

    /// Returns the model of that id or alias.
    fn by_name(&self, want: &str) -> Result<(&'a Provider, Model), Unresolved> {
        let allowed = |provider: &&Provider| self.hint.is_none_or(|hint| hint == provider.name);
        let having: Vec<&Provider> = self
            .providers
            .values()
            .filter(allowed)
            .filter(|provider| provider.listed(want).is_some())
            .collect();
        let default = self.agent.default_provider.as_deref();
        let preferred = having
            .iter()
            .find(|provider| Some(provider.name.as_str()) == default);
        let provider = match (having.as_slice(), preferred) {
            ([one], _) | (_, Some(one)) => *one,
            ([], None) => {
                let open = self.hint.and_then(|hint| self.providers.get(hint));
                open.filter(|provider| provider.open)
                    .ok_or_else(|| self.unknown(want))?
            }
            (several, None) => {
                return Err(Unresolved::AmbiguousModel {
                    model: excerpt(want).into_owned(),
                    providers: several
                        .iter()
                        .map(|provider| provider.name.clone())
                        .collect(),
                });
            }
        };
        let model = provider.model(want).ok_or_else(|| self.unknown(want))?;
        self.usable(provider, model)
    }

    fn usable(
        &self,
        provider: &'a Provider,
        model: Model,
    ) -> Result<(&'a Provider, Model), Unresolved> {
        match self.missing(provider) {
            None => Ok((provider, model)),
            Some(lacks) => Err(Unresolved::Unusable {
                model: format!("{}/{}", provider.name, model.id),
                lacks,
            }),
        }
    }

    /// Returns the missing secret of a provider, with the way to set it.
    fn missing(&self, provider: &Provider) -> Option<String> {
        let endpoint = &provider.endpoint;
        let needs = || {
            format!(
                "the provider `{}` needs {}",
                provider.name,
                endpoint.missing_secrets()
            )
        };
        (!endpoint.is_usable(self.has_secret)).then(needs)
    }

    /// Applies the settings of a directive to a model.
    fn fit(
        &self,
        (provider, model): (&Provider, Model),
        wish: &Wish,
        tools: ToolUse,
    ) -> Result<ResolvedModel, Unresolved> {
        let name = format!("{}/{}", provider.name, model.id);
        let prices = self.agent.prices.get(&name).cloned().or(model.prices);
        let thinking = thinking(&name, &model.reasoning, wish.effort.as_deref())?;
        let most = model.max_output.min(self.agent.max_output);
        let max_output = wish
            .max_output
            .map_or(most, |wished| wished.min(model.max_output));
        Ok(ResolvedModel {
            prices: prices.ok_or(Unresolved::PriceUnknown { model: name })?,
            provider: provider.name.clone(),
            api: provider.api,
            endpoint: provider.endpoint.clone(),
            id: model.id,
            window: model.window,
            max_input: model.max_input,
            max_output: with_room_for_answer(max_output, thinking.as_ref(), model.max_output),
            token_size: model.token_size,
            tools: model.tools,
            one_call: wish.one_call,
            reseed: model.reseed,
            // A reasoning model accepts no temperature.
            temperature: wish
                .temperature
                .filter(|_| model.temperature && thinking.is_none()),
            thinking,
            quirks: provider.quirks,
            start: tools.start.unwrap_or(provider.start),
            max_parallel: tools.max_parallel.map_or(provider.max_parallel, |most| {
                most.min(provider.max_parallel)
            }),
        })
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.providers.keys().map(String::as_str).collect();
        names.join(", ")
    }

    fn unknown(&self, want: &str) -> Unresolved {
        let models = self.providers.values().flat_map(Provider::models);
        let called = models.flat_map(|model| std::iter::once(&model.id).chain(&model.aliases));
        let tiers = self.agent.tiers.keys().chain(self.agent.aliases.keys());
        let bare = want.rsplit_once('/').map_or(want, |(_, bare)| bare);
        let near = nearest(bare, called.chain(tiers).map(String::as_str));
        Unresolved::UnknownModel {
            model: excerpt(want).into_owned(),
            hint: did_you_mean(near),
        }
    }
}

/// Returns the reasoning to request, for the effort requested by the directive.
fn thinking(
    model: &str,
    reasoning: &Reasoning,
    effort: Option<&str>,
) -> Result<Option<Thinking>, Unresolved> {
    let unknown = |effort: &str, known: String| Unresolved::UnknownEffort {
        model: model.to_owned(),
        effort: excerpt(effort).into_owned(),
        known,
    };
    match (reasoning, effort) {
        (Reasoning::None, Some(effort)) => Err(unknown(effort, "it does not reason".to_owned())),
        (Reasoning::None | Reasoning::Budget { .. }, None) => Ok(None),
        (Reasoning::Effort { default, .. }, None) => Ok(Some(Thinking::Effort(default.clone()))),
        (Reasoning::Effort { levels, .. }, Some(effort)) => {
            if levels.iter().any(|level| level == effort) {
                return Ok(Some(Thinking::Effort(Some(effort.to_owned()))));
            }
            Err(unknown(effort, format!("there are {}", levels.join(", "))))
        }
        (Reasoning::Budget { max }, Some(effort)) => {
            let tokens = match effort {
                "low" => Some((max / 4).max(LEAST_OUTPUT)),
                "medium" => Some((max / 2).max(LEAST_OUTPUT)),
                "high" | "max" => Some(*max),
                number => number.parse().ok().filter(|tokens| tokens <= max),
            };
            let tokens = tokens.filter(|tokens| *tokens >= LEAST_OUTPUT);
            let known = format!("low, medium, high, or {LEAST_OUTPUT} to {max} tokens");
            tokens
                .map(|tokens| Some(Thinking::Budget(tokens)))
                .ok_or_else(|| unknown(effort, known))
        }
    }
}

/// Returns `max_output`, raised if it leaves no room for an answer after the reasoning.
fn with_room_for_answer(max_output: u32, thinking: Option<&Thinking>, most: u32) -> u32 {
    match thinking {
        Some(Thinking::Budget(tokens)) => max_output
            .max(tokens.saturating_add(LEAST_OUTPUT))
            .min(most),
        Some(Thinking::Effort(_)) | None => max_output,
    }
}
