//! At-most-once attempts of unknown outcome that resuming or continuing a run would repeat: its own, and those of the child runs
//! that another try of its last step continues.
//!
//! A record knows its own attempts ([`Run::unknown`]). What a child run left is asked of that one, at the end of its chain of
//! continuations: it may end later than the run that waited for it, and may have been resumed by itself since.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::clock::Timestamp;
use rye_core::id::{Name, RunId};
use rye_core::model::{Run, Status, Verdict};
use rye_core::sight::shell_word;
use rye_core::walker::InDoubt;

use super::error::Error;
use super::handle::Supervisor;
use crate::port::Resume;

/// An at-most-once attempt of unknown outcome, in a run or below it.
#[derive(Debug)]
pub(super) struct Unknown {
    /// Its name, and those of the at-most-once attempts above it: an answer to one is an answer to it.
    names: Vec<String>,
    /// The run it belongs to.
    run: RunId,
    /// Its idempotency key, and when it began, if it was cut off.
    cut_off: Option<(Name, Timestamp)>,
}

/// What is asked about child runs that have not ended.
#[derive(Debug, Clone, Copy)]
enum Live {
    /// What they leave: one that is being ended is waited for, and nothing can be said while another continues by itself.
    Awaited,
    /// Nothing.
    LeftOut,
}

impl Unknown {
    fn is_answered_by(&self, given: &str) -> bool {
        given == "*" || self.names.iter().any(|name| name == given)
    }

    /// What it is about, to somebody who asked about `run`.
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
    /// What is unknown about `run`, which has ended or stands behind a failure, and about its child runs.
    pub(super) async fn unknown(&self, run: &Run) -> Result<Vec<Unknown>, Error> {
        self.find_unknown(run, Live::Awaited).await
    }

    /// The same for somebody who looks at `run`, as things are now; nothing of a run that has not ended.
    pub async fn left_in_doubt(&self, run: &Run) -> Result<Vec<InDoubt>, Error> {
        let is_cut_short = match run.status() {
            Status::Error | Status::Cancelled | Status::Killed => true,
            Status::CompletedWithErrors => run.is_repairable(),
            Status::Created | Status::Running | Status::Suspended | Status::Completed => false,
        };
        let found = if is_cut_short {
            self.find_unknown(run, Live::LeftOut).await?
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

    fn find_unknown<'a>(
        &'a self,
        run: &'a Run,
        live: Live,
    ) -> BoxFuture<'a, Result<Vec<Unknown>, Error>> {
        let work = async move {
            let mut found = Vec::new();
            for attempt in run.unknown() {
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

    /// The same, if resuming the suspended `run` is another try of its last step.
    pub(super) async fn unknown_of_retry(&self, run: &Run) -> Result<Vec<Unknown>, Error> {
        if run.resume_retries_failed_step() {
            self.unknown(run).await
        } else {
            Ok(Vec::new())
        }
    }

    /// The run that another try of a step of `run` continues, which `child` carried out; `None` if nothing of it is repeated.
    async fn ended_below(
        &self,
        run: &Run,
        child: &RunId,
        live: Live,
    ) -> Result<Option<Arc<Run>>, Error> {
        let mut child = self.newest(child).await?;
        if !child.spec.parent_end.waits() {
            return Ok(None);
        }
        let is_live = !child.status().is_terminal();
        match live {
            Live::LeftOut if is_live => return Ok(None),
            Live::Awaited if is_live && child.spec.parent.as_ref() == Some(&run.id) => {
                // It is being ended together with the run that waited for it.
                self.journal().ended(&child.id).await?;
                child = self.run_of(&child.id).await?;
            }
            Live::LeftOut | Live::Awaited => {}
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

/// What is `unknown` about `run` is repeated only if the request says of each that it may execute again.
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
    // An answer counts for all that have the name: its author is to know of all.
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
