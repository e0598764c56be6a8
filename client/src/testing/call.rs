//! One call of the tool, in the directory of its case.
//!
//! **Owns** the runs of that directory: none lives when a call is over, whether it answered, took too long or was interrupted. **Order.**
//! What a run leaves behind in the directory is waited for before that is removed: the daemon would try for long to write it.
//! **Races.** A call that was just sent may not be a run yet when it is to end; so its runs are ended until it answers.

use std::fs;
use std::path::Path;
use std::pin::{Pin, pin};
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

/// How long a process may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(2);
/// Pause before it is looked again whether a call that is to end has become a run.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long the end of a call is waited for, and then its files.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause before it is looked again whether they are written.
const LOOK_FOR_FILES: Duration = Duration::from_millis(5);

/// How a call ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The tool answered, or the call was refused; with the id of the run, if there was one.
    Answered(Outcome, String),
    /// It took longer than its case says.
    Late,
    /// Somebody interrupted the tests.
    Interrupted,
}

/// Calls `tool` as `case` says, in `directory`; `stop` says when everything is to end. Answers also how long the call took.
pub(super) async fn call(
    client: &Client,
    directory: &Path,
    (tool, case): (&ItemRef, &Case),
    stop: &mut watch::Receiver<bool>,
) -> Result<(Ended, Duration), Error> {
    let project = directory.display().to_string();
    let request = v1::ExecuteRequest {
        item: Some(tool.into()),
        project: project.clone(),
        params_json: Value::Object(case.params.clone()).to_string(),
        trace: false,
        dry_run: false,
    };
    let began = Instant::now();
    let mut execute = pin!(client.execute(request));
    let cut = tokio::select! {
        biased;
        answer = &mut execute => {
            let elapsed = began.elapsed();
            let ended = answered(answer)?;
            finish(client, &project, directory).await?;
            return Ok((ended, elapsed));
        }
        Ok(_) = stop.wait_for(|stop| *stop) => Ended::Interrupted,
        () = sleep(case.timeout) => Ended::Late,
    };
    end(client, &project, execute).await?;
    let elapsed = began.elapsed();
    finish(client, &project, directory).await?;
    Ok((cut, elapsed))
}

/// What the answer of the daemon says of the call; what says nothing of it is an error.
fn answered(answer: Result<v1::ExecuteResponse, Error>) -> Result<Ended, Error> {
    let answer = match answer {
        Ok(answer) => answer,
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
    };
    let envelope = convert::object("envelope_json", &answer.envelope_json)?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let is_failure = envelope.get("status").and_then(Value::as_str) == Some("error");
    let failure = is_failure.then(|| Failed {
        code: text(
            envelope
                .get("metadata")
                .and_then(|metadata| metadata.get("code")),
        )
        .unwrap_or_else(|| "unknown".to_owned()),
        message: text(envelope.get("error")).unwrap_or_else(|| "it gave no reason".to_owned()),
    });
    let data = envelope.get("data").cloned().unwrap_or_default();
    Ok(Ended::Answered(Outcome { data, failure }, answer.run_id))
}

/// Ends what `execute` has begun, and waits for its answer.
async fn end(
    client: &Client,
    project: &str,
    mut execute: Pin<&mut impl Future<Output = Result<v1::ExecuteResponse, Error>>>,
) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        kill(client, &live(client, project).await?).await?;
        tokio::select! {
            _answer = &mut execute => return Ok(()),
            () = sleep(LOOK_AGAIN) => {}
        }
    }
    Ok(())
}

/// Ends what is left of the runs of `directory`, and waits until their files are written.
async fn finish(client: &Client, project: &str, directory: &Path) -> Result<(), Error> {
    kill(client, &live(client, project).await?).await?;
    let runs = runs(client, project, Vec::new()).await?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && !runs.iter().all(|run| is_written(directory, run)) {
        sleep(LOOK_FOR_FILES).await;
    }
    Ok(())
}

/// Whether nothing more is written about `run`, which has ended.
fn is_written(directory: &Path, run: &v1::Run) -> bool {
    let status = run.core_status().map_or("", Status::as_str);
    let files = directory.join(".ai");
    if !files.is_dir() {
        // The tool has removed it.
        return true;
    }
    let tells = |path: &Path| fs::read_to_string(path).is_ok_and(|text| has_status(&text, status));
    let record = Path::new("state/threads").join(&run.run_id);
    if !tells(&files.join(record).join("thread.json")) {
        return false;
    }
    // Tools have no page; it is the last that is written of other runs.
    let page = Path::new("knowledge/agent/threads").join(run.item_id());
    run.kind == i32::from(v1::RunKind::Tool)
        || tells(&files.join(page).join(format!("{}.md", run.run_id)))
}

/// True if the record or the page `text` is that of a run that ended as `status`. The word alone is not enough: steps and calls
/// end with the same words before the run does.
fn has_status(text: &str, status: &str) -> bool {
    let mut lines = text.lines().map(|line| line.trim().trim_end_matches(','));
    lines.any(|line| {
        let field = line
            .strip_prefix("\"status\": ")
            .or(line.strip_prefix("status: "));
        field == Some(&format!("\"{status}\""))
    })
}

async fn live(client: &Client, project: &str) -> Result<Vec<v1::Run>, Error> {
    let statuses = [Status::Created, Status::Running, Status::Suspended];
    let statuses = statuses.map(|status| v1::RunStatus::from(status).into());
    runs(client, project, statuses.into()).await
}

async fn runs(client: &Client, project: &str, statuses: Vec<i32>) -> Result<Vec<v1::Run>, Error> {
    let request = v1::ListRequest {
        statuses,
        project: project.to_owned(),
        page_size: 1000,
        ..v1::ListRequest::default()
    };
    Ok(client.list(request).await?.runs)
}

/// Ends `live` by force, with all below.
async fn kill(client: &Client, live: &[v1::Run]) -> Result<(), Error> {
    let is_below = |run: &v1::Run| live.iter().any(|other| other.run_id == run.parent_id);
    for run in live.iter().filter(|run| !is_below(run)) {
        match client.kill(&run.run_id, Some(GRACE), true).await {
            Ok(_ended) => {}
            // It ended by itself.
            Err(error) if error.kind() == ErrorKind::Precondition => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_how_a_run_ended_by_its_field_and_not_by_a_word() {
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
