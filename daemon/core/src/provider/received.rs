//! Cost of a call with an interrupted answer.

use super::choice::ResolvedModel;
use super::stream::StreamSignal;
use super::usage::Tokens;
use crate::ledger::Usage;
use crate::money::Usd;

/// The part of an answer that arrived before its interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    /// True if a status line announced an answer.
    pub is_answered: bool,
    /// Last usage that the provider reported.
    pub reported: Option<Tokens>,
    /// Bytes of text, reasoning and calls that arrived after that report.
    pub unreported: usize,
    /// True if a stop reason arrived: the next report covers the whole answer.
    pub has_stopped: bool,
}

/// Cost of an interrupted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownCost {
    /// Charged usage. It counts no turn.
    pub usage: Usage,
    /// True unless the provider reported the usage of the whole answer.
    pub estimated: bool,
}

impl Received {
    /// Counts a signal of the answer.
    pub fn count(&mut self, signal: &StreamSignal) {
        let more = match signal {
            StreamSignal::Usage(tokens) => {
                self.reported = Some(*tokens);
                self.unreported = 0;
                return;
            }
            StreamSignal::Text { text, .. }
            | StreamSignal::Thinking { text, .. }
            | StreamSignal::CallArgs { text, .. }
            | StreamSignal::CallBegun { name: text, .. } => text.len(),
            StreamSignal::Stopped(_) => {
                self.has_stopped = true;
                return;
            }
            StreamSignal::Begun { .. }
            | StreamSignal::Block(_)
            | StreamSignal::CallReady(_)
            | StreamSignal::Ended(_)
            | StreamSignal::Broken(_) => return,
        };
        self.unreported = self.unreported.saturating_add(more);
    }
}

impl ResolvedModel {
    /// Returns the cost of an interrupted call: the reported usage, and an estimate of the rest. `input` is the
    /// estimated size of the request in tokens, `hold` the amount held for the call. An estimate never exceeds the
    /// hold; a report may.
    ///
    /// Returns `None` if only the hold is known: no status line arrived, or the model may have reasoned without output
    /// and reported no usage.
    pub fn known_cost(&self, received: &Received, input: u64, hold: Usd) -> Option<KnownCost> {
        let may_hide = self.thinking.is_some() && received.reported.is_none();
        if !received.is_answered || may_hide {
            return None;
        }
        let reported = received.reported.unwrap_or_default();
        let has_prompt = reported.prompt() > 0;
        let more = self.token_size.tokens(received.unreported);
        let tokens = Tokens {
            input: if has_prompt { reported.input } else { input },
            output: reported.output.saturating_add(more),
            ..reported
        };
        let estimated = !received.has_stopped || !has_prompt || more > 0;
        let entry = self.prices.entry(&tokens)?;
        let least = self.prices.cost(&reported)?;
        let money = if estimated {
            entry.money.min(hold).max(least)
        } else {
            entry.money
        };
        let usage = Usage {
            money,
            turns: 0,
            ..entry
        };
        Some(KnownCost { usage, estimated })
    }
}
