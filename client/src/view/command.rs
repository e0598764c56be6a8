//! Command of a call of `rye/bash`, and the end of its output.

use rye_core::model::Object;
use serde_json::Value;

/// Most lines of the output that are kept.
const MOST_LINES: usize = 3;

/// A command line of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    pub line: String,
    /// Last lines of its output, at most 3; of stderr if it printed to both streams.
    pub last: Vec<String>,
    /// Number of lines before them.
    pub more: usize,
}

impl ShellCommand {
    /// Returns the command of a call of `item` with `input`, or `None` if the item runs none.
    pub(super) fn of(item: &str, input: &Object) -> Option<Self> {
        let line = (item == "rye/bash").then(|| input.get("command").and_then(Value::as_str));
        Some(Self {
            line: line??.to_owned(),
            last: Vec::new(),
            more: 0,
        })
    }

    /// Adds the end of its output from `text`, which is the result as the model reads it.
    pub(super) fn ended(self, text: &str) -> Self {
        // Each stream is below a line with its name; the exit code is above both.
        let streams = text.split_once("\n--- ").map_or("", |(_, streams)| streams);
        let lines = streams.lines().skip(1);
        let lines = lines.filter(|line| !line.trim().is_empty() && !line.starts_with("--- "));
        let lines: Vec<&str> = lines.collect();
        let more = lines.len().saturating_sub(MOST_LINES);
        Self {
            last: lines[more..]
                .iter()
                .map(|line| (*line).to_owned())
                .collect(),
            more,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_shell_has_a_command_and_its_last_lines() {
        let input = json!({"command": "make"}).as_object().unwrap().clone();
        assert_eq!(ShellCommand::of("team/build", &input), None);
        assert_eq!(ShellCommand::of("rye/bash", &Object::new()), None);
        for (text, last, more) in [
            ("exit code 0", vec![], 0),
            ("exit code 0\n--- stdout\na\n\nb\n", vec!["a", "b"], 0),
            (
                "exit code 1\n--- stdout\n1\n2\n3\n--- stderr\n4\n",
                vec!["2", "3", "4"],
                1,
            ),
            ("error timeout: late\n--- stdout (cut)\n1", vec!["1"], 0),
        ] {
            let command = ShellCommand::of("rye/bash", &input).unwrap().ended(text);
            assert_eq!(
                (command.last, command.more),
                (last.into_iter().map(str::to_owned).collect(), more),
                "{text}"
            );
        }
    }
}
