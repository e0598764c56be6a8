//! `steps`.

use rye_client::exit::Exit;
use rye_proto::v1;

use crate::cli;
use crate::failure::Failure;
use crate::output::Format;
use crate::render::lines::shell_lines;
use crate::render::{self, cut, elapsed, items_so_far, one_line, screen, table_within};
use crate::session::Session;

/// Heads of the columns. That of durations is padded to the usual width, so that the details do not move with the
/// values.
const HEADS: [&str; 5] = ["STEP", "NODE", "STATUS", "TIME  ", "DETAIL"];
/// Longest error of a step in text, in characters.
const MAX_SUMMARY_CHARS: usize = 120;

pub(super) async fn steps(run: &cli::RunName, session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let steps = client.steps(run.as_str()).await?;
    let of_tool = steps.is_empty() && client.get(run.as_str()).await?.kind() == v1::RunKind::Tool;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&steps)?,
        Format::Text => {
            let failed = steps.iter().filter_map(|step| {
                let printed = render::printed(step.process.as_ref()?);
                Some(format!("\nstep {} {}\n{printed}", step.step, step.node))
            });
            let failed: Vec<String> = failed.collect();
            output.line(&table(&steps, output.width()))?;
            for printed in failed {
                output.line(&printed)?;
            }
            if of_tool {
                output.hint(&format!("a single tool has no steps: ryectl get {run}"));
            }
        }
    }
    Ok(Exit::Done)
}

/// Renders the table of `steps`, each line cut to `most` columns of a terminal. Below a call of a thread that ran a
/// command are the command and the end of its output.
fn table(steps: &[v1::Step], most: Option<usize>) -> String {
    let rows: Vec<[String; 5]> = steps.iter().map(row).collect();
    let table = table_within(HEADS, &rows, most);
    let mut rows = table.lines();
    let mut lines: Vec<String> = rows.by_ref().take(1).map(str::to_owned).collect();
    for (row, step) in rows.zip(steps) {
        lines.push(row.to_owned());
        if let Some(command) = &step.command {
            let more = usize::try_from(command.more).unwrap_or(usize::MAX);
            let below = shell_lines(&command.line, &command.last, more).into_iter();
            lines.extend(below.map(|line| cut(&screen::in_line(&line), most)));
        }
    }
    lines.join("\n")
}

fn row(step: &v1::Step) -> [String; 5] {
    let error = step.error.as_deref().map(|error| match &step.command {
        // The output is below.
        Some(_) => error.lines().next().unwrap_or_default(),
        None => error,
    });
    let items = step.items.map(items_so_far);
    let detail = error.map(str::to_owned).or(items).unwrap_or_default();
    [
        step.step.to_string(),
        step.node.clone(),
        step.status.clone(),
        elapsed(step.elapsed_ms),
        one_line(&detail, MAX_SUMMARY_CHARS),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(status: &str, error: Option<&str>, command: Option<v1::ShellCommand>) -> v1::Step {
        v1::Step {
            step: 1,
            node: "tool:rye/bash".to_owned(),
            status: status.to_owned(),
            elapsed_ms: 600,
            error: error.map(str::to_owned),
            command,
            ..v1::Step::default()
        }
    }

    #[test]
    fn command_and_end_of_its_output_are_below_its_call() {
        let command = v1::ShellCommand {
            line: "pytest\n-q".to_owned(),
            last: vec!["1 failed \u{1b}[31m".to_owned()],
            more: 12,
        };
        let error = "exit code 1\n--- stdout\n1 failed";
        let steps = [
            call("error", Some(error), Some(command)),
            call("ok", None, None),
        ];
        assert_eq!(
            table(&steps, None),
            "STEP  NODE           STATUS  TIME    DETAIL\n\
             1     tool:rye/bash  error   0.6s    exit code 1\n  \
             $ pytest -q\n    … 12 lines\n    1 failed \\u{1b}[31m\n\
             1     tool:rye/bash  ok      0.6s"
        );
        let narrow = table(&steps, Some(12));
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 12),
            "{narrow}"
        );
    }
}
