//! The limits that a resume request raises: the runs they apply to, and their validity.

use rye_core::error::with_sources;
use rye_core::ledger::Denied;
use rye_core::model::{Limits, Raisable, Raised, Run, SuspendReason, thread};
use rye_core::money::Usd;

use super::error::Error;
use crate::port::Resume;
use rye_journal::{RefusalReason, Refused};

/// Returns the part of `request` that applies to the run `suspended`. The request names `run`. An answer applies to
/// `target`, the run that waits for one. A spend limit applies to the account of `run`. The other limits bind one run
/// each: they apply to `target` if it is suspended at such a limit, otherwise to `run`.
pub(super) fn part_of(request: &Resume, suspended: &Run, run: &Run, target: &Run) -> Resume {
    let (is_named, is_target) = (suspended.id == run.id, suspended.id == target.id);
    let gets_limits = if is_at_limit(target) {
        is_target
    } else {
        is_named
    };
    let own = if is_target {
        request.clone()
    } else {
        Resume::default()
    };
    Resume {
        by: request.by.clone(),
        raised: if gets_limits {
            request.raised
        } else {
            Raised::default()
        },
        spend: request.spend.filter(|_| is_named),
        message: None,
        ..own
    }
}

/// True if the run is suspended at one of its own numeric limits.
fn is_at_limit(run: &Run) -> bool {
    let why = run.suspension();
    let code = why.filter(|why| why.reason == SuspendReason::Limit);
    let code = code.and_then(|why| why.code.as_deref());
    Raisable::ALL.iter().any(|limit| Some(limit.code()) == code)
}

/// Refuses budget for the account of `run` if `target` waits for budget of another account, because it would be
/// suspended again.
pub(super) fn check_account(run: &Run, target: &Run, request: &Resume) -> Result<(), Error> {
    let why = target.suspension().filter(|_| request.spend.is_some());
    let lacking = why.and_then(|why| match why.reason {
        SuspendReason::Budget => why.account.clone(),
        SuspendReason::Limit if why.code.as_deref() == Some("spend_exceeded") => {
            Some(target.spec.budget.account.clone())
        }
        SuspendReason::Limit
        | SuspendReason::Error
        | SuspendReason::Approval
        | SuspendReason::Restart
        | SuspendReason::Uncertain
        | SuspendReason::Storage
        | SuspendReason::Child
        | SuspendReason::CrashLoop
        | SuspendReason::User => None,
    });
    match lacking {
        Some(account) if account != run.spec.budget.account => Err(Error::Unfit {
            run: run.id.clone(),
            problem: format!(
                "the money is lacking in the account of run `{account}`; raise that: ryectl budget raise {account} --spend USD, then: \
                 ryectl resume {}",
                run.id
            ),
        }),
        Some(_) | None => Ok(()),
    }
}

pub(super) fn is_short(refused: &Refused) -> bool {
    matches!(refused.why, RefusalReason::Budget(Denied::Short(_)))
}

/// Returns the error that the requested limit of `run` exceeds the accounts above it.
pub(super) fn too_little_above(run: &Run, refused: &Refused, spend: Option<Usd>) -> Error {
    let more = spend.map(|spend| {
        format!(
            "; raise all of them: ryectl budget raise {} --spend {spend} --through",
            run.id
        )
    });
    Error::Unfit {
        run: run.id.clone(),
        problem: format!("{}{}", with_sources(refused), more.unwrap_or_default()),
    }
}

/// Refuses new limits with which `run` cannot continue.
pub(super) fn check_raise(run: &Run, raised: &Raised) -> Result<(), Error> {
    run.check_raise(raised).map_err(|unraised| Error::Unfit {
        run: run.id.clone(),
        problem: unraised.to_string(),
    })
}

/// Refuses to continue a thread that has used up its budget, unless the request raises it.
pub(super) fn check_spend(run: &Run, request: &Resume) -> Result<(), Error> {
    let failure = run.failure().filter(|_| run.thread().is_some());
    let is_used_up = failure.is_some_and(|failure| failure.code == "spend_exceeded");
    if is_used_up && request.spend.is_none() {
        return Err(Error::Unfit {
            run: run.id.clone(),
            problem: "what it may spend is used up; raise it: --raise spend=USD".to_owned(),
        });
    }
    Ok(())
}

/// Requested limits of a run that continues `run`: the raised ones, otherwise those of `run`.
pub(super) fn limits_of_continuation(run: &Run, request: &Resume) -> Limits {
    let (raised, own) = (&request.raised, &run.spec.limits);
    let in_force = run.thread().map(|thread| thread.limits);
    let in_force = in_force.unwrap_or(thread::ThreadLimits {
        turns: own.turns,
        tokens: own.tokens,
        duration_ms: own.duration_ms,
    });
    Limits {
        steps: raised.max_steps,
        spend: request.spend,
        spawns: raised.max_spawns.or(run.below.spawns),
        depth: raised.max_depth.or(run.below.depth),
        turns: raised.max_turns.or(in_force.turns),
        tokens: raised.max_tokens.or(in_force.tokens),
        duration_ms: raised.max_duration_ms.or(in_force.duration_ms),
    }
}
