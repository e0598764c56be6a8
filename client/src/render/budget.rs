//! Budgets and money for people.

use rye_client::tree::Tree;
use rye_core::money::Usd;
use rye_proto::convert::{self, Malformed};
use rye_proto::v1::{Budget, Cost, GetBudgetResponse as Path, Meter};

use super::table;

/// Shown for an absent limit.
const NO_LIMIT: &str = "-";
/// Prefix of an amount that is partly an estimate.
const ESTIMATE: &str = "~";

/// Renders money with two decimals, and more only if they are not zero: `1.00`, `0.0215`.
pub(crate) fn money(amount: &str) -> String {
    let cents = amount.find('.').map_or(amount.len(), |point| point + 3);
    let end = amount.trim_end_matches('0').len().max(cents);
    amount.get(..end).unwrap_or(amount).to_owned()
}

fn usd(amount: Usd) -> String {
    money(&amount.to_string())
}

/// Renders the cost of a run: `0.0215 USD, turns 3, tokens 1200 in, 300 out`; `None` if it has cost nothing.
pub(crate) fn cost(cost: &Cost) -> Result<Option<String>, Malformed> {
    let mark = if cost.estimated {
        ", partly an estimate"
    } else {
        ""
    };
    let spend = convert::usd("spend", &cost.spend)?;
    Ok((spend > Usd::ZERO).then(|| {
        format!(
            "{} USD{mark}, turns {}, tokens {} in, {} out",
            usd(spend),
            cost.turns,
            cost.input_tokens,
            cost.output_tokens
        )
    }))
}

/// Renders the account of a run, the accounts above it, the limits of the node, and the limit that refuses first.
pub(crate) fn path(shown: &Path) -> Result<String, Malformed> {
    let heads = [
        "RUN",
        "STATE",
        "MAX",
        "USED",
        "OWN",
        "HELD",
        "BELOW",
        "REMAINING",
    ];
    let rows = shown.path.iter().map(path_row);
    let mut parts = vec![table(heads, &rows.collect::<Result<Vec<_>, _>>()?)];
    if !shown.meters.is_empty() {
        let rows = shown.meters.iter().map(meter_row);
        let heads = ["NODE", "MAX", "SPENT", "HELD", "REMAINING"];
        parts.push(table(heads, &rows.collect::<Result<Vec<_>, _>>()?));
    }
    let last = legend(shown.path.iter()).into_iter().chain(refusal(shown)?);
    let last: Vec<String> = last.collect();
    if !last.is_empty() {
        parts.push(last.join("\n"));
    }
    Ok(parts.join("\n\n"))
}

fn path_row(budget: &Budget) -> Result<[String; 8], Malformed> {
    let (own, held) = (
        convert::usd("own", &budget.own)?,
        convert::usd("held", &budget.held)?,
    );
    let used = convert::usd("used", &budget.used)?;
    Ok([
        name(budget),
        budget.state.clone(),
        limit(max(budget)?),
        about(budget, used),
        usd(own),
        usd(held),
        usd(used.saturating_sub(own).saturating_sub(held)),
        remaining(budget)?,
    ])
}

fn meter_row(meter: &Meter) -> Result<[String; 5], Malformed> {
    Ok([
        meter.id.clone(),
        limit(convert::limit("max", meter.max.as_deref())?),
        usd(convert::usd("spent", &meter.spent)?),
        usd(convert::usd("held", &meter.held)?),
        limit(left_of(meter)?),
    ])
}

/// Returns the rest of a meter, or `None` without a limit.
fn left_of(meter: &Meter) -> Result<Option<Usd>, Malformed> {
    let max = convert::limit("max", meter.max.as_deref())?;
    let spent = convert::usd("spent", &meter.spent)?;
    let held = convert::usd("held", &meter.held)?;
    Ok(max.map(|max| max.saturating_sub(spent).saturating_sub(held)))
}

/// Renders the limit that refuses spending of the run first, with the amount left. Returns `None` if the account is
/// not open or has no limit.
fn refusal(shown: &Path) -> Result<Option<String>, Malformed> {
    if shown.path.first().is_none_or(|own| own.state != "open") {
        return Ok(None);
    }
    let mut limits = Vec::new();
    // What remains below a limit is reserved above it, so only the nearest account with a limit counts.
    for budget in &shown.path {
        if let Some(left) = convert::limit("remaining", budget.remaining.as_deref())? {
            limits.push((left, format!("run {}", name(budget))));
            break;
        }
    }
    for meter in &shown.meters {
        if let Some(left) = left_of(meter)? {
            limits.push((left, format!("the limit of this node for the {}", meter.id)));
        }
    }
    let first = limits.into_iter().min_by_key(|(left, _)| *left);
    Ok(first.map(|(left, who)| format!("{who} refuses first: {} USD remaining", usd(left))))
}

/// Renders an account and all accounts below it, indented.
pub(crate) fn tree(tree: &Tree<Budget>) -> Result<String, Malformed> {
    let budgets = Tree::lines(std::slice::from_ref(tree));
    let heads = ["RUN", "STATE", "MAX", "USED", "SPENT", "HELD", "REMAINING"];
    let rows = budgets.iter().map(|(level, budget)| {
        Ok([
            format!("{}{}", "  ".repeat(*level), name(budget)),
            budget.state.clone(),
            limit(max(budget)?),
            usd(convert::usd("used", &budget.used)?),
            about(budget, convert::usd("actual", &budget.actual)?),
            usd(convert::usd("held", &budget.held)?),
            remaining(budget)?,
        ])
    });
    let rows = rows.collect::<Result<Vec<[String; 7]>, _>>()?;
    let legend = legend(budgets.iter().map(|(_, budget)| *budget));
    let parts: Vec<String> = std::iter::once(table(heads, &rows)).chain(legend).collect();
    Ok(parts.join("\n\n"))
}

/// Renders the new limit of a raised account. `before` is the account before the raise.
pub(crate) fn raised(budget: &Budget, before: Option<&Budget>) -> Result<String, Malformed> {
    let earlier = before.map(max).transpose()?.flatten();
    let from = earlier.map(|max| format!("from {} ", usd(max)));
    Ok(format!(
        "{}: {}to {} USD, of which {} remain",
        name(budget),
        from.unwrap_or_default(),
        limit(max(budget)?),
        limit(convert::limit("remaining", budget.remaining.as_deref())?)
    ))
}

/// Returns the run, and the first run of its chain if that is another one, because errors name the first.
fn name(budget: &Budget) -> String {
    if budget.account == budget.run_id {
        budget.run_id.clone()
    } else {
        format!("{} (account {})", budget.run_id, budget.account)
    }
}

fn max(budget: &Budget) -> Result<Option<Usd>, Malformed> {
    convert::limit("max", budget.max.as_deref())
}

fn limit(amount: Option<Usd>) -> String {
    amount.map_or_else(|| NO_LIMIT.to_owned(), usd)
}

fn remaining(budget: &Budget) -> Result<String, Malformed> {
    let overrun = convert::usd("overrun", &budget.overrun)?;
    if overrun > Usd::ZERO {
        return Ok(format!("{} over", usd(overrun)));
    }
    let remaining = convert::limit("remaining", budget.remaining.as_deref())?;
    Ok(limit(remaining))
}

/// Renders an amount, with [`ESTIMATE`] if a part of it is an estimate.
fn about(budget: &Budget, amount: Usd) -> String {
    let mark = if budget.estimated { ESTIMATE } else { "" };
    format!("{mark}{}", usd(amount))
}

/// Explains [`ESTIMATE`] if one of the budgets uses it.
fn legend<'b>(mut budgets: impl Iterator<Item = &'b Budget>) -> Option<String> {
    budgets
        .any(|budget| budget.estimated)
        .then(|| format!("{ESTIMATE} partly an estimate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dollars(text: &str) -> String {
        Usd::parse(text).unwrap().to_string()
    }

    /// Makes an open account. The amounts are the run's own spending, the money on hold, and the total.
    fn budget(run_id: &str, max: Option<&str>, [own, held, used]: [&str; 3]) -> Budget {
        let [most, used] = [max.unwrap_or("0"), used].map(|text| Usd::parse(text).unwrap());
        let overrun = max.map_or(Usd::ZERO, |_| used.saturating_sub(most));
        Budget {
            run_id: run_id.to_owned(),
            account: run_id.to_owned(),
            state: "open".to_owned(),
            max: max.map(dollars),
            held: dollars(held),
            own: dollars(own),
            actual: dollars(own),
            overrun: overrun.to_string(),
            remaining: max.map(|_| most.saturating_sub(used).to_string()),
            used: used.to_string(),
            ..Budget::default()
        }
    }

    fn meter(id: &str, max: Option<&str>, spent: &str) -> Meter {
        Meter {
            id: id.to_owned(),
            max: max.map(dollars),
            spent: dollars(spent),
            held: dollars("0.1"),
        }
    }

    #[test]
    fn money_has_two_to_nine_decimals() {
        for (text, shown) in [
            ("0", "0.00"),
            ("1", "1.00"),
            ("10", "10.00"),
            ("100000", "100000.00"),
            ("0.5", "0.50"),
            ("0.0215", "0.0215"),
            ("0.000000001", "0.000000001"),
        ] {
            assert_eq!(money(&dollars(text)), shown);
        }
    }

    #[test]
    fn budget_path_table_names_first_refusing_account() {
        let shown = Path {
            path: vec![
                budget("child", Some("1"), ["0.0215", "0.1", "0.1215"]),
                Budget {
                    account: "first".to_owned(),
                    estimated: true,
                    ..budget("root", Some("1.5"), ["0.5", "0", "1.5"])
                },
            ],
            meters: vec![],
        };
        assert_eq!(
            path(&shown).unwrap(),
            concat!(
                "RUN                   STATE  MAX   USED    OWN     HELD  BELOW  REMAINING\n",
                "child                 open   1.00  0.1215  0.0215  0.10  0.00   0.8785\n",
                "root (account first)  open   1.50  ~1.50   0.50    0.00  1.00   0.00\n\n",
                "~ partly an estimate\n",
                // The rest of `root` is reserved for `child`.
                "run child refuses first: 0.8785 USD remaining"
            )
        );
    }

    #[test]
    fn a_run_without_a_limit_is_refused_by_the_next_above_or_by_the_node() {
        let free = budget("free", None, ["0.2", "0", "0.2"]);
        let above = budget("above", Some("1"), ["0", "0", "0.2"]);
        let day = || meter("day/2026-11-22", Some("2"), "1.5");
        let month = || meter("month/2026-11", None, "9");
        let last = |path: &[&Budget], meters: Vec<Meter>| {
            let path = path.iter().copied().cloned().collect();
            refusal(&Path { path, meters }).unwrap()
        };
        assert_eq!(last(&[&free], vec![month()]), None);
        assert_eq!(
            last(&[&free, &above], vec![]).as_deref(),
            Some("run above refuses first: 0.80 USD remaining")
        );
        assert_eq!(
            last(&[&free, &above], vec![day(), month()]).as_deref(),
            Some("the limit of this node for the day/2026-11-22 refuses first: 0.40 USD remaining")
        );
        let over = Budget {
            state: "closed".to_owned(),
            ..above
        };
        assert_eq!(last(&[&over], vec![day()]), None, "it spends no more");
        assert_eq!(last(&[], vec![day()]), None);
    }

    #[test]
    fn the_meters_of_the_node_are_a_table_of_their_own() {
        let shown = Path {
            path: vec![budget("r", None, ["0", "0", "0"])],
            meters: vec![meter("month/2026-11", None, "9")],
        };
        assert_eq!(
            path(&shown).unwrap(),
            concat!(
                "RUN  STATE  MAX  USED  OWN   HELD  BELOW  REMAINING\n",
                "r    open   -    0.00  0.00  0.00  0.00   -\n\n",
                "NODE           MAX  SPENT  HELD  REMAINING\n",
                "month/2026-11  -    9.00   0.10  -"
            )
        );
    }

    #[test]
    fn a_tree_is_indented_and_marks_estimates_and_overruns() {
        let leaf = |budget: Budget| Tree {
            record: budget,
            children: vec![],
        };
        let shown = Tree {
            record: budget("root", Some("2"), ["0.25", "0", "1.25"]),
            children: vec![
                leaf(Budget {
                    estimated: true,
                    state: "closed".to_owned(),
                    ..budget("a", Some("1"), ["1.5", "0", "1.5"])
                }),
                leaf(budget("b", None, ["0", "0", "0"])),
            ],
        };
        assert_eq!(
            tree(&shown).unwrap(),
            concat!(
                "RUN   STATE   MAX   USED  SPENT  HELD  REMAINING\n",
                "root  open    2.00  1.25  0.25   0.00  0.75\n",
                "  a   closed  1.00  1.50  ~1.50  0.00  0.50 over\n",
                "  b   open    -     0.00  0.00   0.00  -\n\n",
                "~ partly an estimate"
            )
        );
    }

    #[test]
    fn budget_raise_shows_old_and_new_limit() {
        let before = budget("r", Some("1"), ["0", "0", "0.6"]);
        let now = budget("r", Some("3"), ["0", "0", "0.6"]);
        assert_eq!(
            raised(&now, Some(&before)).unwrap(),
            "r: from 1.00 to 3.00 USD, of which 2.40 remain"
        );
        let unlimited = budget("r", None, ["0", "0", "0"]);
        for before in [Some(&unlimited), None] {
            assert_eq!(
                raised(&now, before).unwrap(),
                "r: to 3.00 USD, of which 2.40 remain"
            );
        }
    }
}
