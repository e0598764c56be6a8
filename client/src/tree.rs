//! Runs and budget accounts as trees of records.

use std::collections::{HashMap, HashSet};
use std::iter::Peekable;

use rye_proto::v1;
use serde::Serialize;

use crate::error::Error;

/// A record and its child records: the JSON form of `tree`, `ps --tree` and `budget tree`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tree<T> {
    #[serde(flatten)]
    pub record: T,
    pub children: Vec<Self>,
}

impl<T> Tree<T> {
    /// Returns each record with its depth, parents before children.
    pub fn lines(trees: &[Self]) -> Vec<(usize, &T)> {
        fn walk<'t, T>(level: usize, trees: &'t [Tree<T>], lines: &mut Vec<(usize, &'t T)>) {
            for tree in trees {
                lines.push((level, &tree.record));
                walk(level + 1, &tree.children, lines);
            }
        }
        let mut lines = Vec::new();
        walk(0, trees, &mut lines);
        lines
    }
}

impl Tree<v1::Run> {
    /// Puts each run under its parent and keeps the order. A run whose parent is not in the list is a root.
    pub fn of_runs(runs: Vec<v1::Run>) -> Vec<Self> {
        let known: HashSet<String> = runs.iter().map(|run| run.run_id.clone()).collect();
        let mut below: HashMap<String, Vec<v1::Run>> = HashMap::new();
        let mut tops = Vec::new();
        for run in runs {
            if known.contains(&run.parent_id) {
                below.entry(run.parent_id.clone()).or_default().push(run);
            } else {
                tops.push(run);
            }
        }
        Self::with_children(tops, &mut below)
    }

    fn with_children(runs: Vec<v1::Run>, below: &mut HashMap<String, Vec<v1::Run>>) -> Vec<Self> {
        let one = |record: v1::Run| {
            let children = below.remove(&record.run_id).unwrap_or_default();
            Self {
                children: Self::with_children(children, below),
                record,
            }
        };
        runs.into_iter().map(one).collect()
    }
}

impl Tree<v1::Budget> {
    /// Builds a tree from accounts in the daemon's order: each follows the account that it draws on, with its depth.
    pub fn of_accounts(nodes: Vec<v1::BudgetNode>) -> Result<Self, Error> {
        let mut nodes = nodes.into_iter().peekable();
        let root = nodes.next().ok_or_else(|| missing("accounts"))?;
        Self::with_accounts(root, &mut nodes)
    }

    fn with_accounts(
        node: v1::BudgetNode,
        nodes: &mut Peekable<impl Iterator<Item = v1::BudgetNode>>,
    ) -> Result<Self, Error> {
        let mut children = Vec::new();
        while let Some(child) = nodes.next_if(|next| next.depth > node.depth) {
            children.push(Self::with_accounts(child, nodes)?);
        }
        Ok(Self {
            record: node.budget.ok_or_else(|| missing("budget"))?,
            children,
        })
    }
}

fn missing(name: &str) -> Error {
    Error::Malformed {
        what: format!("no `{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape<T>(trees: &[Tree<T>], name: &impl Fn(&T) -> String) -> String {
        let one = |tree: &Tree<T>| {
            let below = shape(&tree.children, name);
            format!("{}({below})", name(&tree.record))
        };
        trees.iter().map(one).collect()
    }

    #[test]
    fn runs_are_below_their_parents_and_keep_their_order() {
        let one = |id: &str, parent: &str| v1::Run {
            run_id: id.to_owned(),
            parent_id: parent.to_owned(),
            ..v1::Run::default()
        };
        let runs = vec![
            one("d", "gone"),
            one("c", "b"),
            one("b", "a"),
            one("e", "a"),
            one("a", ""),
        ];
        let trees = Tree::of_runs(runs);
        assert_eq!(shape(&trees, &|run| run.run_id.clone()), "d()a(b(c())e())");
        let lines = Tree::lines(&trees).into_iter();
        let levels: Vec<usize> = lines.map(|(level, _)| level).collect();
        assert_eq!(levels, [0, 0, 1, 2, 1]);
    }

    fn node(run_id: &str, depth: u32) -> v1::BudgetNode {
        v1::BudgetNode {
            budget: Some(v1::Budget {
                run_id: run_id.to_owned(),
                ..v1::Budget::default()
            }),
            depth,
        }
    }

    #[test]
    fn accounts_are_below_the_ones_they_draw_on() {
        let nodes = vec![
            node("a", 0),
            node("b", 1),
            node("c", 2),
            node("d", 2),
            node("e", 1),
            node("f", 2),
        ];
        let tree = Tree::of_accounts(nodes).unwrap();
        assert_eq!(
            shape(&[tree], &|budget| budget.run_id.clone()),
            "a(b(c()d())e(f()))"
        );
    }

    #[test]
    fn a_tree_has_the_fields_of_a_record_and_the_records_below() {
        let tree = Tree::of_accounts(vec![node("r", 0), node("c", 1)]).unwrap();
        let fields = |run_id: &str| {
            format!(
                concat!(
                    r#""run_id":"{}","account":"","state":"","max":null,"reserved":"0.000000000","#,
                    r#""held":"0.000000000","own":"0.000000000","actual":"0.000000000","#,
                    r#""overrun":"0.000000000","remaining":null,"estimated":false"#
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

    #[test]
    fn a_malformed_answer_is_named() {
        let error = |nodes| Tree::of_accounts(nodes).unwrap_err().to_string();
        assert!(error(vec![]).contains("`accounts`"));
        assert!(error(vec![v1::BudgetNode::default()]).contains("`budget`"));
    }
}
