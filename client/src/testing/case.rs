//! One case, from its directory to its report.

use std::time::Duration;

use rye_client::{Client, Error};
use tokio::sync::watch;

use super::call::{Ended, Runs};
use super::compare::{self, Problem};
use super::report::Report;
use super::source::Numbered;
use super::stage::Stage;

/// Context of all cases.
pub(crate) struct Rig<'a> {
    pub(crate) client: &'a Client,
    pub(crate) stage: &'a Stage,
    /// True if the directories of cases are not removed.
    pub(crate) keep: bool,
}

impl Rig<'_> {
    /// Runs one case. Returns `None` if it was stopped before its end.
    pub(crate) async fn run(
        &self,
        numbered: Numbered<'_>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Option<Report>, Error> {
        let (source, case) = (numbered.source, numbered.case);
        if *stop.borrow() {
            return Ok(None);
        }
        let mut report = Report {
            file: source.path.clone(),
            tool: source.file.tool.id.to_string(),
            case: case.name.clone(),
            problems: Vec::new(),
            elapsed: Duration::ZERO,
            run_id: String::new(),
            directory: None,
        };
        let directory = match self.stage.directory(numbered.number, &source.file) {
            Ok(directory) => directory,
            Err(problem) => {
                report.problems.push(problem.into());
                return Ok(Some(report));
            }
        };
        let runs = Runs::new(self.client, &directory.root);
        let ended = runs.call(&source.file.tool, case, &mut stop).await;
        if self.keep {
            report.directory = Some(directory.root.clone());
        } else {
            directory.remove();
        }
        let (ended, elapsed) = ended?;
        report.elapsed = elapsed;
        match ended {
            Ended::Interrupted => return Ok(None),
            Ended::Late => {
                let most = case.timeout.as_secs_f64();
                let most = format!("it took more than {most} s (more with `timeout` of the case)");
                report.problems.push(most.into());
            }
            Ended::Answered(outcome, run_id) => {
                report.run_id = run_id;
                let problems = compare::problems(&case.expect, &outcome).into_iter();
                let problems = problems.map(|problem| Problem {
                    message: directory.without_its_path(&problem.message),
                    ..problem
                });
                report.problems = problems.collect();
            }
        }
        Ok(Some(report))
    }
}
