//! Calls that are prepared on a worker of the runtime, because no file has to be waited for.
//!
//! **Never** blocks: what a glance at the project does not tell is left to a visit through its gate.

use rye_core::capability::Primary;
use serde_json::Value;

use crate::chain::{self, Chain, Offer, Terminal};
use crate::config::Config;
use crate::services::{Order, TraceMode};

/// Bytes of parameters that are checked without leaving the worker at most.
const MOST_AT_ONCE: usize = 16 * 1024;

/// What is known of the one tool of some calls without waiting for a file.
pub(super) struct AtOnce {
    pub(super) chain: Chain,
    pub(super) offer: Offer,
}

impl AtOnce {
    /// Nothing, unless the tool is built in, runs inside the daemon or is the shell, and the calls are plain and given little.
    pub(super) fn of(orders: &[Order], config: &Config) -> Option<Self> {
        let first = orders.first()?;
        let mut left = MOST_AT_ONCE;
        let mut is_plain = |order: &Order| {
            order.primary == Primary::Execute
                && order.trace == TraceMode::Off
                && order.item == first.item
                && order.params.values().all(|value| fits(value, &mut left))
        };
        if !orders.iter().all(&mut is_plain) {
            return None;
        }
        let glance = first.project.glance()?;
        let chain = chain::at_a_glance(&glance, &first.item.canonical())?;
        let needs_file = |order: &Order| !chain.needs_no_file(&order.params);
        if orders.iter().any(needs_file) {
            return None;
        }
        let offer = if matches!(chain.terminal, Terminal::Native(_)) {
            Offer::default()
        } else if first.project.is_seen_by(&glance) {
            Offer::at_a_glance(&glance, config)?
        } else {
            // As with a visit: a process starts in no other directory than that of the run.
            return None;
        };
        Some(Self { chain, offer })
    }
}

/// Whether `value` is no larger than `left`, in bytes, which it uses up.
fn fits(value: &Value, left: &mut usize) -> bool {
    let own = size_of::<Value>() + value.as_str().map_or(0, str::len);
    let Some(rest) = left.checked_sub(own) else {
        return false;
    };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, left)),
        Value::Object(fields) => fields.iter().all(|(name, value)| {
            *left = left.saturating_sub(name.len());
            fits(value, left)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
