//! The steps of a run, for people.

use rye_proto::v1;

use super::{cut, elapsed, items_so_far, one_line, screen, table_within};

/// Heads of the columns. That of durations is padded to the usual width, so that the details do not move with the
/// values.
const HEADS: [&str; 5] = ["STEP", "NODE", "STATUS", "TIME  ", "DETAIL"];
/// Longest error of a step in text, in characters.
const MAX_SUMMARY_CHARS: usize = 120;
/// Longest line of a command and its output, in characters.
const MAX_LINE_CHARS: usize = 160;

/// Renders the table of `steps`, each line cut to `most` columns of a terminal. Below a call of a thread that ran a
/// command are the command and the end of its output.
pub(crate) fn table(steps: &[v1::Step], most: Option<usize>) -> String {
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

/// Renders a command and the last lines of its output, which follow `more` others.
pub(crate) fn shell_lines(command: &str, last: &[String], more: usize) -> Vec<String> {
    let mut lines = vec![format!("  $ {}", one_line(command, MAX_LINE_CHARS))];
    if more > 0 {
        let plural = if more == 1 { "" } else { "s" };
        lines.push(format!("    … {more} line{plural}"));
    }
    let last = last.iter();
    lines.extend(last.map(|line| format!("    {}", cut(line, Some(MAX_LINE_CHARS)))));
    lines
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
