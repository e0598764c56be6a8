//! Output of a verb: data goes to stdout, everything else to stderr.
//!
//! **Owns** both streams. Text passes through [`screen::shown`]; JSON for programs is written unchanged. A reader may
//! close its end: a broken pipe is remembered and the rest is dropped, so that the verb ends with its own exit code.

mod reader_watch;

use std::io::{self, IsTerminal as _, Write as _};

use rye_client::client::OutageNotifier;
use rye_client::environment::Environment;
use rye_client::exit::Exit;
use rye_core::error::with_sources;
use serde::Serialize;
use serde_json::Value;

pub(crate) use self::reader_watch::ReaderWatch;
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::render::{self, Style, screen};

/// Erases the current line of a terminal.
const TAKE_BACK: &str = "\r\u{1b}[2K";

/// Form in which data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

impl Format {
    /// Returns the format that `--json` selects.
    pub(crate) const fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Kind of reader of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    Terminal,
    /// A file, a pipe or a program.
    Other,
    /// The reader has closed its end.
    Gone,
}

/// JSON form of an error, for programs.
#[derive(Debug, Serialize)]
struct ErrorDocument<'a> {
    error: ErrorBody<'a>,
}

#[derive(Debug, Serialize)]
struct ErrorBody<'a> {
    reason: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// The two output streams.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    stdout: Reader,
    stderr: Reader,
    style: Style,
    /// True if stderr is a terminal that can erase a line.
    rewrites: bool,
    /// True if stderr ends with a line that is to be erased.
    pending: bool,
    /// True if stderr ends with a text that may continue.
    open_text: bool,
}

impl Output {
    pub(crate) fn new(format: Format, environment: &Environment) -> Self {
        let reader = |terminal| {
            if terminal {
                Reader::Terminal
            } else {
                Reader::Other
            }
        };
        let stdout = reader(io::stdout().is_terminal());
        let stderr = reader(io::stderr().is_terminal());
        let both = stdout == Reader::Terminal && stderr == Reader::Terminal;
        Self {
            format,
            stdout,
            stderr,
            style: if both && !environment.no_color && !environment.dumb_terminal {
                Style::Colour
            } else {
                Style::Plain
            },
            rewrites: stderr == Reader::Terminal && !environment.dumb_terminal,
            pending: false,
            open_text: false,
        }
    }

    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    pub(crate) const fn reader(&self) -> Reader {
        self.stdout
    }

    /// Returns a watch that notices that the reader of stdout goes away while nothing is printed.
    pub(crate) fn watch_reader(&self) -> ReaderWatch {
        match self.stdout {
            Reader::Other => ReaderWatch::of_stdout(),
            // A terminal that is closed sends SIGHUP. A failed write has already reported the other.
            Reader::Terminal | Reader::Gone => ReaderWatch::default(),
        }
    }

    /// Returns the columns of stdout's terminal, or `None` if stdout is no terminal; then nothing is cut.
    pub(crate) fn width(&self) -> Option<usize> {
        if self.stdout != Reader::Terminal {
            return None;
        }
        let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
        Some(usize::from(width.0))
    }

    pub(crate) const fn style(&self) -> Style {
        self.style
    }

    /// Prints text and a line feed to stdout.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.print(&screen::shown(text, self.style))
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.take_back();
        if self.stdout == Reader::Gone {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.stdout = Reader::Gone;
                Ok(())
            }
            Err(error) => {
                Err(
                    LocalError::because(Exit::Precondition, "cannot write the output", error)
                        .into(),
                )
            }
        }
    }

    /// Prints the outcome of a run: a string as text, anything else as JSON. A string is unchanged unless stdout is a
    /// terminal.
    pub(crate) fn outcome(&mut self, outcome: &Value) -> Result<(), Failure> {
        match (outcome, self.stdout) {
            (Value::String(text), Reader::Terminal) => self.line(text.trim_end_matches('\n')),
            (Value::String(text), Reader::Other | Reader::Gone) => {
                self.print(text.strip_suffix('\n').unwrap_or(text))
            }
            (
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_),
                _,
            ) => self.json(outcome),
        }
    }

    /// Prints one JSON document: indented and coloured for a person, on one line otherwise.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = match self.stdout {
            Reader::Terminal => serde_json::to_string_pretty(value),
            Reader::Other | Reader::Gone => serde_json::to_string(value),
        };
        self.document(&text.map_err(|error| malformed(&error))?)
    }

    /// Prints one JSON document on one line, as an element of a stream.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        self.document(&serde_json::to_string(value).map_err(|error| malformed(&error))?)
    }

    /// Prints a JSON text that is already one line, as an element of a stream.
    pub(crate) fn json_text(&mut self, line: &str) -> Result<(), Failure> {
        self.document(line)
    }

    fn document(&mut self, json: &str) -> Result<(), Failure> {
        match self.stdout {
            Reader::Terminal => self.print(&screen::json(json, self.style)),
            Reader::Other | Reader::Gone => self.print(json),
        }
    }

    /// Prints a note and a line feed to stderr.
    pub(crate) fn note(&mut self, text: &str) {
        self.take_back();
        self.write_stderr(&format!("{}\n", screen::shown(text, self.style)));
    }

    /// Makes a callback that reports an outage of the daemon on stderr while the output waits for data.
    pub(crate) fn outage_notifier(&self) -> OutageNotifier {
        let take_back = if self.rewrites { TAKE_BACK } else { "" };
        let tells = self.stderr != Reader::Gone;
        OutageNotifier::new(move || {
            if tells {
                // The write may fail: then no one reads stderr, and the verb continues.
                let note = "the daemon is away; waiting for it to come back";
                drop(writeln!(io::stderr().lock(), "{take_back}{note}"));
            }
        })
    }

    /// True if stderr shows progress.
    pub(crate) const fn shows_progress(&self) -> bool {
        self.rewrites
    }

    /// True if stderr ends with a text that may continue.
    pub(crate) const fn has_open_text(&self) -> bool {
        self.open_text
    }

    /// Shows progress on a terminal until the next line replaces it. The text is cut to one line, because only the last
    /// line of a wrapped text can be erased.
    pub(crate) fn progress(&mut self, text: &str) {
        self.take_back();
        if self.rewrites {
            let width = terminal_size::terminal_size_of(io::stderr());
            let most = width.map(|(width, _)| usize::from(width.0).saturating_sub(1));
            self.write_stderr(&screen::shown(&render::cut(text, most), self.style));
            self.pending = true;
        }
    }

    /// Prints more of a text to stderr. It continues where it stopped, unless something else was printed in between.
    pub(crate) fn print_text(&mut self, text: &str) {
        if std::mem::take(&mut self.pending) {
            self.write_stderr(TAKE_BACK);
        }
        self.write_stderr(&screen::shown(text, self.style));
        self.open_text = !text.ends_with('\n');
    }

    /// Prints the rest of a text and ends its line.
    pub(crate) fn end(&mut self, rest: &str) {
        let rest = rest.trim_end();
        if !rest.is_empty() {
            self.print_text(rest);
        }
        self.take_back();
    }

    /// True if one terminal shows both streams.
    pub(crate) fn is_one_screen(&self) -> bool {
        self.stdout == Reader::Terminal && self.stderr == Reader::Terminal
    }

    pub(crate) fn warning(&mut self, text: &str) {
        let label = self.style.yellow("warning:");
        self.note(&format!("{label} {text}"));
    }

    pub(crate) fn error(&mut self, text: &str) {
        let label = self.style.red("error:");
        self.note(&format!("{label} {text}"));
    }

    pub(crate) fn hint(&mut self, text: &str) {
        self.note(&format!("hint: {text}"));
    }

    /// Reports on stderr why a verb failed and how to fix it; with `--json` also as a document on stdout.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        if self.format == Format::Json {
            let told = ErrorDocument {
                error: ErrorBody {
                    reason: failure.reason(),
                    message: with_sources(failure),
                    hint: failure.hint(),
                },
            };
            // A failed write to stdout must not silence stderr.
            drop(self.json_line(&told));
        }
        self.error(&with_sources(failure));
        if let Some(hint) = failure.hint() {
            self.hint(&hint);
        } else if failure.exit() == Exit::Internal {
            self.hint("this is a fault in Rye; please report it, with `ryectl --version` and the daemon's log");
        }
    }

    /// Reports how one of several parts of a verb ended. Returns the exit code of all parts so far, which is that of
    /// the first failure.
    pub(crate) fn part(&mut self, exit: Exit, done: Result<(), Failure>) -> Exit {
        match done {
            Ok(()) => exit,
            Err(failure) => {
                self.failure(&failure);
                if exit == Exit::Done {
                    failure.exit()
                } else {
                    exit
                }
            }
        }
    }

    /// Erases a progress line, and ends the line of a text that may continue.
    fn take_back(&mut self) {
        if std::mem::take(&mut self.pending) {
            self.write_stderr(TAKE_BACK);
        }
        if std::mem::take(&mut self.open_text) {
            self.write_stderr("\n");
        }
    }

    /// Writes to stderr. A failed write is remembered and is no error.
    fn write_stderr(&mut self, text: &str) {
        if self.stderr == Reader::Gone {
            return;
        }
        let mut stderr = io::stderr().lock();
        let told = stderr
            .write_all(text.as_bytes())
            .and_then(|()| stderr.flush());
        if told.is_err() {
            self.stderr = Reader::Gone;
        }
    }
}

/// Reports a message of the daemon that cannot be printed because a field violates the contract.
fn malformed(error: &serde_json::Error) -> Failure {
    let what = error.to_string();
    Failure::Client(rye_client::Error::Malformed { what })
}
