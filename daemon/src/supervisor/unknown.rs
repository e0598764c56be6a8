//! At-most-once attempts of unknown outcome that a resume or a continuation would repeat: those of a run, and those of
//! child runs that another try of its last step continues.
//!
//! A record lists its own attempts ([`Run::unknown`]). Those of a child run are read from the end of the child's chain
//! of continuations, because it may end later than its parent, and may have been resumed separately.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::clock::Timestamp;
use rye_core::id::{Name, RunId};
use rye_core::machine::InDoubt;
use rye_core::model::{Run, RunKind, Status, Verdict};
use rye_core::printable::shell_word;
use rye_core::{thread, walker};
use rye_host::task;

use super::error::Error;
use super::handle::Supervisor;
use crate::port::Resume;
use rye_journal::Filter;

/// An at-most-once attempt of unknown outcome, in a run or one of its child runs.
#[derive(Debug)]
pub(super) struct Unknown {
    /// Its name, and those of the at-most-once attempts above it. An answer to one of them is an answer to it.
    names: Vec<String>,
    /// The run that made the attempt.
    run: RunId,
    /// Idempotency key and start time of an interrupted attempt.
    cut_off: Option<(Name, Timestamp)>,
}

/// Runs in one page of a list.
const PAGE: usize = 1000;

/// Treatment of child runs that have not ended.
#[derive(Debug, Clone, Copy)]
enum LiveChildren {
    /// A child that is being ended is waited for. One that continues by itself is an error.
    Awaited,
    /// They are ignored.
    Ignored,
}

impl Unknown {
    fn is_answered_by(&self, given: &str) -> bool {
        given == "*" || self.names.iter().any(|name| name == given)
    }

    /// Display name in a message about `run`.
    fn describe(&self, run: &Run) -> String {
        let name = self.names.first().map_or("", String::as_str);
        if self.run == run.id {
            format!("`{name}`")
        } else {
            format!("`{name}` of the child run `{}`", self.run)
        }
    }
}

impl Supervisor {
    /// Returns the unknown attempts of `run` and of its child runs. It has ended, or is suspended after a failure.
    pub(super) async fn unknown(&self, run: &Run) -> Result<Vec<Unknown>, Error> {
        self.find_unknown(run, LiveChildren::Awaited).await
    }

    /// Returns the unknown attempts that a continuation of `run` may repeat; `failed` if it walks on from the first failure.
    pub(super) async fn unknown_of_continuation(
        &self,
        run: &Run,
        failed: bool,
    ) -> Result<Vec<Unknown>, Error> {
        let attempts = if failed {
            run.unknown_from_failed()
        } else {
            run.unknown()
        };
        self.with_children(run, attempts, LiveChildren::Awaited)
            .await
    }

    /// Returns the attempts for which `run` is suspended as uncertain, with their calls.
    pub async fn uncertain(&self, run: &Arc<Run>) -> Vec<InDoubt> {
        let services = Arc::clone(self.services());
        let graph = match run.spec.graph() {
            Some(source) => services.graphs.of_run(source).await.ok(),
            None => None,
        };
        let run = Arc::clone(run);
        let list = move || match run.spec.thread() {
            Some(source) => {
                let terms = services.contracts.read(&source.contract).ok();
                thread::in_doubt(terms.as_deref().map(|terms| &terms.contract), &run)
            }
            None => walker::in_doubt(graph.as_deref(), &run),
        };
        task::blocking("list attempts in doubt", list).await
    }

    /// Returns the unknown attempts of `run` for display, without waiting. Empty for a run that has not ended or that
    /// cannot be continued.
    pub async fn attempts_in_doubt(&self, run: &Run) -> Result<Vec<InDoubt>, Error> {
        let is_cut_short = match run.status() {
            Status::Error | Status::Cancelled | Status::Killed => true,
            Status::CompletedWithErrors => run.is_repairable(),
            Status::Created | Status::Running | Status::Suspended | Status::Completed => false,
        };
        let found = if is_cut_short {
            self.find_unknown(run, LiveChildren::Ignored).await?
        } else {
            Vec::new()
        };
        let in_doubt = found.into_iter().map(|unknown| {
            let (key, since) = unknown.cut_off.unzip();
            InDoubt {
                name: unknown.names.into_iter().next().unwrap_or_default(),
                key: key.unwrap_or_default(),
                since,
                run: Some(unknown.run).filter(|of| *of != run.id),
                call: None,
            }
        });
        Ok(in_doubt.collect())
    }

    /// True if `run` is a tool run whose at-most-once call may have taken effect, or whose program made such a call.
    pub(super) async fn has_unknown_call(&self, run: &Run) -> bool {
        if run.is_call_unknown() {
            return true;
        }
        if run.spec.kind() != RunKind::Tool {
            return false;
        }
        let calls = Filter {
            parent: Some(run.id.clone()),
            ..Filter::default()
        };
        let Ok(calls) = self.journal().list_all(&calls, PAGE).await else {
            return true;
        };
        for call in calls {
            let Ok(call) = self.run_of(&call.id).await else {
                return true;
            };
            if !call.status().is_success() && self.runs().has_unknown(call).await {
                return true;
            }
        }
        false
    }

    fn find_unknown<'a>(
        &'a self,
        run: &'a Run,
        live: LiveChildren,
    ) -> BoxFuture<'a, Result<Vec<Unknown>, Error>> {
        self.with_children(run, run.unknown(), live)
    }

    /// Returns `attempts` of `run` with the unknown attempts of the child runs that carried them out.
    fn with_children<'a>(
        &'a self,
        run: &'a Run,
        attempts: Vec<rye_core::model::Unknown>,
        live: LiveChildren,
    ) -> BoxFuture<'a, Result<Vec<Unknown>, Error>> {
        let work = async move {
            let mut found = Vec::new();
            for attempt in attempts {
                let mut below = match &attempt.child {
                    None => Vec::new(),
                    Some(child) => match self.ended_below(run, child, live).await? {
                        None => continue,
                        Some(child) => self.find_unknown(&child, live).await?,
                    },
                };
                if attempt.once {
                    if below.is_empty() {
                        below.push(Unknown {
                            names: Vec::new(),
                            run: run.id.clone(),
                            cut_off: attempt.cut_off,
                        });
                    }
                    for unknown in &mut below {
                        unknown.names.push(attempt.name.clone());
                    }
                }
                found.extend(below);
            }
            Ok(found)
        };
        work.boxed()
    }

    /// Returns the unknown attempts that a resume of the suspended `run` would repeat. Empty if it does not repeat the
    /// last step.
    pub(super) async fn unknown_of_retry(&self, run: &Run) -> Result<Vec<Unknown>, Error> {
        if run.resume_retries_failed_step() {
            self.unknown(run).await
        } else {
            Ok(Vec::new())
        }
    }

    /// Returns the run that another try of a step of `run` continues, or `None` if it repeats nothing. `child` carried
    /// out the step.
    async fn ended_below(
        &self,
        run: &Run,
        child: &RunId,
        live: LiveChildren,
    ) -> Result<Option<Arc<Run>>, Error> {
        let mut child = self.newest(child).await?;
        if !child.spec.parent_end.waits() {
            return Ok(None);
        }
        let is_live = !child.status().is_terminal();
        match live {
            LiveChildren::Ignored if is_live => return Ok(None),
            LiveChildren::Awaited if is_live && child.spec.parent.as_ref() == Some(&run.id) => {
                // It is being ended together with its parent.
                self.journal().ended(&child.id).await?;
                child = self.run_of(&child.id).await?;
            }
            LiveChildren::Ignored | LiveChildren::Awaited => {}
        }
        match child.status() {
            Status::Completed | Status::CompletedWithErrors => Ok(None),
            Status::Error | Status::Cancelled | Status::Killed => Ok(Some(child)),
            Status::Created | Status::Running | Status::Suspended => Err(Error::Unfit {
                run: run.id.clone(),
                problem: format!(
                    "the child run `{}` continues by itself; wait until it has ended, or end it, and resume this one then",
                    child.id
                ),
            }),
        }
    }
}

/// Refuses `request` unless it permits another execution of each attempt in `unknown`.
pub(super) fn check_answers(run: &Run, unknown: &[Unknown], request: &Resume) -> Result<(), Error> {
    let unfit = |problem: String| Error::Unfit {
        run: run.id.clone(),
        problem,
    };
    for (name, verdict) in &request.verdicts {
        if name != "*" && !unknown.iter().any(|unknown| unknown.is_answered_by(name)) {
            return Err(unfit(format!("`{name}` is not uncertain")));
        }
        if *verdict != Verdict::Retry {
            return Err(unfit(format!(
                "it can only continue by doing `{name}` again; if that is wrong, start a new run"
            )));
        }
    }
    let given = &request.verdicts;
    let answered = |unknown: &&Unknown| given.iter().any(|(name, _)| unknown.is_answered_by(name));
    let open = unknown.iter().filter(|unknown| !answered(unknown));
    // An answer applies to all attempts of the same name, so the message lists all of them.
    let told: Vec<String> = open.clone().map(|unknown| unknown.describe(run)).collect();
    if told.is_empty() {
        return Ok(());
    }
    let names = open.filter_map(|unknown| unknown.names.first());
    let answers: BTreeSet<String> = names
        .map(|name| format!("--uncertain {}", shell_word(&format!("{name}=retry"))))
        .collect();
    let verb = if request.approval.is_some() {
        "approve"
    } else {
        "resume"
    };
    Err(unfit(format!(
        "{}: at most once, and may have executed; if it may execute again, say so: ryectl {verb} {} {}",
        told.join(", "),
        run.id,
        Vec::from_iter(answers).join(" ")
    )))
}
