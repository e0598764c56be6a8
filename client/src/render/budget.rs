//! Budgets and money for people.

use rye_client::json::budget::{Budget, Meter, Path, Tree};
use rye_client::json::{Cost, Dollars};
use rye_core::money::Usd;

use super::table;

/// Stands where there is no limit.
const NO_LIMIT: &str = "-";
/// Marks an amount of which a part is an estimate.
const ESTIMATE: &str = "~";

/// Money with two decimals, and more only where they say something: `1.00`, `0.0215`.
pub(crate) fn money(amount: Dollars) -> String {
    let mut text = amount.0.to_string();
    let cents = text.find('.').map_or(0, |point| point + 3);
    let end = text.trim_end_matches('0').len().max(cents);
    text.truncate(end);
    text
}

/// What a run has cost: `0.0215 USD, turns 3, tokens 1200 in, 300 out`; `None` if it has cost nothing.
pub(crate) fn cost(cost: &Cost) -> Option<String> {
    let mark = if cost.estimated {
        ", partly an estimate"
    } else {
        ""
    };
    (cost.spend.0 > Usd::ZERO).then(|| {
        format!(
            "{} USD{mark}, turns {}, tokens {} in, {} out",
            money(cost.spend),
            cost.turns,
            cost.input_tokens,
            cost.output_tokens
        )
    })
}

/// The account of a run and those above it, what the node may spend, and who refuses first.
pub(crate) fn path(shown: &Path) -> String {
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
    let rows: Vec<[String; 8]> = shown.path.iter().map(path_row).collect();
    let mut parts = vec![table(heads, &rows)];
    if !shown.meters.is_empty() {
        let rows: Vec<[String; 5]> = shown.meters.iter().map(meter_row).collect();
        let heads = ["NODE", "MAX", "SPENT", "HELD", "REMAINING"];
        parts.push(table(heads, &rows));
    }
    let last = legend(shown.path.iter()).into_iter().chain(refusal(shown));
    let last: Vec<String> = last.collect();
    if !last.is_empty() {
        parts.push(last.join("\n"));
    }
    parts.join("\n\n")
}

fn path_row(budget: &Budget) -> [String; 8] {
    let below = budget.used.0.saturating_sub(budget.own.0);
    let below = Dollars(below.saturating_sub(budget.held.0));
    [
        name(budget),
        budget.state.clone(),
        limit(budget.max),
        about(budget, budget.used),
        money(budget.own),
        money(budget.held),
        money(below),
        remaining(budget),
    ]
}

fn meter_row(meter: &Meter) -> [String; 5] {
    [
        meter.id.clone(),
        limit(meter.max),
        money(meter.spent),
        money(meter.held),
        limit(meter.remaining()),
    ]
}

/// Who refuses first what the run would spend, and how much is left until then.
fn refusal(shown: &Path) -> Option<String> {
    if shown.path.first()?.state != "open" {
        return None;
    }
    // What is left below a limit is reserved above it, so of the accounts only the nearest with a limit is asked.
    let mut accounts = shown.path.iter();
    let account =
        accounts.find_map(|budget| Some((budget.remaining?, format!("run {}", name(budget)))));
    let meters = shown.meters.iter().filter_map(|meter| {
        let who = format!("the limit of this node for the {}", meter.id);
        Some((meter.remaining()?, who))
    });
    let first = account.into_iter().chain(meters);
    let (left, who) = first.min_by_key(|(left, _)| *left)?;
    Some(format!(
        "{who} refuses first: {} USD remaining",
        money(left)
    ))
}

/// An account and all below it, indented.
pub(crate) fn tree(tree: &Tree) -> String {
    let mut budgets = Vec::new();
    walk(0, tree, &mut budgets);
    let heads = ["RUN", "STATE", "MAX", "USED", "SPENT", "HELD", "REMAINING"];
    let rows: Vec<[String; 7]> = budgets
        .iter()
        .map(|(level, budget)| {
            [
                format!("{}{}", "  ".repeat(*level), name(budget)),
                budget.state.clone(),
                limit(budget.max),
                money(budget.used),
                about(budget, budget.actual),
                money(budget.held),
                remaining(budget),
            ]
        })
        .collect();
    let legend = legend(budgets.iter().map(|(_, budget)| *budget));
    let parts: Vec<String> = std::iter::once(table(heads, &rows)).chain(legend).collect();
    parts.join("\n\n")
}

fn walk<'t>(level: usize, tree: &'t Tree, out: &mut Vec<(usize, &'t Budget)>) {
    out.push((level, &tree.budget));
    for child in &tree.children {
        walk(level + 1, child, out);
    }
}

/// What an account that was raised may spend now; `before` is as it was.
pub(crate) fn raised(budget: &Budget, before: Option<&Budget>) -> String {
    let earlier = before.and_then(|before| before.max);
    let from = earlier.map(|max| format!("from {} ", money(max)));
    format!(
        "{}: {}to {} USD, of which {} remain",
        name(budget),
        from.unwrap_or_default(),
        limit(budget.max),
        limit(budget.remaining)
    )
}

/// A run, and the first of its chain where that is another one: what is refused names that one.
fn name(budget: &Budget) -> String {
    if budget.account == budget.run_id {
        budget.run_id.clone()
    } else {
        format!("{} (account {})", budget.run_id, budget.account)
    }
}

fn limit(amount: Option<Dollars>) -> String {
    amount.map_or_else(|| NO_LIMIT.to_owned(), money)
}

fn remaining(budget: &Budget) -> String {
    if budget.overrun.0 > Usd::ZERO {
        format!("{} over", money(budget.overrun))
    } else {
        limit(budget.remaining)
    }
}

/// An amount, marked if a part of it is an estimate.
fn about(budget: &Budget, amount: Dollars) -> String {
    let mark = if budget.estimated { ESTIMATE } else { "" };
    format!("{mark}{}", money(amount))
}

/// What the mark means, if it stands somewhere.
fn legend<'b>(mut budgets: impl Iterator<Item = &'b Budget>) -> Option<String> {
    budgets
        .any(|budget| budget.estimated)
        .then(|| format!("{ESTIMATE} partly an estimate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dollars(text: &str) -> Dollars {
        Dollars(Usd::parse(text).unwrap())
    }

    /// An open account: its limit, and what of its own, on hold and in all is used.
    fn budget(run_id: &str, max: Option<&str>, [own, held, used]: [&str; 3]) -> Budget {
        let (max, used) = (max.map(dollars), dollars(used));
        Budget {
            run_id: run_id.to_owned(),
            account: run_id.to_owned(),
            state: "open".to_owned(),
            max,
            reserved: Dollars::default(),
            held: dollars(held),
            own: dollars(own),
            actual: dollars(own),
            overrun: max.map_or_else(Dollars::default, |max| {
                Dollars(used.0.saturating_sub(max.0))
            }),
            remaining: max.map(|max| Dollars(max.0.saturating_sub(used.0))),
            estimated: false,
            used,
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
    fn money_is_as_long_as_it_has_to_be() {
        for (text, shown) in [
            ("0", "0.00"),
            ("1", "1.00"),
            ("10", "10.00"),
            ("100000", "100000.00"),
            ("0.5", "0.50"),
            ("0.0215", "0.0215"),
            ("0.000000001", "0.000000001"),
        ] {
            assert_eq!(money(dollars(text)), shown);
        }
    }

    #[test]
    fn the_way_up_is_a_table_and_says_who_refuses_first() {
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
            path(&shown),
            concat!(
                "RUN                   STATE  MAX   USED    OWN     HELD  BELOW  REMAINING\n",
                "child                 open   1.00  0.1215  0.0215  0.10  0.00   0.8785\n",
                "root (account first)  open   1.50  ~1.50   0.50    0.00  1.00   0.00\n\n",
                "~ partly an estimate\n",
                // All that is left of `root` is reserved for `child`.
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
            refusal(&Path { path, meters })
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
            path(&shown),
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
        let leaf = |budget| Tree {
            budget,
            children: vec![],
        };
        let shown = Tree {
            budget: budget("root", Some("2"), ["0.25", "0", "1.25"]),
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
            tree(&shown),
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
    fn a_raise_tells_what_was_and_what_is() {
        let before = budget("r", Some("1"), ["0", "0", "0.6"]);
        let now = budget("r", Some("3"), ["0", "0", "0.6"]);
        assert_eq!(
            raised(&now, Some(&before)),
            "r: from 1.00 to 3.00 USD, of which 2.40 remain"
        );
        let unlimited = budget("r", None, ["0", "0", "0"]);
        for before in [Some(&unlimited), None] {
            assert_eq!(raised(&now, before), "r: to 3.00 USD, of which 2.40 remain");
        }
    }
}
