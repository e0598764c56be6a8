//! Command of a call of `rye/bash`, and the end of its output.

use serde_json::Value;

use crate::model::Object;

/// Most lines of the output that are kept.
const MOST_LINES: usize = 3;
/// Most characters of each that are kept.
const MOST_CHARACTERS: usize = 200;

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
    /// Returns the command of a call of the tool `item` with the arguments `input` of the model, or `None` if the tool
    /// runs none.
    pub fn of(item: &str, input: &Object) -> Option<Self> {
        if item != "rye/bash" {
            return None;
        }
        // `rye_execute` takes the parameters of the tool as an object or as its JSON text.
        let params = match input.get("parameters") {
            Some(Value::String(text)) => serde_json::from_str(text).ok()?,
            Some(params) => params.clone(),
            None => Value::Object(input.clone()),
        };
        Some(Self {
            line: params.get("command")?.as_str()?.to_owned(),
            last: Vec::new(),
            more: 0,
        })
    }

    /// Adds the end of its output from `text`, which is the result as the model reads it.
    #[must_use]
    pub fn ended(self, text: &str) -> Self {
        // Each stream is below a line with its name; the exit code is above both.
        let streams = text.split_once("\n--- ").map_or("", |(_, streams)| streams);
        let lines = streams.lines().skip(1);
        let lines = lines.filter(|line| !line.trim().is_empty() && !line.starts_with("--- "));
        let lines: Vec<&str> = lines.collect();
        let more = lines.len().saturating_sub(MOST_LINES);
        Self {
            last: lines[more..]
                .iter()
                .map(|line| line.chars().take(MOST_CHARACTERS).collect())
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
        for parameters in [json!(input), json!(json!(input).to_string())] {
            let call = json!({"item_id": "rye/bash", "parameters": parameters});
            let command = ShellCommand::of("rye/bash", call.as_object().unwrap());
            assert_eq!(command.unwrap().line, "make");
        }
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
