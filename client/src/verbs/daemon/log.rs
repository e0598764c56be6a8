//! Prints the log of a daemon that `ryectl` started.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use rye_client::exit::Exit;
use rye_core::model::Object;
use serde_json::{Value, json};

use crate::cli::DaemonLogs;
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::{Format, Output, Reader};

/// Interval at which a followed log is read for new lines.
const PAUSE: Duration = Duration::from_millis(200);

/// A log file that may grow.
struct Log {
    file: BufReader<File>,
    /// Beginning of a line whose end is not written yet.
    begun: Vec<u8>,
}

impl Log {
    /// Returns the next complete line, if there is one.
    fn next(&mut self) -> io::Result<Option<String>> {
        self.file.read_until(b'\n', &mut self.begun)?;
        if self.begun.pop_if(|last| *last == b'\n').is_none() {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&self.begun).into_owned();
        self.begun.clear();
        Ok(Some(line))
    }
}

/// Prints the last lines of the log at `path`, and with `--follow` the new ones.
pub(super) async fn print(
    path: &Path,
    asked: &DaemonLogs,
    output: &mut Output,
) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let exit = if error.kind() == io::ErrorKind::NotFound {
            Exit::NotFound
        } else {
            Exit::Refused
        };
        let message = format!("cannot read the log of the daemon, `{}`", path.display());
        LocalError::because(exit, message, error).with_hint(
            "a daemon that `ryectl` starts logs there; that of a service manager logs where this one keeps logs, as in `journalctl -u ryed`",
        )
    };
    let mut log = Log {
        file: BufReader::new(File::open(path).map_err(failed)?),
        begun: Vec::new(),
    };
    let most = usize::try_from(asked.tail).unwrap_or(usize::MAX);
    let mut last = VecDeque::new();
    while let Some(line) = log.next().map_err(failed)? {
        last.push_back(line);
        if last.len() > most {
            last.pop_front();
        }
    }
    for line in last {
        print_line(&line, output)?;
    }
    let mut reader = output.watch_reader();
    while asked.follow && output.reader() != Reader::Gone {
        if let Some(line) = log.next().map_err(failed)? {
            print_line(&line, output)?;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = reader.gone() => break,
        }
    }
    Ok(())
}

fn print_line(line: &str, output: &mut Output) -> Result<(), Failure> {
    let entry = serde_json::from_str::<Object>(line).ok();
    match (output.format(), entry) {
        (Format::Json, Some(_)) => output.json_text(line),
        (Format::Json, None) => output.json_line(&json!({"message": line})),
        (Format::Text, Some(entry)) => output.line(&sentence(&entry)),
        (Format::Text, None) => output.line(line),
    }
}

/// Renders an entry as time, level, message and fields.
fn sentence(entry: &Object) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    let head = ["timestamp", "level", "message"];
    let of = |key: &str| entry.get(key).map(text).unwrap_or_default();
    let fields = entry
        .iter()
        .filter(|(key, _)| *key != "target" && !head.contains(&key.as_str()));
    let mut line = format!("{} {:<5} {}", of(head[0]), of(head[1]), of(head[2]));
    for (key, value) in fields {
        write!(line, " {key}={}", text(value)).expect("writing to a String cannot fail");
    }
    line
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_line_is_read_when_its_end_is_written() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut log = Log {
            file: BufReader::new(file.reopen().unwrap()),
            begun: Vec::new(),
        };
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(log.next().unwrap().as_deref(), Some("one"));
        assert_eq!(log.next().unwrap(), None);
        file.write_all(b"o\n").unwrap();
        assert_eq!(log.next().unwrap().as_deref(), Some("two"));
        assert_eq!(log.next().unwrap(), None);
    }

    #[test]
    fn log_entry_is_rendered_as_one_line() {
        let entry = r#"{"timestamp":"2026-11-22T10:00:00Z","level":"INFO","message":"serving","target":"ryed","socket":"/s","runs":2}"#;
        let entry = serde_json::from_str(entry).unwrap();
        assert_eq!(
            sentence(&entry),
            "2026-11-22T10:00:00Z INFO  serving socket=/s runs=2"
        );
    }
}
