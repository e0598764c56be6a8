//! Models, and what a thread would begin with, for people.

use rye_client::json::models::{Model, Models, Preview, Price};

use super::{elapsed, fields, table};

/// Money with two decimals, and more only where they say something.
fn money(amount: &str) -> String {
    let cents = amount.find('.').map_or(amount.len(), |point| point + 3);
    let end = amount.trim_end_matches('0').len().max(cents);
    amount.get(..end).unwrap_or(amount).to_owned()
}

/// What a million tokens cost: `2.00`, or `0.10 to 0.50` where large requests cost more.
fn cost(prices: &[Price], of: impl Fn(&Price) -> &String) -> String {
    match (prices.first(), prices.last()) {
        (Some(first), Some(last)) if of(first) != of(last) => {
            format!("{} to {}", money(of(first)), money(of(last)))
        }
        (Some(first), _) => money(of(first)),
        (None, _) => "unknown".to_owned(),
    }
}

/// A line for each model: its names, the tiers it is taken for, its window, its prices, and whether it can be used.
pub(crate) fn models(shown: &Models) -> String {
    let heads = [
        "MODEL", "ALIASES", "TIERS", "WINDOW", "INPUT", "OUTPUT", "STATUS",
    ];
    let mut rows = Vec::new();
    for provider in &shown.providers {
        for model in &provider.models {
            let name = format!("{}/{}", provider.name, model.id);
            let tiers = shown
                .tiers
                .iter()
                .filter(|(_, models)| models.contains(&name));
            let tiers: Vec<&str> = tiers.map(|(tier, _)| tier.as_str()).collect();
            let status = match (provider.usable, model.prices.is_empty()) {
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
    let mut aliases: Vec<String> = shown
        .aliases
        .iter()
        .map(|(alias, name)| format!("{alias} = {name}"))
        .collect();
    aliases.insert(0, format!("default = {}", shown.default_tier));
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

/// What a thread would begin with: the figures, then the texts.
pub(crate) fn preview(shown: &Preview) -> String {
    let tools = shown.tools.iter().map(|tool| tool.name.clone());
    let head = fields(&[
        ("directive", Some(shown.item_id.clone())),
        ("model", Some(model(&shown.provider, &shown.model))),
        ("price", Some(price(&shown.model))),
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
    if let Some(system) = &shown.system {
        parts.push(format!("── system prompt ──\n{}", system.trim_end()));
    }
    parts.push(format!("── first message ──\n{}", shown.message.trim_end()));
    parts.join("\n\n")
}

/// The tools that the model is not offered by name, each with the reason.
fn left_out(shown: &Preview) -> Option<String> {
    let tools = shown.left_out.iter();
    let tools: Vec<String> = tools
        .map(|tool| format!("{} ({})", tool.item, tool.reason))
        .collect();
    (!tools.is_empty()).then(|| listed(&tools))
}

/// The permissions by how risky they are, the riskiest first; those that nobody is told of at the start are left out.
fn risks(shown: &Preview) -> Option<String> {
    let told = shown.risks.iter().filter(|risk| risk.policy != "allow");
    let told = told.map(|risk| format!("{} {} ({})", risk.permission, risk.class, risk.policy));
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| listed(&told))
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
    let limits = &shown.limits;
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
    match (&shown.first_call, &shown.too_small) {
        (Some(call), _) => format!(
            "about {} tokens in, at most {} out; {} USD are held for it",
            call.input_tokens,
            call.max_output,
            money(&call.hold)
        ),
        (None, Some(why)) => format!("none: {why}"),
        (None, None) => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_has_cents_and_more_where_they_say_something() {
        for (amount, shown) in [
            ("2.000000000", "2.00"),
            ("0.125000000", "0.125"),
            ("0.500000000", "0.50"),
            ("10000.000000000", "10000.00"),
        ] {
            assert_eq!(money(amount), shown);
        }
    }

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
