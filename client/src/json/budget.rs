//! The JSON of `budget show`, `budget tree` and `budget raise`.

use rye_proto::v1;
use serde::Serialize;

use super::{Dollars, some};
use crate::error::Error;

/// The account of a run and of those that continue it: an element of `budget raise --json` and of the path of
/// `budget show --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// The newest of the runs that have the account.
    pub run_id: String,
    /// The first of them, which names the account.
    pub account: String,
    /// `open`, `ended` or `closed`.
    pub state: String,
    /// The most it may spend, itself and all below it; null without a limit of its own.
    pub max: Option<Dollars>,
    /// What is set aside for it in the account that it draws on.
    pub reserved: Dollars,
    /// What its paid call under way may cost.
    pub held: Dollars,
    /// What its own calls have cost.
    pub own: Dollars,
    /// What its own calls and those of all below it have cost.
    pub actual: Dollars,
    /// By how much more is used than `max`.
    pub overrun: Dollars,
    /// What it may still spend; null without a limit of its own.
    pub remaining: Option<Dollars>,
    /// Whether a part of `actual` is an estimate.
    pub estimated: bool,
    /// What counts against `max`, for people only.
    #[serde(skip)]
    pub used: Dollars,
}

impl Budget {
    /// From the account that the daemon answered with.
    pub fn new(budget: &v1::Budget) -> Result<Self, Error> {
        Ok(Self {
            run_id: budget.run_id.clone(),
            account: budget.account.clone(),
            state: budget.state.clone(),
            max: limit("max", budget.max.as_ref())?,
            reserved: Dollars::read("reserved", &budget.reserved)?,
            held: Dollars::read("held", &budget.held)?,
            own: Dollars::read("own", &budget.own)?,
            actual: Dollars::read("actual", &budget.actual)?,
            overrun: Dollars::read("overrun", &budget.overrun)?,
            remaining: limit("remaining", budget.remaining.as_ref())?,
            estimated: budget.estimated,
            used: Dollars::read("used", &budget.used)?,
        })
    }

    /// Some accounts, in their order.
    pub fn list(budgets: &[v1::Budget]) -> Result<Vec<Self>, Error> {
        budgets.iter().map(Self::new).collect()
    }
}

/// What the node has spent in a day or a month.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Meter {
    /// Such as `day/2026-11-22`.
    pub id: String,
    /// The most it may spend; null without a limit.
    pub max: Option<Dollars>,
    /// What settled calls have cost.
    pub spent: Dollars,
    /// What calls under way may cost.
    pub held: Dollars,
}

impl Meter {
    fn new(meter: &v1::Meter) -> Result<Self, Error> {
        Ok(Self {
            id: meter.id.clone(),
            max: limit("max", meter.max.as_ref())?,
            spent: Dollars::read("spent", &meter.spent)?,
            held: Dollars::read("held", &meter.held)?,
        })
    }

    /// What may still be spent; `None` without a limit.
    pub fn remaining(&self) -> Option<Dollars> {
        let max = self.max?.0;
        let left = max.saturating_sub(self.spent.0);
        Some(Dollars(left.saturating_sub(self.held.0)))
    }
}

/// `budget show --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Path {
    /// The account of the run, then those above it.
    pub path: Vec<Budget>,
    /// What the node has spent as a whole.
    pub meters: Vec<Meter>,
}

impl Path {
    /// From what the daemon answered.
    pub fn new(answer: &v1::GetBudgetResponse) -> Result<Self, Error> {
        let meters = answer.meters.iter().map(Meter::new);
        Ok(Self {
            path: Budget::list(&answer.path)?,
            meters: meters.collect::<Result<_, _>>()?,
        })
    }
}

/// An account with those that draw on it: `budget tree --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// The account.
    #[serde(flatten)]
    pub budget: Budget,
    /// The accounts that draw on it.
    pub children: Vec<Self>,
}

impl Tree {
    /// From the accounts as the daemon lists them: each behind the one that it draws on, with its depth.
    pub fn grow(nodes: &[v1::BudgetNode]) -> Result<Self, Error> {
        // The way from the root to the node before, each with its depth.
        let mut way: Vec<(u32, Self)> = Vec::new();
        for node in nodes {
            let budget = node.budget.as_ref().ok_or_else(|| missing("budget"))?;
            let tree = Self {
                budget: Budget::new(budget)?,
                children: Vec::new(),
            };
            while way.last().is_some_and(|(depth, _)| *depth >= node.depth) && way.len() > 1 {
                fold(&mut way);
            }
            way.push((node.depth, tree));
        }
        while way.len() > 1 {
            fold(&mut way);
        }
        let root = way.pop().map(|(_, root)| root);
        root.ok_or_else(|| missing("accounts"))
    }
}

/// Hangs the last tree of a way below the one before it.
fn fold(way: &mut Vec<(u32, Tree)>) {
    if let Some((_, tree)) = way.pop()
        && let Some((_, above)) = way.last_mut()
    {
        above.children.push(tree);
    }
}

fn missing(name: &str) -> Error {
    Error::Malformed {
        what: format!("no `{name}`"),
    }
}

/// An amount that may be absent.
fn limit(name: &str, text: Option<&String>) -> Result<Option<Dollars>, Error> {
    text.and_then(|text| some(text))
        .map(|text| Dollars::read(name, &text))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(run_id: &str, max: Option<&str>) -> v1::Budget {
        v1::Budget {
            run_id: run_id.to_owned(),
            account: "g-1-a".to_owned(),
            max: max.map(str::to_owned),
            reserved: "1.000000000".to_owned(),
            held: "0.100000000".to_owned(),
            own: "0.020000000".to_owned(),
            actual: "0.021500000".to_owned(),
            remaining: max.map(|_| "0.878500000".to_owned()),
            overrun: "0.000000000".to_owned(),
            estimated: true,
            state: "open".to_owned(),
            used: "0.121500000".to_owned(),
            ..v1::Budget::default()
        }
    }

    fn node(run_id: &str, depth: u32) -> v1::BudgetNode {
        v1::BudgetNode {
            budget: Some(budget(run_id, None)),
            depth,
        }
    }

    #[test]
    fn a_path_has_exactly_the_promised_fields_in_their_order() {
        let answer = v1::GetBudgetResponse {
            path: vec![budget("r", Some("1.000000000"))],
            meters: vec![
                v1::Meter {
                    id: "day/2026-11-22".to_owned(),
                    max: Some("5.000000000".to_owned()),
                    spent: "1.500000000".to_owned(),
                    held: "0.100000000".to_owned(),
                },
                v1::Meter {
                    id: "month/2026-11".to_owned(),
                    ..v1::Meter::default()
                },
            ],
        };
        assert_eq!(
            serde_json::to_string(&Path::new(&answer).unwrap()).unwrap(),
            concat!(
                r#"{"path":[{"run_id":"r","account":"g-1-a","state":"open","max":"1.000000000","reserved":"1.000000000","#,
                r#""held":"0.100000000","own":"0.020000000","actual":"0.021500000","overrun":"0.000000000","#,
                r#""remaining":"0.878500000","estimated":true}],"meters":[{"id":"day/2026-11-22","max":"5.000000000","#,
                r#""spent":"1.500000000","held":"0.100000000"},{"id":"month/2026-11","max":null,"#,
                r#""spent":"0.000000000","held":"0.000000000"}]}"#
            )
        );
    }

    #[test]
    fn a_tree_has_the_fields_of_a_path_and_the_accounts_below() {
        let tree = Tree::grow(&[node("r", 0), node("c", 1)]).unwrap();
        let fields = |run_id: &str| {
            format!(
                concat!(
                    r#""run_id":"{}","account":"g-1-a","state":"open","max":null,"reserved":"1.000000000","#,
                    r#""held":"0.100000000","own":"0.020000000","actual":"0.021500000","#,
                    r#""overrun":"0.000000000","remaining":null,"estimated":true"#
                ),
                run_id
            )
        };
        assert_eq!(
            serde_json::to_string(&tree).unwrap(),
            format!(
                r#"{{{},"children":[{{{},"children":[]}}]}}"#,
                fields("r"),
                fields("c")
            )
        );
    }

    fn shape(tree: &Tree) -> String {
        let below: String = tree.children.iter().map(shape).collect();
        format!("{}({below})", tree.budget.run_id)
    }

    #[test]
    fn accounts_hang_below_the_ones_they_draw_on() {
        let nodes = [
            node("a", 0),
            node("b", 1),
            node("c", 2),
            node("d", 2),
            node("e", 1),
            node("f", 2),
        ];
        assert_eq!(shape(&Tree::grow(&nodes).unwrap()), "a(b(c()d())e(f()))");
    }

    #[test]
    fn a_malformed_answer_is_named() {
        assert!(
            Tree::grow(&[])
                .unwrap_err()
                .to_string()
                .contains("`accounts`")
        );
        let empty = v1::BudgetNode::default();
        assert!(
            Tree::grow(&[empty])
                .unwrap_err()
                .to_string()
                .contains("`budget`")
        );
        let broken = budget("r", Some("one"));
        assert!(
            Budget::new(&broken)
                .unwrap_err()
                .to_string()
                .contains("`max`")
        );
    }
}
