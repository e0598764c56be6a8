//! `rye/agent/threads/budget_ledger`: the remaining money of a run, the affordability of a child run, and past
//! spending.
//!
//! **Never** changes anything: money moves only with the events of runs. [`super::reach`] limits the visible runs.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::ledger::{Denied, LimitId, Shortfall};
use rye_core::model::{Failure, Object, Run};
use rye_core::money::Usd;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reach::visible;
use super::session::{Session, invalid, read};
use crate::port::{AccountState, AccountView, Refusal};

/// Operations of the original that are refused: here they happen automatically with the run.
const WRITES: [&str; 6] = [
    "register",
    "register_budget",
    "reserve",
    "report_actual",
    "increment_actual",
    "release",
];

/// The parameters. Unknown keys are refused: a misspelt key must not hide an account or an amount.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetParams {
    operation: String,
    thread_id: Option<String>,
    amount: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    CheckRemaining,
    CanSpawn(Usd),
    GetTreeSpend,
    GetStatus,
}

/// Answers `operation` about the calling run or another visible one.
pub(super) async fn call(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let asked: BudgetParams = read(params)?;
    let operation = asked.operation()?;
    let thread = asked.thread_id.as_deref();
    let run = visible(session, thread.unwrap_or(session.run.as_str())).await?;
    let path = session.runs.budget_path(Arc::clone(&run)).await;
    let path = path.map_err(Refusal::of_run)?;
    let own = path
        .first()
        .ok_or_else(|| Failure::permanent("internal", "what the run may spend is not on record"))?;
    Ok(match operation {
        Operation::CheckRemaining => check_remaining(&run.id, own, &path),
        Operation::CanSpawn(share) => {
            let refused = refusal(&run, own, share, session);
            can_spawn(&run.id, &path, share, refused)
        }
        Operation::GetTreeSpend => {
            let tree = session.runs.budget_tree(Arc::clone(&run)).await;
            tree_spend(&run.id, own, &tree.map_err(Refusal::of_run)?)
        }
        Operation::GetStatus => status(&run.id, own),
    })
}

impl BudgetParams {
    fn operation(&self) -> Result<Operation, Failure> {
        let word = self.operation.as_str();
        let operation = match word {
            "can_spawn" => {
                let amount = self.amount.as_ref().ok_or_else(|| {
                    invalid("`can_spawn` needs `amount`: the limit of the child run, in US dollars")
                })?;
                let amount = Usd::from_json(amount);
                return amount
                    .map(Operation::CanSpawn)
                    .map_err(|error| invalid(format!("`amount`: {error}")));
            }
            "check_remaining" => Operation::CheckRemaining,
            "get_tree_spend" => Operation::GetTreeSpend,
            "get_status" => Operation::GetStatus,
            _ if WRITES.contains(&word) => {
                let text = format!(
                    "`{word}` happens by itself, with the run that it is for; this tool only tells"
                );
                return Err(Failure::permanent("unsupported", text));
            }
            _ => {
                return Err(invalid(format!(
                    "there is no `operation` {word:?}; use check_remaining, can_spawn, get_tree_spend or get_status"
                )));
            }
        };
        match self.amount {
            None => Ok(operation),
            Some(_) => Err(invalid(format!(
                "`amount` is for can_spawn, not for {word}"
            ))),
        }
    }
}

/// Remaining money, and the account whose limit decides; `None` without any limit.
///
/// The remainder of a limited account is reserved above it, so only the nearest limit counts.
fn remaining(path: &[AccountView]) -> Option<(Usd, &AccountView)> {
    path.iter()
        .find_map(|view| Some((view.row.account.remaining()?, view)))
}

fn check_remaining(run: &RunId, own: &AccountView, path: &[AccountView]) -> Value {
    let (remaining, limited_by) = remaining(path).unzip();
    json!({
        "thread_id": run,
        "state": own.state().as_str(),
        "remaining": remaining,
        "limited_by": limited_by.map(|account| &account.run),
    })
}

/// Reason why the limit `share` for a child run of `run` would be refused, if it would.
fn refusal(run: &Run, own: &AccountView, share: Usd, session: &Session<'_>) -> Option<Refused> {
    match own.state() {
        AccountState::Open => {}
        AccountState::Ended | AccountState::Closed => {
            return Some(Refused::because(format!("the run `{}` is over", own.run)));
        }
    }
    match session.runs.affords(run, share) {
        Ok(()) => None,
        Err(Denied::Short(shortfall)) => Some(Refused {
            reason: shortfall.to_string(),
            shortage: Some(shortage(&shortfall)),
        }),
        Err(Denied::Misuse(misuse)) => Some(Refused::because(misuse.to_string())),
    }
}

/// Reason why a share is refused.
struct Refused {
    reason: String,
    shortage: Option<Value>,
}

impl Refused {
    const fn because(reason: String) -> Self {
        Self {
            reason,
            shortage: None,
        }
    }
}

/// Account or meter that has too little, and the missing amount.
fn shortage(shortfall: &Shortfall) -> Value {
    let after = shortfall.used.checked_add(shortfall.requested);
    let missing = after.map(|after| after.saturating_sub(shortfall.limit));
    let (account, meter) = match &shortfall.at {
        LimitId::Account(id) => (Some(id), None),
        LimitId::Meter(id) => (None, Some(id)),
    };
    json!({
        "account": account,
        "meter": meter,
        "limit": shortfall.limit,
        "used": shortfall.used,
        "missing": missing,
        "wait": shortfall.wait,
    })
}

fn can_spawn(run: &RunId, path: &[AccountView], share: Usd, refused: Option<Refused>) -> Value {
    let affordable = refused.is_none();
    let (reason, lacking) = refused.map_or((None, None), |refused| {
        (Some(refused.reason), refused.shortage)
    });
    json!({
        "thread_id": run,
        "affordable": affordable,
        "requested": share,
        "remaining": remaining(path).map(|(remaining, _)| remaining),
        "lacking": lacking,
        "reason": reason,
    })
}

/// Figures of one account.
fn status(run: &RunId, view: &AccountView) -> Value {
    let account = &view.row.account;
    json!({
        "thread_id": run,
        "account": view.id,
        "parent": account.parent,
        "state": view.state().as_str(),
        "max": account.limit,
        "reserved": account.reserved(),
        "held": account.held(),
        "own": account.own.money,
        "used": account.used(),
        "actual": view.cost.usage.money,
        "remaining": account.remaining(),
        "overrun": account.overrun(),
        "estimated": view.cost.estimated > Usd::ZERO,
    })
}

/// Total cost of an account and its `tree`, with the amounts reserved by its direct children.
fn tree_spend(run: &RunId, own: &AccountView, tree: &[(u32, AccountView)]) -> Value {
    let is_live = |view: &&AccountView| view.state() != AccountState::Closed;
    let directly_below = tree.iter().filter(|(depth, _)| *depth == 1);
    let reserved = directly_below
        .map(|(_, view)| view)
        .filter(is_live)
        .try_fold(Usd::ZERO, |sum, view| {
            sum.checked_add(view.row.account.reserved())
        });
    let open = tree
        .iter()
        .filter(|(_, view)| view.state() == AccountState::Open);
    json!({
        "thread_id": run,
        "total_actual": own.cost.usage.money,
        "total_estimated": own.cost.estimated,
        "total_reserved": reserved,
        "turns": own.cost.usage.turns,
        "input_tokens": own.cost.usage.input,
        "output_tokens": own.cost.usage.output,
        "thread_count": tree.len(),
        "active_count": open.count(),
    })
}

#[cfg(test)]
mod tests {
    use rye_core::ledger::{Account, AccountId, Cost, Usage};

    use super::*;
    use rye_journal::AccountRow;

    fn dollars(text: &str) -> Usd {
        Usd::parse(text).unwrap()
    }

    /// An account below `parent` with 0.25 USD of own spending.
    fn view(name: &str, parent: Option<&str>, limit: Option<&str>) -> AccountView {
        let id = |name: &str| RunId::new(name).unwrap();
        let own = Usage {
            money: dollars("0.25"),
            turns: 2,
            ..Usage::default()
        };
        let account = Account {
            parent: parent.map(|parent| AccountId(id(parent))),
            limit: limit.map(dollars),
            own,
            ..Account::default()
        };
        AccountView {
            id: AccountId(id(name)),
            run: id(name),
            row: AccountRow {
                account: Arc::new(account),
                closed: false,
            },
            cost: Cost {
                usage: own,
                estimated: Usd::ZERO,
            },
        }
    }

    fn closed(mut view: AccountView) -> AccountView {
        view.row.closed = true;
        view
    }

    fn parse_operation(params: Value) -> Result<Operation, String> {
        let Value::Object(params) = params else {
            panic!("parameters are an object")
        };
        let asked = read::<BudgetParams>(params).and_then(|asked| asked.operation());
        asked.map_err(|failure| failure.message)
    }

    #[test]
    fn parameters_are_parsed_or_refused_with_fix() {
        let half = Operation::CanSpawn(dollars("0.5"));
        for amount in [json!(0.5), json!("0.50"), json!("5e-1")] {
            let params = json!({"operation": "can_spawn", "amount": amount, "thread_id": null});
            assert_eq!(parse_operation(params), Ok(half));
        }
        let status = json!({"operation": "get_status", "thread_id": "r", "amount": null});
        assert_eq!(parse_operation(status), Ok(Operation::GetStatus));
        for (params, told) in [
            (json!({}), "`operation`"),
            (
                json!({"operation": "explode"}),
                "there is no `operation` \"explode\"; use check_remaining, ",
            ),
            (
                json!({"operation": "reserve", "amount": 1}),
                "this tool only tells",
            ),
            (json!({"operation": "can_spawn"}), "needs `amount`"),
            (
                json!({"operation": "can_spawn", "amount": -1}),
                "`amount`: `-1` is less than zero",
            ),
            (
                json!({"operation": "can_spawn", "amount": [1]}),
                "is not an amount",
            ),
            (
                json!({"operation": "can_spawn", "amount": "0.0000000001"}),
                "nine decimals",
            ),
            (
                json!({"operation": "get_status", "amount": 1}),
                "`amount` is for can_spawn",
            ),
            (
                json!({"operation": "get_status", "run_id": "r"}),
                "`run_id`",
            ),
        ] {
            let message = parse_operation(params.clone()).unwrap_err();
            assert!(message.contains(told), "{params}: {message}");
        }
    }

    #[test]
    fn nearest_limit_determines_remainder() {
        let root = view("root", None, Some("1"));
        let reserved = view("child", Some("root"), Some("0.30"));
        let pooled = view("child", Some("root"), None);
        let told = |path: &[AccountView]| {
            remaining(path).map(|(left, by)| (left.to_string(), by.run.to_string()))
        };
        let of = |left: &str, by: &str| Some((left.to_owned(), by.to_owned()));
        assert_eq!(told(&[reserved, root.clone()]), of("0.050000000", "child"));
        assert_eq!(told(&[pooled, root]), of("0.750000000", "root"));
        assert_eq!(told(&[view("free", None, None)]), None);
    }

    #[test]
    fn refusal_names_account_and_shortfall() {
        let shortfall = Shortfall {
            requested: dollars("0.6"),
            at: LimitId::Account(AccountId(RunId::new("root").unwrap())),
            limit: dollars("1"),
            used: dollars("0.5"),
            wait: false,
        };
        assert_eq!(
            shortage(&shortfall),
            json!({
                "account": "root", "meter": null, "limit": "1.000000000", "used": "0.500000000",
                "missing": "0.100000000", "wait": false,
            })
        );
    }

    #[test]
    fn tree_summary_includes_direct_reservations() {
        let tree = [
            (0, view("root", None, Some("3"))),
            (1, view("a", Some("root"), Some("0.50"))),
            (2, view("b", Some("a"), Some("0.20"))),
            (1, closed(view("c", Some("root"), Some("0.70")))),
        ];
        let told = tree_spend(&RunId::new("root").unwrap(), &tree[0].1, &tree);
        assert_eq!(told["total_actual"], "0.250000000");
        assert_eq!(told["total_reserved"], "0.500000000");
        assert_eq!(
            (&told["thread_count"], &told["active_count"]),
            (&json!(4), &json!(3))
        );
        assert_eq!(told["turns"], 2);
    }
}
