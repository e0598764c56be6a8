//! Files about the state of a thread, as pure functions of its record and cost: `state.json`, and `escalation.json`
//! while it is suspended at a limit.

use rye_core::ledger::Cost;
use rye_core::model::thread::{At, ThreadState};
use rye_core::model::{Object, Raisable, Run, SuspendReason};
use rye_core::money::Usd;
use serde_json::{Value, json};

use rye_journal::Money;

/// Unsigned content of `state.json`; `None` for other runs.
pub(super) fn state(run: &Run, money: &Money) -> Option<Object> {
    let thread = run.thread()?;
    let why = run.suspension();
    let fields = [
        ("thread_id", json!(run.id)),
        ("directive", json!(run.spec.item.id)),
        ("status", json!(run.status())),
        ("inputs", json!(run.spec.inputs)),
        ("cost", Value::Object(used(run, thread, &money.cost))),
        ("limits", limits(run, thread, money.limit)),
        ("hooks", json!([])),
        ("required_caps", required(run)),
        ("suspend_reason", json!(why.map(|why| why.reason.as_str()))),
        ("suspend", json!(why)),
        ("turn", json!(turn(&thread.at))),
        ("seq", json!(run.seq)),
    ];
    Some(object(fields))
}

/// Unsigned content of `escalation.json`; `None` if the run is not suspended at a limit of its own, or requests no
/// higher one.
pub(super) fn escalation(run: &Run, cost: &Cost) -> Option<Object> {
    let thread = run.thread()?;
    let why = run.suspension()?;
    let (Some(code), SuspendReason::Limit, Some(asked)) =
        (&why.code, why.reason, &thread.escalated)
    else {
        return None;
    };
    let (current, max) = (why.current.as_deref()?, why.max.as_deref()?);
    let proposed = Proposal::of(code, current, max, asked)?;
    let message = format!(
        "the thread has used {current} of {max} ({code}); `ryectl resume {} --raise {}` lets it continue",
        run.id, proposed.raise
    );
    let fields = [
        ("type", json!("limit_escalation")),
        ("thread_id", json!(run.id)),
        ("directive", json!(run.spec.item.id)),
        ("limit_code", json!(code)),
        ("current_value", proposed.current),
        ("current_max", proposed.max),
        ("proposed_max", proposed.proposed),
        ("current_cost", Value::Object(used(run, thread, cost))),
        ("message", json!(message)),
    ];
    Some(object(fields))
}

/// The higher limit that the thread requests.
struct Proposal {
    current: Value,
    max: Value,
    proposed: Value,
    /// Argument of `--raise`.
    raise: String,
}

impl Proposal {
    fn of(code: &str, current: &str, max: &str, asked: &str) -> Option<Self> {
        if let Some(limit) = Raisable::ALL.into_iter().find(|limit| limit.code() == code) {
            let (current, max): (u64, u64) = (current.parse().ok()?, max.parse().ok()?);
            let proposed: u64 = asked.parse().ok()?;
            return Some(Self {
                current: json!(current),
                max: json!(max),
                proposed: json!(proposed),
                raise: match limit {
                    Raisable::Duration => format!("duration={}", proposed.div_ceil(1000)),
                    Raisable::Steps
                    | Raisable::Turns
                    | Raisable::Tokens
                    | Raisable::Spawns
                    | Raisable::Depth => format!("{}={proposed}", limit.key()),
                },
            });
        }
        let (current, max) = (Usd::parse(current).ok()?, Usd::parse(max).ok()?);
        let proposed = Usd::parse(asked).ok()?;
        Some(Self {
            current: json!(current),
            max: json!(max),
            proposed: json!(proposed),
            raise: format!("spend={proposed}"),
        })
    }
}

/// Usage of the run and its descendants. Turns, tokens and time are those of the thread itself, to which its limits
/// apply.
fn used(run: &Run, thread: &ThreadState, cost: &Cost) -> Object {
    let mut used = cost.figures();
    let own = [
        ("turns", json!(thread.used.turns)),
        ("tokens", json!(thread.used.tokens)),
        ("spawns", json!(run.spawn_count)),
        ("duration_seconds", json!(thread.used.active_ms / 1000)),
    ];
    used.extend(own.map(|(key, value)| (key.to_owned(), value)));
    used.remove("estimated");
    used
}

/// Limits in force; the limit of spending is that of its account.
fn limits(run: &Run, thread: &ThreadState, spend: Option<Usd>) -> Value {
    let limits = &thread.limits;
    let fields = [
        ("turns", json!(limits.turns)),
        ("tokens", json!(limits.tokens)),
        ("spend", json!(spend)),
        ("spawns", json!(run.below.spawns)),
        ("depth", json!(run.below.depth)),
        (
            "duration_seconds",
            json!(limits.duration_ms.map(|ms| ms / 1000)),
        ),
    ];
    Value::Object(object(fields))
}

/// Current or next turn; 0 before the first.
fn turn(at: &At) -> u32 {
    match at {
        At::Composing => 0,
        At::Before(before) => before.turn,
        At::Failed(failed) => failed.next.turn,
        At::Calling(turn) | At::Acting(turn) => turn.number,
    }
}

/// Permissions of the directive: the layer they added, which is the last.
fn required(run: &Run) -> Value {
    json!(run.spec.layers.last().map(|layer| &layer.patterns))
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Object {
    let fields = fields.into_iter();
    fields.map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_shown_in_its_unit() {
        let table = [
            ("turns_exceeded", "3", "3", "6", json!(6), "turns=6"),
            (
                "tokens_exceeded",
                "210",
                "200",
                "420",
                json!(420),
                "tokens=420",
            ),
            ("turns_exceeded", "0", "0", "1", json!(1), "turns=1"),
            (
                "duration_exceeded",
                "1600",
                "1500",
                "3200",
                json!(3200),
                "duration=4",
            ),
            (
                "spend_exceeded",
                "0.10",
                "0.12",
                "0.240000000",
                json!("0.240000000"),
                "spend=0.240000000",
            ),
        ];
        for (code, current, max, asked, proposed, raise) in table {
            let proposal = Proposal::of(code, current, max, asked).unwrap();
            assert_eq!(
                (proposal.proposed, &*proposal.raise),
                (proposed, raise),
                "{code}"
            );
        }
        assert!(Proposal::of("turns_exceeded", "many", "3", "6").is_none());
    }
}
