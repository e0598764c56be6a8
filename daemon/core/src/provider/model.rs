//! Models, and profiles with their defaults.

use globset::GlobMatcher;

use super::protocol::Api;
use super::usage::Prices;
use crate::conversation::{Reseed, TokenSize};

/// Smallest answer, in tokens, for which a call is made.
pub(super) const LEAST_OUTPUT: u32 = 1024;

/// Default bytes per token, in thousandths. Text of any language has fewer tokens than that estimate.
const TOKEN_THOUSANDTHS: u32 = 2500;

#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Id at the provider.
    pub id: String,
    pub aliases: Vec<String>,
    /// Context window: tokens of input and output together.
    pub window: u32,
    /// Largest number of input tokens, if it is less than the window.
    pub max_input: Option<u32>,
    /// Largest number of tokens of one answer.
    pub max_output: u32,
    /// Token size for estimates.
    pub token_size: TokenSize,
    /// True if the model can call tools.
    pub tools: bool,
    /// Form in which it accepts messages that are not its own.
    pub reseed: Reseed,
    pub reasoning: Reasoning,
    /// True if the model accepts a temperature.
    pub temperature: bool,
    pub prices: Option<Prices>,
}

/// Way in which reasoning is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reasoning {
    /// No reasoning.
    None,
    /// By a named level.
    Effort {
        /// Names of levels, in ascending order.
        levels: Vec<String>,
        /// Level that is sent by default.
        default: Option<String>,
    },
    /// By a number of tokens.
    Budget {
        /// Largest number of tokens.
        max: u32,
    },
}

/// Settings of a model, or of all models that match a pattern.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelSettings {
    pub(super) window: Option<u32>,
    pub(super) max_input: Option<u32>,
    pub(super) max_output: Option<u32>,
    pub(super) token_size: Option<TokenSize>,
    pub(super) tools: Option<bool>,
    pub(super) reseed: Option<Reseed>,
    pub(super) reasoning: Option<Reasoning>,
    pub(super) temperature: Option<bool>,
    pub(super) prices: Option<Prices>,
}

/// Settings of all models whose id matches a pattern.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    pub(super) pattern: GlobMatcher,
    pub(super) part: ModelSettings,
}

impl ModelSettings {
    /// Merges two parts; members of this one win.
    fn over(self, below: &Self) -> Self {
        Self {
            window: self.window.or(below.window),
            max_input: self.max_input.or(below.max_input),
            max_output: self.max_output.or(below.max_output),
            token_size: self.token_size.or(below.token_size),
            tools: self.tools.or(below.tools),
            reseed: self.reseed.or(below.reseed),
            reasoning: self.reasoning.or_else(|| below.reasoning.clone()),
            temperature: self.temperature.or(below.temperature),
            prices: self.prices.or_else(|| below.prices.clone()),
        }
    }
}

impl Model {
    /// Creates the model `id` from its own settings and those of the matching profiles. Later profiles win over earlier
    /// ones. The error is the first missing key.
    pub(super) fn new(
        id: &str,
        own: ModelSettings,
        profiles: &[Profile],
        api: Api,
    ) -> Result<Self, &'static str> {
        let matching = profiles.iter().rev();
        let matching = matching.filter(|profile| profile.pattern.is_match(id));
        let part = matching.fold(own, |part, profile| part.over(&profile.part));
        let token_size = TokenSize::from_thousandths(TOKEN_THOUSANDTHS);
        Ok(Self {
            id: id.to_owned(),
            aliases: Vec::new(),
            window: part.window.ok_or("window")?,
            max_input: part.max_input,
            max_output: part.max_output.ok_or("max_output")?,
            token_size: part.token_size.or(token_size).ok_or("bytes_per_token")?,
            tools: part.tools.unwrap_or(true),
            reseed: part.reseed.unwrap_or(match api {
                Api::Anthropic => Reseed::Text,
                Api::OpenaiChat => Reseed::Pairs,
            }),
            reasoning: part.reasoning.unwrap_or(Reasoning::None),
            temperature: part.temperature.unwrap_or(true),
            prices: part.prices,
        })
    }

    /// Creates a model that no file lists, or returns `None` if the profiles lack a required key.
    pub(super) fn unlisted(id: &str, profiles: &[Profile], api: Api) -> Option<Self> {
        Self::new(id, ModelSettings::default(), profiles, api).ok()
    }

    /// Returns true if `name` is the id or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.id == name || self.aliases.iter().any(|alias| alias == name)
    }
}
