//! What calls use, and what that costs.

use serde::{Deserialize, Serialize};

use crate::ledger;
use crate::money::{Price, Usd};

/// Tokens of one call. `input` is what was neither read from a cache nor written to one; `output` includes reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Of input.
    pub input: u64,
    /// Of input that a cache gave.
    pub cache_read: u64,
    /// Of input that a cache took.
    pub cache_write: u64,
    /// Of output.
    pub output: u64,
    /// Of output that was reasoning.
    pub reasoning: u64,
}

impl Tokens {
    /// All that was sent.
    pub const fn prompt(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }
}

/// The prices of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prices {
    /// From the smallest prompts to the largest; the last has no bound.
    tiers: Vec<Tier>,
}

/// The prices of requests up to a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tier {
    /// The most tokens of input; `None` without bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_prompt: Option<u64>,
    /// Of input.
    pub input: Price,
    /// Of input that a cache gives.
    pub cache_read: Price,
    /// Of input that a cache takes.
    pub cache_write: Price,
    /// Of output.
    pub output: Price,
}

impl Prices {
    /// Nothing costs anything.
    pub fn free() -> Self {
        Self {
            tiers: vec![Tier::default()],
        }
    }

    /// These prices. Bounds must rise, and the last tier has none.
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

    /// From the smallest prompts to the largest.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// The prices of a request with so many tokens of input.
    fn tier(&self, prompt: u64) -> &Tier {
        let holds = |tier: &&Tier| tier.until_prompt.is_none_or(|most| prompt <= most);
        self.tiers
            .iter()
            .find(holds)
            .expect("the last tier holds for prompts of any size")
    }

    /// What a call cost; `None` if it does not fit.
    pub fn cost(&self, tokens: &Tokens) -> Option<Usd> {
        let tier = self.tier(tokens.prompt());
        Price::total([
            tier.input.of(tokens.input),
            tier.cache_read.of(tokens.cache_read),
            tier.cache_write.of(tokens.cache_write),
            tier.output.of(tokens.output),
        ])
    }

    /// The most that a call may cost that sends about `input` tokens, with a tenth more for what the estimate misses, and gets at
    /// most `output`. Of the tiers that may apply the dearest counts. `None` if it does not fit.
    pub fn hold(&self, input: u64, output: u64) -> Option<Usd> {
        let most = input.checked_add(input.div_ceil(10))?;
        let reachable = self.reachable(most);
        let mut costs = reachable.map(|tier| {
            let dearest = tier.input.max(tier.cache_read).max(tier.cache_write);
            Price::total([dearest.of(most), tier.output.of(output)])
        });
        costs.try_fold(Usd::ZERO, |dearest, cost| Some(dearest.max(cost?)))
    }

    /// The most output that `money` pays for beside about `input` tokens, up to `most`.
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

    /// The tiers of requests with up to `prompt` tokens of input.
    fn reachable(&self, prompt: u64) -> impl Iterator<Item = &Tier> {
        let last = self.tier(prompt).until_prompt;
        let within = move |tier: &&Tier| match (tier.until_prompt, last) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(bound), Some(last)) => bound <= last,
        };
        self.tiers.iter().take_while(within)
    }

    /// What a turn that came to `tokens` is entered with; `None` if its cost does not fit.
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
