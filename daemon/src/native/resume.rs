//! Resumes a run that is suspended, or that ended without success.
//!
//! **Rule.** A run never grants another one more than it has itself. New limits of turns, tokens and time are at most
//! those of the calling thread, and additional spending must fit into the accounts above.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_core::model::{Failure, Limits, Object, Raised, Run, RunKind, SuspendReason, Verdict};
use rye_core::money::Usd;
use rye_core::thread::limits_of;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reach::{actionable, caller};
use super::session::{Session, invalid};
use crate::port::{Refusal, Resume};
use crate::stop::CancelMode;

/// Factor by which an unspecified limit is raised.
const BUMP: u64 = 2;

#[derive(Debug, Deserialize)]
pub(super) struct Params {
    thread_id: String,
    #[serde(default)]
    action: Action,
    message: Option<String>,
    max_steps: Option<u32>,
    new_limits: Option<Object>,
    #[serde(default)]
    uncertain: BTreeMap<String, String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    #[default]
    Resume,
    BumpAndResume,
    Cancel,
}

/// Resumes the run, or its newest continuation.
pub(super) async fn resume(asked: Params, session: &Session<'_>) -> Result<Value, Failure> {
    let run = actionable(session, &asked.thread_id).await?;
    let resolved = session.runs.newest(run.id.clone()).await;
    let resolved = resolved.map_err(Refusal::of_run)?;
    if asked.action == Action::Cancel {
        return cancel(&resolved, session).await;
    }
    let (raised, spend) = raises(&asked, &resolved, session).await?;
    let request = Resume {
        by: format!("the run {}", session.run),
        spend,
        raised,
        verdicts: verdicts(asked.uncertain)?,
        result: None,
        approval: None,
        message: asked.message,
        same_text: false,
        failed: false,
        layers: session.spec.layers.clone(),
        caller_account: caller(session).pays().cloned(),
    };
    let resumed = session.runs.resume(resolved.id.clone(), request).await;
    let resumed = resumed.map_err(Refusal::of_run)?;
    let original = (resolved.id != run.id).then_some(&run.id);
    Ok(json!({
        "success": true,
        "resumed": true,
        "old_thread_id": resolved.id,
        "new_thread_id": resumed.id,
        "original_thread_id": original,
        "resolved_thread_id": resolved.id,
        "directive": resumed.spec.item.id,
        "new_thread_result": {"success": true, "thread_id": resumed.id, "status": resumed.status().as_str()},
    }))
}

async fn cancel(run: &Run, session: &Session<'_>) -> Result<Value, Failure> {
    let cause = format!("the run {}", session.run);
    let run = session
        .runs
        .cancel(run.id.clone(), cause, CancelMode::Graceful)
        .await;
    let run = run.map_err(Refusal::of_run)?;
    Ok(json!({
        "success": true,
        "resumed": false,
        "cancelled": true,
        "thread_id": run.id,
        "status": run.status().as_str(),
    }))
}

fn verdicts(words: BTreeMap<String, String>) -> Result<Vec<(String, Verdict)>, Failure> {
    let verdict = |(item, word): (String, String)| {
        let verdict = Verdict::parse(&word).ok_or_else(|| {
            invalid(format!(
                "`uncertain.{item}` is retry, done or fail, not {word:?}"
            ))
        })?;
        Ok((item, verdict))
    };
    words.into_iter().map(verdict).collect()
}

/// Limits of the resumed run.
async fn raises(
    asked: &Params,
    run: &Arc<Run>,
    session: &Session<'_>,
) -> Result<(Raised, Option<Usd>), Failure> {
    let steps = Raised {
        max_steps: asked.max_steps,
        ..Raised::default()
    };
    if asked.action == Action::Resume {
        return match asked.new_limits {
            None => Ok((steps, None)),
            Some(_) => Err(invalid("`new_limits` goes with `action: bump_and_resume`")),
        };
    }
    let given = limits_of("new_limits", asked.new_limits.clone())?;
    if let Some(key) = [("spawns", given.spawns), ("depth", given.depth)]
        .iter()
        .find_map(|(key, given)| given.map(|_| key))
    {
        return Err(invalid(format!(
            "`new_limits.{key}` cannot be raised; start the directive anew"
        )));
    }
    let own = session.runs.get(session.run.clone()).await;
    let own = own.map_err(Refusal::of_run)?;
    let is_named = asked.new_limits.is_some();
    let wanted = if is_named {
        given
    } else {
        bumped(run, session).await?
    };
    let raised = Raised {
        max_turns: capped("turns", wanted.turns, most(&own).turns, is_named)?,
        max_tokens: capped("tokens", wanted.tokens, most(&own).tokens, is_named)?,
        max_duration_ms: capped(
            "duration",
            wanted.duration_ms,
            most(&own).duration_ms,
            is_named,
        )?,
        ..steps
    };
    Ok((raised, wanted.spend))
}

/// Limits in force of the calling run, which bound the limits it can grant.
fn most(own: &Run) -> Limits {
    let spec = &own.spec.limits;
    match own.thread() {
        None => spec.clone(),
        Some(thread) => Limits {
            turns: thread.limits.turns,
            tokens: thread.limits.tokens,
            duration_ms: thread.limits.duration_ms,
            ..spec.clone()
        },
    }
}

/// Bounds a new limit by `most`: a limit named by the caller is refused, a default one is reduced.
fn capped<T: Copy + Ord + std::fmt::Display>(
    key: &str,
    wanted: Option<T>,
    most: Option<T>,
    is_named: bool,
) -> Result<Option<T>, Failure> {
    match (wanted, most) {
        (Some(wanted), Some(most)) if wanted > most && is_named => Err(invalid(format!(
            "`new_limits.{key}` is at most {most}, the limit of the run that asks, and not {wanted}"
        ))),
        (Some(wanted), Some(most)) => Ok(Some(wanted.min(most))),
        (wanted, _) => Ok(wanted),
    }
}

/// Twice the limit at which `run` is suspended.
async fn bumped(run: &Arc<Run>, session: &Session<'_>) -> Result<Limits, Failure> {
    let none = || {
        invalid(format!(
            "`{}` is at no limit that can be raised; name `new_limits`, or leave `action` out",
            run.id
        ))
    };
    let why = run.suspension();
    let why = why.filter(|why| why.reason == SuspendReason::Limit);
    let code = why.and_then(|why| why.code.as_deref()).ok_or_else(none)?;
    let limits = run.thread().filter(|_| run.spec.kind() == RunKind::Thread);
    let limits = limits.map(|thread| thread.limits).ok_or_else(none)?;
    let twice = |limit: Option<u64>| limit.map(|limit| limit.saturating_mul(BUMP));
    let mut wanted = Limits::default();
    match code {
        "turns_exceeded" => {
            let turns = twice(limits.turns.map(u64::from));
            wanted.turns = turns.map(|turns| u32::try_from(turns).unwrap_or(u32::MAX));
        }
        "tokens_exceeded" => wanted.tokens = twice(limits.tokens),
        "duration_exceeded" => wanted.duration_ms = twice(limits.duration_ms),
        "spend_exceeded" => {
            let path = session.runs.budget_path(Arc::clone(run)).await;
            let path = path.map_err(Refusal::of_run)?;
            let limit = path.first().and_then(|own| own.row.account.limit);
            wanted.spend = twice(limit.map(Usd::nanos)).map(Usd::from_nanos);
        }
        _ => return Err(none()),
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_grants_no_more_than_its_own_limits() {
        let given = |wanted: u32, most, is_named| capped("turns", Some(wanted), most, is_named);
        let refused = given(9, Some(5), true).unwrap_err();
        assert_eq!(refused.code, "invalid_params");
        assert!(
            refused.message.contains("at most 5") && refused.message.contains("not 9"),
            "{}",
            refused.message
        );
        assert_eq!(given(5, Some(5), true).unwrap(), Some(5));
        assert_eq!(given(9, Some(5), false).unwrap(), Some(5), "it is cut");
        assert_eq!(given(9, None, true).unwrap(), Some(9));
        assert_eq!(capped::<u32>("turns", None, Some(5), true).unwrap(), None);
    }
}
