//! What nobody knows about a run that is to be resumed or continued: at-most-once attempts that may have executed (they were cut
//! off, or failed after they had begun), in it or in the child runs that its last step waited for.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::id::RunId;
use rye_core::model::{Run, Status, Verdict};

use super::{Error, Supervisor};
use crate::port::Resume;

/// An at-most-once attempt that may have executed.
#[derive(Debug)]
pub(super) struct Question {
    /// Its name, and those of the at-most-once attempts above it: an answer to one is an answer to it.
    names: Vec<String>,
    /// The run it belongs to.
    run: RunId,
}

impl Question {
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
    /// What nobody knows about `run`, which has ended or stands behind a failure, and about the child runs that
    /// another try of its last step continues.
    pub(super) fn questions<'a>(
        &'a self,
        run: &'a Run,
    ) -> BoxFuture<'a, Result<Vec<Question>, Error>> {
        let work = async move {
            let mut own = run.unknown();
            let mut open = Vec::new();
            for (name, child) in run.unfinished_children() {
                let once = own.iter().position(|own| *own == name);
                let once = once.map(|place| own.remove(place));
                let Some(child) = self.ended_below(run, child).await? else {
                    continue;
                };
                let mut below = self.questions(&child).await?;
                if let Some(name) = once {
                    if below.is_empty() {
                        below.push(Question {
                            names: Vec::new(),
                            run: run.id.clone(),
                        });
                    }
                    for question in &mut below {
                        question.names.push(name.clone());
                    }
                }
                open.extend(below);
            }
            open.extend(own.into_iter().map(|name| Question {
                names: vec![name],
                run: run.id.clone(),
            }));
            Ok(open)
        };
        work.boxed()
    }

    /// The run that a step of `run` continues, which `child` carried out; `None` if nothing of it is repeated.
    async fn ended_below(&self, run: &Run, child: &RunId) -> Result<Option<Arc<Run>>, Error> {
        let mut child = self.newest(child).await?;
        if child.spec.detached {
            return Ok(None);
        }
        if child.spec.parent.as_ref() == Some(&run.id) && !child.status().is_terminal() {
            // It is being ended together with the run that waited for it.
            self.journal().ended(&child.id).await?;
            child = self.run_of(&child.id).await?;
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

    /// What is at-most-once and may have executed, in `run` or in a child run, is repeated only if the request says that it
    /// may.
    pub(super) async fn settle_unknown(&self, run: &Run, request: &Resume) -> Result<(), Error> {
        let unfit = |problem: String| Error::Unfit {
            run: run.id.clone(),
            problem,
        };
        let open = self.questions(run).await?;
        for (name, verdict) in &request.verdicts {
            if name != "*" && !open.iter().any(|question| question.is_answered_by(name)) {
                return Err(unfit(format!("`{name}` is not uncertain")));
            }
            if *verdict != Verdict::Retry {
                return Err(unfit(format!(
                    "it can only continue by doing `{name}` again; if that is wrong, start a new run"
                )));
            }
        }
        let open = open.iter().filter(|question| {
            let mut given = request.verdicts.iter();
            !given.any(|(name, _)| question.is_answered_by(name))
        });
        // An answer counts for all that have the name: its author is to know of all.
        let told: Vec<String> = open
            .clone()
            .map(|question| question.describe(run))
            .collect();
        let names = open.filter_map(|question| question.names.first());
        let answers: BTreeSet<String> = names
            .map(|name| format!("--uncertain '{name}=retry'"))
            .collect();
        if told.is_empty() {
            return Ok(());
        }
        Err(unfit(format!(
            "{}: at most once, and may have executed; if it may execute again, say so: ryectl resume {} {}",
            told.join(", "),
            run.id,
            Vec::from_iter(answers).join(" ")
        )))
    }

    /// Whether resuming the suspended `run` would repeat an at-most-once attempt that may have executed.
    pub(super) async fn must_be_asked_about(&self, run: &Run) -> Result<bool, Error> {
        Ok(run.resume_retries_failed_step() && !self.questions(run).await?.is_empty())
    }

    /// As [`Self::settle_unknown`], for a suspended run; answers with what is left of the request.
    pub(super) async fn settle_failed(&self, run: &Run, request: Resume) -> Result<Resume, Error> {
        if !self.must_be_asked_about(run).await? {
            return Ok(request);
        }
        self.settle_unknown(run, &request).await?;
        Ok(Resume {
            verdicts: Vec::new(),
            ..request
        })
    }
}
