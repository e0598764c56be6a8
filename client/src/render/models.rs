//! Models and previews of threads, for people.

use std::collections::BTreeMap;

use rye_proto::v1::{Model, ModelPrice as Price, ModelsResponse, PreviewResponse as Preview};

use super::budget::money;
use super::{elapsed, fields, some, table};

/// Renders the price of a million tokens: `2.00`, or `0.10 to 0.50` if it rises with the size of the request.
fn cost(prices: &[Price], of: impl Fn(&Price) -> &String) -> String {
    match (prices.first(), prices.last()) {
        (Some(first), Some(last)) if of(first) != of(last) => {
            format!("{} to {}", money(of(first)), money(of(last)))
        }
        (Some(first), _) => money(of(first)),
        (None, _) => "unknown".to_owned(),
    }
}

/// Renders a table of models with their aliases, tiers, windows, prices and status.
pub(crate) fn models(shown: &ModelsResponse) -> String {
    let heads = [
        "MODEL", "ALIASES", "TIERS", "WINDOW", "INPUT", "OUTPUT", "STATUS",
    ];
    let mut rows = Vec::new();
    for provider in &shown.providers {
        for model in &provider.models {
            let name = format!("{}/{}", provider.name, model.id);
            let tiers = shown.tiers.iter();
            let tiers = tiers.filter(|tier| tier.models.contains(&name));
            let mut tiers: Vec<&str> = tiers.map(|tier| tier.name.as_str()).collect();
            tiers.sort_unstable();
            let status = match (provider.lacks.is_empty(), model.prices.is_empty()) {
                (_, true) => "price unknown",
                (true, false) => "usable",
                (false, false) => "no key",
            };
            rows.push([
                name,
                listed(&model.aliases),
                if tiers.is_empty() {
                    "-".to_owned()
                } else {
                    tiers.join(", ")
                },
                model.window.to_string(),
                cost(&model.prices, |price| &price.input),
                cost(&model.prices, |price| &price.output),
                status.to_owned(),
            ]);
        }
    }
    let sorted: BTreeMap<_, _> = shown.aliases.iter().collect();
    let mut aliases = vec![format!("default = {}", shown.default_tier)];
    aliases.extend(
        sorted
            .iter()
            .map(|(alias, name)| format!("{alias} = {name}")),
    );
    format!(
        "{}\nUSD for a million tokens. Words for tiers: {}",
        table(heads, &rows),
        aliases.join(", ")
    )
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join(", ")
    }
}

/// Renders the preview of a thread of the directive `item_id`: the figures, then the texts.
pub(crate) fn preview(item_id: &str, shown: &Preview) -> String {
    let first_model = shown.model.clone().unwrap_or_default();
    let tools = shown.tools.iter().map(|tool| tool.name.clone());
    let head = fields(&[
        ("directive", Some(item_id.to_owned())),
        ("model", Some(model(&shown.provider, &first_model))),
        ("price", Some(price(&first_model))),
        ("limits", Some(limits(shown))),
        ("first call", Some(first_call(shown))),
        ("tools", Some(listed(&tools.collect::<Vec<_>>()))),
        ("not offered", left_out(shown)),
        (
            "may",
            shown.layers.last().map(|layer| listed(&layer.patterns)),
        ),
        ("risks", risks(shown)),
    ]);
    let mut parts = vec![head];
    if let Some(system) = some(&shown.system) {
        parts.push(format!("── system prompt ──\n{}", system.trim_end()));
    }
    parts.push(format!("── first message ──\n{}", shown.message.trim_end()));
    parts.join("\n\n")
}

/// Renders the tools that the model is not offered by name, each with the reason.
fn left_out(shown: &Preview) -> Option<String> {
    let tools = shown.left_out.iter();
    let tools: Vec<String> = tools
        .map(|tool| format!("{} ({})", tool.item, tool.reason))
        .collect();
    (!tools.is_empty()).then(|| listed(&tools))
}

/// Renders the permissions with their risks, in the daemon's order. Those that are allowed without a question are
/// omitted.
fn risks(shown: &Preview) -> Option<String> {
    let risks = shown.risks.iter().filter(|risk| risk.policy != "allow");
    let risks = risks.map(|risk| format!("{} {} ({})", risk.permission, risk.risk, risk.policy));
    let risks: Vec<String> = risks.collect();
    (!risks.is_empty()).then(|| listed(&risks))
}

fn model(provider: &str, model: &Model) -> String {
    format!(
        "{provider}/{}, window {}, answers up to {}",
        model.id, model.window, model.max_output
    )
}

fn price(model: &Model) -> String {
    let input = cost(&model.prices, |price| &price.input);
    let output = cost(&model.prices, |price| &price.output);
    format!("{input} in, {output} out (USD for a million tokens)")
}

fn limits(shown: &Preview) -> String {
    let limits = shown.limits.clone().unwrap_or_default();
    let number = |name: &str, limit: Option<u64>| limit.map(|limit| format!("{name} {limit}"));
    let spend = limits
        .spend
        .as_deref()
        .map(|spend| format!("spend {} USD", money(spend)));
    let parts = [
        number("turns", limits.turns.map(u64::from)),
        number("tokens", limits.tokens),
        spend,
        limits
            .duration_ms
            .map(|ms| format!("duration {}", elapsed(ms))),
        number("spawns", limits.spawns.map(u64::from)),
        number("depth", limits.depth.map(u64::from)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn first_call(shown: &Preview) -> String {
    match (shown.hold.as_str(), shown.too_small.as_str()) {
        ("", "") => "none".to_owned(),
        ("", why) => format!("none: {why}"),
        (hold, _) => format!(
            "about {} tokens in, at most {} out; {} USD are held for it",
            shown.input_tokens,
            shown.max_output,
            money(hold)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_that_rise_with_the_request_are_a_range() {
        let price = |input: &str| Price {
            until_prompt: None,
            input: input.to_owned(),
            cache_read: String::new(),
            cache_write: String::new(),
            output: "1.000000000".to_owned(),
        };
        let rising = [price("0.100000000"), price("0.500000000")];
        assert_eq!(cost(&rising, |price| &price.input), "0.10 to 0.50");
        assert_eq!(cost(&rising, |price| &price.output), "1.00");
        assert_eq!(cost(&[], |price| &price.input), "unknown");
    }
}
