//! Token usage of calls, and its cost.

use serde::{Deserialize, Serialize};

use crate::ledger;
use crate::money::{Price, Usd};

/// Tokens of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Input tokens that were neither read from a cache nor written to one.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Output tokens that were reasoning.
    pub reasoning: u64,
}

impl Tokens {
    /// Returns the total of the input tokens.
    pub const fn prompt(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prices {
    /// Ascending by size of the prompt; the last tier has no bound.
    tiers: Vec<Tier>,
}

/// Prices of requests up to a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tier {
    /// Largest number of input tokens; `None` means no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_prompt: Option<u64>,
    /// Price of uncached input.
    pub input: Price,
    /// Price of input read from a cache.
    pub cache_read: Price,
    /// Price of input written to a cache.
    pub cache_write: Price,
    /// Price of output.
    pub output: Price,
}

impl Prices {
    /// Returns prices of zero.
    pub fn free() -> Self {
        Self {
            tiers: vec![Tier::default()],
        }
    }

    /// Creates prices. Bounds must rise, and the last tier has none.
    pub fn new(tiers: Vec<Tier>) -> Result<Self, &'static str> {
        let (last, others) = tiers.split_last().ok_or("there are none")?;
        let bounds: Option<Vec<u64>> = others.iter().map(|tier| tier.until_prompt).collect();
        let bounds = bounds.ok_or("only the last may hold for prompts of any size")?;
        if last.until_prompt.is_some() {
            return Err("the last must hold for prompts of any size: `until_prompt: null`");
        }
        if !bounds.is_sorted_by(|one, next| one < next) {
            return Err("`until_prompt` must rise from one to the next");
        }
        Ok(Self { tiers })
    }

    /// Returns the tiers, ascending by size of the prompt.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// Returns the tier of a request with `prompt` tokens of input.
    fn tier(&self, prompt: u64) -> &Tier {
        let holds = |tier: &&Tier| tier.until_prompt.is_none_or(|most| prompt <= most);
        self.tiers
            .iter()
            .find(holds)
            .expect("the last tier holds for prompts of any size")
    }

    /// Returns the cost of a call; `None` if it overflows.
    pub fn cost(&self, tokens: &Tokens) -> Option<Usd> {
        let tier = self.tier(tokens.prompt());
        Price::total([
            tier.input.of(tokens.input),
            tier.cache_read.of(tokens.cache_read),
            tier.cache_write.of(tokens.cache_write),
            tier.output.of(tokens.output),
        ])
    }

    /// Returns the largest cost of a call with about `input` tokens of input and at most `output` tokens of output. A
    /// tenth is added to `input` for the error of the estimate. The most expensive tier that may apply counts. `None`
    /// if it overflows.
    pub fn hold(&self, input: u64, output: u64) -> Option<Usd> {
        let most = input.checked_add(input.div_ceil(10))?;
        let reachable = self.reachable(most);
        let mut costs = reachable.map(|tier| {
            let dearest = tier.input.max(tier.cache_read).max(tier.cache_write);
            Price::total([dearest.of(most), tier.output.of(output)])
        });
        costs.try_fold(Usd::ZERO, |dearest, cost| Some(dearest.max(cost?)))
    }

    /// Returns the largest output, up to `most` tokens, that `money` covers together with about `input` tokens of
    /// input.
    pub fn affordable(&self, money: Usd, input: u64, most: u64) -> u64 {
        let fits = |output: u64| self.hold(input, output).is_some_and(|cost| cost <= money);
        let (mut least, mut beyond) = (0, most.saturating_add(1));
        if !fits(0) {
            return 0;
        }
        while beyond - least > 1 {
            let middle = least + (beyond - least) / 2;
            if fits(middle) {
                least = middle;
            } else {
                beyond = middle;
            }
        }
        least
    }

    /// Returns the tiers that requests with up to `prompt` tokens of input may reach.
    fn reachable(&self, prompt: u64) -> impl Iterator<Item = &Tier> {
        let last = self.tier(prompt).until_prompt;
        let within = move |tier: &&Tier| match (tier.until_prompt, last) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(bound), Some(last)) => bound <= last,
        };
        self.tiers.iter().take_while(within)
    }

    /// Returns the ledger entry of a turn with these tokens; `None` if its cost overflows.
    pub fn entry(&self, tokens: &Tokens) -> Option<ledger::Usage> {
        Some(ledger::Usage {
            money: self.cost(tokens)?,
            calls: 1,
            turns: 1,
            input: tokens.input,
            output: tokens.output,
            cache_read: tokens.cache_read,
            cache_write: tokens.cache_write,
            reasoning: tokens.reasoning,
        })
    }
}
