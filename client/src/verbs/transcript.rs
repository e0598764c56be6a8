//! Printing and checking the transcript of a run.

use rye_client::exit::Exit;
use rye_client::transcript::Piece;
use rye_client::{json, wire};
use rye_proto::v1;

use super::Session;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Format, Output, Reader};
use crate::render;

pub(super) async fn transcript(
    asked: &cli::Transcript,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let request = v1::TranscriptRequest {
        run_id: asked.run.to_string(),
        tail: asked.tail,
        verify: asked.verify,
    };
    let mut transcript = session.client().await?.transcript(request).await?;
    let output = &mut session.output;
    loop {
        match transcript.next().await? {
            Piece::Line(line) => print_line(&line, output)?,
            Piece::Verdict(verdict) => return tell(asked, &verdict, output),
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
    let written = wire::json("line", &line.line)?.unwrap_or_default();
    let text = |field: &str| written[field].as_str().unwrap_or_default();
    if text("event_type") == "checkpoint" {
        return Ok(());
    }
    let payload = wire::json("payload_json", &line.payload_json)?;
    let payload = payload.as_ref().unwrap_or(&written["payload"]);
    let seq = written["seq"].as_u64().unwrap_or_default();
    let shown = render::transcript::event(seq, text("timestamp"), text("event_type"), payload);
    output.line(&shown)
}

/// Tells what was found.
fn tell(
    asked: &cli::Transcript,
    verdict: &v1::TranscriptVerdict,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let found = json::Checked::new(verdict);
    let json::Verdict {
        intact,
        problem,
        events,
        checkpoints,
        ..
    } = &found.verdict;
    if asked.verify && output.format() == Format::Json {
        output.json_line(&found)?;
    } else if asked.verify && *intact {
        output.note(&format!(
            "{}: {events} events and {checkpoints} signed checkpoints are what was written",
            asked.run
        ));
    }
    if let Some(problem) = problem {
        output.error(&format!(
            "the transcript of {} was changed, cut or removed after it was written: {problem}",
            asked.run
        ));
    }
    Ok(if *intact { Exit::Done } else { Exit::Failed })
}
