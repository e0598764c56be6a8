//! One call of the tool, in the directory of its case.
//!
//! **Owns** the runs in that directory. None is alive after a call, whether it answered, took too long or was
//! interrupted.
//! **Order.** The files of ended runs are awaited before the directory is removed, because the daemon would keep trying
//! to write them.
//! **Races.** A call that was just sent may not be a run yet when it must end. So its runs are ended until it answers.

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use rye_client::{Client, Error};
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::ItemRef;
use rye_core::model::Status;
use rye_proto::{convert, v1};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::compare::{Failed, Outcome};
use super::file::Case;

/// Time that a process gets to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// Pause between two attempts to end the runs of a call.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Longest wait for the end of a call, and then for its files.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two checks whether the files are written.
const LOOK_FOR_FILES: Duration = Duration::from_millis(5);

/// End of a call.
#[derive(Debug)]
pub(super) enum Ended {
    /// The tool answered, or the call was refused. The id of the run is empty if there was none.
    Answered(Outcome, String),
    /// The call took longer than its case allows.
    Late,
    /// The tests were interrupted.
    Interrupted,
}

/// Runs in the directory of a case.
pub(super) struct Runs<'c> {
    client: &'c Client,
    directory: &'c Path,
    project: String,
}

impl<'c> Runs<'c> {
    pub(super) fn new(client: &'c Client, directory: &'c Path) -> Self {
        Self {
            client,
            directory,
            project: directory.display().to_string(),
        }
    }

    /// Calls `tool` as `case` says, until it answers, takes too long, or `stop` is set. Also returns its duration.
    pub(super) async fn call(
        &self,
        tool: &ItemRef,
        case: &Case,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(Ended, Duration), Error> {
        let began = Instant::now();
        let mut execute = pin!(self.client.execute(v1::ExecuteRequest {
            item: Some(tool.into()),
            project: self.project.clone(),
            params_json: Value::Object(case.params.clone()).to_string(),
            trace: false,
            dry_run: false,
            idempotency_key: String::new(),
        }));
        let ended = tokio::select! {
            biased;
            answer = &mut execute => answered(answer)?,
            Ok(_) = stop.wait_for(|stop| *stop) => Ended::Interrupted,
            () = sleep(case.timeout) => Ended::Late,
        };
        if !matches!(ended, Ended::Answered(..)) {
            let until = Instant::now() + PATIENCE;
            while Instant::now() < until {
                self.kill().await?;
                tokio::select! {
                    _answer = &mut execute => break,
                    () = sleep(LOOK_AGAIN) => {}
                }
            }
        }
        let elapsed = began.elapsed();
        self.finish().await?;
        Ok((ended, elapsed))
    }

    /// Ends the remaining runs, and waits at most [`PATIENCE`] until their files are written.
    async fn finish(&self) -> Result<(), Error> {
        self.kill().await?;
        let runs = self.list(&[]).await?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !runs.iter().all(|run| is_written(self.directory, run)) {
            sleep(LOOK_FOR_FILES).await;
        }
        Ok(())
    }

    /// Kills the live runs and their descendants.
    async fn kill(&self) -> Result<(), Error> {
        let statuses = [Status::Created, Status::Running, Status::Suspended];
        let live = self.list(&statuses).await?;
        let is_below = |run: &v1::Run| live.iter().any(|other| other.run_id == run.parent_id);
        for run in live.iter().filter(|run| !is_below(run)) {
            match self.client.kill(&run.run_id, Some(GRACE), true).await {
                // It ended by itself.
                Err(error) if error.kind() == ErrorKind::Precondition => {}
                ended => drop(ended?),
            }
        }
        Ok(())
    }

    /// Returns the runs with one of `statuses`; an empty list means all.
    async fn list(&self, statuses: &[Status]) -> Result<Vec<v1::Run>, Error> {
        let statuses = statuses.iter().copied();
        let request = v1::ListRequest {
            statuses: statuses
                .map(|status| v1::RunStatus::from(status).into())
                .collect(),
            project: self.project.clone(),
            page_size: 1000,
            ..v1::ListRequest::default()
        };
        Ok(self.client.list(request).await?.runs)
    }
}

/// Converts the daemon's answer to an outcome. Returns an error that does not concern the call.
fn answered(answer: Result<v1::ExecuteResponse, Error>) -> Result<Ended, Error> {
    let answer = match answer {
        Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Bug) => {
            return Err(error);
        }
        Err(error) => {
            let failure = Some(Failed {
                code: error.reason().to_owned(),
                message: error.to_string(),
            });
            let data = Value::Null;
            return Ok(Ended::Answered(Outcome { data, failure }, String::new()));
        }
        Ok(answer) => answer,
    };
    let envelope = Value::from(convert::object("envelope_json", &answer.envelope_json)?);
    let text = |pointer, absent: &str| {
        let text = envelope.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or(absent).to_owned()
    };
    let failure = (text("/status", "") == "error").then(|| Failed {
        code: text("/metadata/code", "unknown"),
        message: text("/error", "it gave no reason"),
    });
    let data = envelope.get("data").cloned().unwrap_or_default();
    Ok(Ended::Answered(Outcome { data, failure }, answer.run_id))
}

/// True if the files of `run`, which has ended, are written.
fn is_written(directory: &Path, run: &v1::Run) -> bool {
    let status = run.core_status().map_or("", Status::as_str);
    let files = directory.join(".ai");
    if !files.is_dir() {
        // The tool has removed the directory.
        return true;
    }
    let has_ended =
        |path: &Path| fs::read_to_string(path).is_ok_and(|text| has_status(&text, status));
    let record = Path::new("state/threads").join(&run.run_id);
    if !has_ended(&files.join(record).join("thread.json")) {
        return false;
    }
    // Tools have no page. For other runs the page is written last.
    let page = Path::new("knowledge/agent/threads").join(run.item_id());
    run.kind == i32::from(v1::RunKind::Tool)
        || has_ended(&files.join(page).join(format!("{}.md", run.run_id)))
}

/// True if `text`, a record or a page, has the end status `status` of its run. The word alone is not enough, because
/// steps and calls end earlier with the same words.
fn has_status(text: &str, status: &str) -> bool {
    let mut lines = text.lines().map(|line| line.trim().trim_end_matches(','));
    lines.any(|line| {
        let field = line
            .strip_prefix("\"status\": ")
            .or(line.strip_prefix("status: "));
        field == Some(&format!("\"{status}\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_run_is_read_from_status_field_only() {
        let record =
            |status| format!("{{\n  \"kind\": \"graph\",\n  \"status\": \"{status}\",\n}}");
        let page =
            |status| format!("```yaml\nstatus: \"{status}\"\n```\n\na[0] killed\nstatus killed\n");
        for file in [record("killed"), page("killed")] {
            assert!(has_status(&file, "killed"), "{file}");
        }
        for file in [record("running"), page("running"), String::new()] {
            assert!(!has_status(&file, "killed"), "{file}");
        }
    }
}
