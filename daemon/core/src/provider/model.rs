//! Models, and what profiles lay under them.

use globset::GlobMatcher;

use super::protocol::Api;
use super::usage::Prices;
use crate::conversation::{Reseed, TokenSize};

/// The least answer that is worth a call, in tokens.
pub(super) const LEAST_OUTPUT: u32 = 1024;

/// Bytes of a token where a file does not say, in thousandths: text of any language makes fewer tokens than that.
const TOKEN_THOUSANDTHS: u32 = 2500;

/// A model of a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// By which it is asked for.
    pub id: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// Tokens of input and output together.
    pub window: u32,
    /// Most tokens of input, where it is less.
    pub max_input: Option<u32>,
    /// Most tokens of one answer.
    pub max_output: u32,
    /// For estimates.
    pub token_size: TokenSize,
    /// Whether it calls tools.
    pub tools: bool,
    /// How it takes messages that are not its own.
    pub reseed: Reseed,
    /// How it is asked to think.
    pub reasoning: Reasoning,
    /// Whether it takes a temperature.
    pub temperature: bool,
    /// What it costs, if the file says.
    pub prices: Option<Prices>,
}

/// How a model is asked to think.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reasoning {
    /// It is not.
    None,
    /// By a name.
    Effort {
        /// The names it knows, from little to much.
        levels: Vec<String>,
        /// The one that is sent if nobody asks for another.
        default: Option<String>,
    },
    /// By a number of tokens.
    Budget {
        /// The most.
        max: u32,
    },
}

/// What a file says of a model, or of all that match a pattern.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
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

/// What holds for all models whose id matches.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    pub(super) pattern: GlobMatcher,
    pub(super) part: Part,
}

impl Part {
    /// This part over `below`.
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
    /// The model `id`: what is said of it, over the profiles that match, of which a later one lies over an earlier one. The error is
    /// the key that nobody gives.
    pub(super) fn new(
        id: &str,
        own: Part,
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

    /// A model that no file lists; `None` if profiles do not tell enough of it.
    pub(super) fn unlisted(id: &str, profiles: &[Profile], api: Api) -> Option<Self> {
        Self::new(id, Part::default(), profiles, api).ok()
    }

    /// Whether that is its id or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.id == name || self.aliases.iter().any(|alias| alias == name)
    }
}
