//! `test`: runs the cases of `*.test.yaml` files.
//!
//! **Order.** Cases run concurrently and are reported in the order of their files. **Failure.** If the daemon cannot be
//! reached, the verb ends. A signal ends the runs of the active cases; a second signal leaves them to the daemon.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use nix::unistd::geteuid;
use rye_client::exit::Exit;
use rye_item::directories;
use tokio::sync::watch;
use tokio::time::Instant;

use super::local::Local;
use super::signals::Interruptions;
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::{Format, Output};
use crate::session::Session;
use crate::testing::{Numbered, Report, Rig, Sources, Stage};
use crate::{cli, testing};

/// Most cases that run at the same time by default.
const MOST_JOBS: usize = 4;

pub(super) async fn test(asked: cli::Test, session: &mut Session) -> Result<Exit, Failure> {
    let project = session.found_project()?;
    let project = project.ok_or_else(|| {
        LocalError::not_found(
            "there is no project here: no `.ai` in this directory or above; `ryectl init` makes one, `--project` names one",
        )
    })?;
    let local = Local::of(session)?;
    let real = fs::canonicalize(&project).unwrap_or_else(|_| project.clone());
    if let Some(warning) = directories::check(&real, &local.user, geteuid())? {
        session.output.warning(&warning);
    }
    let here = session.environment.here()?;
    let sources = Sources::find(asked.path.as_deref(), &project, here)?;
    let cases = sources.select(asked.filter.as_deref())?;
    let stage = Stage::new(&project, local.into())?;
    let client = session.client().await?;
    let started = Instant::now();
    let rig = Rig {
        client: &client,
        stage: &stage,
        keep: asked.keep,
    };
    let jobs = asked.jobs.map_or_else(processors, usize::from);
    let mut signals = Interruptions::all()?;
    let output = &mut session.output;
    let (reports, ended) = run_all(&rig, &cases, jobs, (&mut signals, output)).await;
    if let Some(path) = &asked.junit {
        let path = session.environment.absolute(path)?;
        write_junit(&path, &reports, started.elapsed())?;
    }
    if asked.keep {
        let kept = stage.keep();
        output.note(&format!("the directories are kept in {}", kept.display()));
    }
    print_summary(&reports, output)?;
    let has_failed = testing::count(&reports).1 > 0;
    let exit = ended?;
    Ok(if exit == Exit::Done && has_failed {
        Exit::Failed
    } else {
        exit
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |most| most.get().min(MOST_JOBS))
}

/// Runs `cases` and prints each one when it and all earlier ones are done. Returns the reports and how the tests ended.
async fn run_all(
    rig: &Rig<'_>,
    cases: &[Numbered<'_>],
    jobs: usize,
    (signals, output): (&mut Interruptions, &mut Output),
) -> (Vec<Report>, Result<Exit, Failure>) {
    let (stop, stopped) = watch::channel(false);
    let runs = cases.iter().map(|case| rig.run(*case, stopped.clone()));
    let mut results = stream::iter(runs).buffered(jobs);
    let (mut reports, mut ended) = (Vec::new(), Ok(Exit::Done));
    loop {
        let result = tokio::select! {
            result = results.next() => result,
            why = signals.next() => {
                if matches!(ended, Ok(Exit::Interrupted(_))) {
                    break;
                }
                let why_text = why.describe();
                output.note(&format!("{why_text}; ending the runs of the tests (Ctrl-C again leaves them)"));
                ended = Ok(Exit::Interrupted(why));
                stop.send_replace(true);
                continue;
            }
        };
        let printed = match result {
            None => break,
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some(report))) => {
                let text = report.text(output.style());
                reports.push(report);
                match output.format() {
                    Format::Text => output.line(&text),
                    Format::Json => Ok(()),
                }
            }
            Some(Err(error)) => Err(error.into()),
        };
        if let (Err(failure), Ok(_)) = (printed, &ended) {
            ended = Err(failure);
            stop.send_replace(true);
        }
    }
    (reports, ended)
}

fn write_junit(path: &Path, reports: &[Report], elapsed: Duration) -> Result<(), LocalError> {
    let xml = testing::junit(reports, elapsed).map_err(io::Error::other);
    let written = xml.and_then(|xml| fs::write(path, xml));
    written.map_err(|error| {
        let message = format!("cannot write `{}`", path.display());
        LocalError::because(Exit::Precondition, message, error)
    })
}

/// Prints the totals as a sentence, or all reports as a document.
fn print_summary(reports: &[Report], output: &mut Output) -> Result<(), Failure> {
    if output.format() == Format::Json {
        return output.json(&testing::document(reports));
    }
    let (passed, failed) = testing::count(reports);
    let style = output.style();
    let passed = format!("{passed} passed");
    output.line(&match failed {
        0 => style.green(&passed),
        _ => format!("{passed}, {}", style.red(&format!("{failed} failed"))),
    })
}
