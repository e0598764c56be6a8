//! Prints and checks the transcript of a run, and checks a transcript file.

mod file;

use rye_client::exit::Exit;
use rye_client::transcript::Piece;
use rye_proto::{convert, v1};
use serde_json::json;

use crate::cli::{self, RunName, TranscriptSource};
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::{Format, Output, Reader};
use crate::render;
use crate::session::Session;

pub(super) async fn transcript(
    asked: &cli::Transcript,
    session: &mut Session,
) -> Result<Exit, Failure> {
    if let Some(problem) = asked.problem() {
        return Err(LocalError::usage(problem).into());
    }
    match &asked.source {
        TranscriptSource::Run(run) => of_run(run, asked, session).await,
        TranscriptSource::File(path) => file::verify(path, asked.key.as_deref(), session),
    }
}

async fn of_run(
    run: &RunName,
    asked: &cli::Transcript,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let request = v1::TranscriptRequest {
        run_id: run.to_string(),
        tail: asked.tail,
        verify: asked.verify,
    };
    let mut transcript = session.client().await?.transcript(request).await?;
    let output = &mut session.output;
    loop {
        match transcript.next().await? {
            Piece::Line(line) => print_line(&line, output)?,
            Piece::Verdict(verdict) => return report(run, asked.verify, &verdict, output),
        }
        if output.reader() == Reader::Gone {
            return Ok(Exit::Done);
        }
    }
}

fn print_line(line: &v1::TranscriptLine, output: &mut Output) -> Result<(), Failure> {
    if output.format() == Format::Json {
        return output.json_text(&line.line);
    }
    let written = convert::document("line", &line.line)?.unwrap_or_default();
    let text = |field: &str| written[field].as_str().unwrap_or_default();
    if text("event_type") == "checkpoint" {
        return Ok(());
    }
    let payload = convert::document("payload_json", &line.payload_json)?;
    let payload = payload.as_ref().unwrap_or(&written["payload"]);
    let seq = written["seq"].as_u64().unwrap_or_default();
    let shown = render::transcript::event(seq, text("timestamp"), text("event_type"), payload);
    output.line(&shown)
}

fn report(
    run: &RunName,
    verify: bool,
    verdict: &v1::TranscriptVerdict,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let v1::TranscriptVerdict {
        problem,
        events,
        checkpoints,
        ..
    } = verdict;
    let is_intact = problem.is_empty();
    if verify && output.format() == Format::Json {
        output.json_line(&json!({"verdict": verdict}))?;
    } else if verify && is_intact {
        output.note(&format!(
            "{run}: {events} events and {checkpoints} signed checkpoints are what was written"
        ));
    }
    if !is_intact {
        output.error(&format!(
            "the transcript of {run} was changed, cut or removed after it was written: {problem}"
        ));
    }
    Ok(if is_intact { Exit::Done } else { Exit::Failed })
}
