//! What reaches the user: data on stdout, everything else on stderr.
//!
//! **Owns** both streams, and lets nothing through to them that is not [`screen::shown`]; JSON for programs stays as it is.
//! Whoever reads may stop reading: a broken pipe is remembered and the rest is not written, so that a verb still ends with
//! its own exit code.

use std::io::{self, IsTerminal as _, Write as _};

use rye_client::client::Teller;
use rye_client::environment::Environment;
use rye_client::exit::Exit;
use rye_core::error::with_sources;
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::render::{self, Style, screen};

/// Takes back the line that stands on a terminal.
const TAKE_BACK: &str = "\r\u{1b}[2K";

/// In what form data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Format {
    /// The one that `--json` selects.
    pub(crate) const fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Who reads a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A person at a terminal.
    Terminal,
    /// A file, a pipe or a program.
    Other,
    /// Nobody any more.
    Gone,
}

/// An error as programs read it.
#[derive(Debug, Serialize)]
struct ErrorDocument<'a> {
    error: Told<'a>,
}

#[derive(Debug, Serialize)]
struct Told<'a> {
    reason: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// The two streams.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    stdout: Reader,
    stderr: Reader,
    style: Style,
    /// Whether stderr is a terminal that can take back a line.
    rewrites: bool,
    /// Whether a line stands on stderr that is to be taken back.
    pending: bool,
    /// Whether a text stands there that may continue.
    speaking: bool,
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
            speaking: false,
        }
    }

    /// In what form data is printed.
    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    /// Who reads stdout.
    pub(crate) const fn reader(&self) -> Reader {
        self.stdout
    }

    /// How many columns the terminal has that stdout is; none elsewhere, where nothing is cut.
    pub(crate) fn width(&self) -> Option<usize> {
        if self.stdout != Reader::Terminal {
            return None;
        }
        let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
        Some(usize::from(width.0))
    }

    /// Whether text may be coloured.
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

    /// Prints what a run came to: a text as text, as it is where no screen shows it; anything else as JSON.
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

    /// Prints an element of a stream that is JSON on one line already.
    pub(crate) fn json_text(&mut self, line: &str) -> Result<(), Failure> {
        self.document(line)
    }

    fn document(&mut self, json: &str) -> Result<(), Failure> {
        match self.stdout {
            Reader::Terminal => self.print(&screen::json(json, self.style)),
            Reader::Other | Reader::Gone => self.print(json),
        }
    }

    /// Tells the user something on stderr.
    pub(crate) fn note(&mut self, text: &str) {
        self.take_back();
        self.tell(&format!("{}\n", screen::shown(text, self.style)));
    }

    /// Tells that the daemon is away, from wherever that is noticed while the output is waiting for data.
    pub(crate) fn teller(&self) -> Teller {
        let take_back = if self.rewrites { TAKE_BACK } else { "" };
        let tells = self.stderr != Reader::Gone;
        Teller::new(move || {
            if tells {
                // That nobody reads it is nothing to stop for.
                let note = "the daemon is away; waiting for it to come back";
                drop(writeln!(io::stderr().lock(), "{take_back}{note}"));
            }
        })
    }

    /// Whether somebody sees what happens while it does.
    pub(crate) const fn shows_progress(&self) -> bool {
        self.rewrites
    }

    /// Whether a text stands there that may continue.
    pub(crate) const fn is_speaking(&self) -> bool {
        self.speaking
    }

    /// Shows what happens, until the next line takes its place. Only a terminal sees it, and as much as fits on one line: of one that
    /// went on below, a part would stay.
    pub(crate) fn progress(&mut self, text: &str) {
        self.take_back();
        if self.rewrites {
            let width = terminal_size::terminal_size_of(io::stderr());
            let most = width.map(|(width, _)| usize::from(width.0).saturating_sub(1));
            self.tell(&screen::shown(&render::cut(text, most), self.style));
            self.pending = true;
        }
    }

    /// Tells more of a text, which continues where it stopped unless something else was told in between.
    pub(crate) fn say(&mut self, text: &str) {
        if std::mem::take(&mut self.pending) {
            self.tell(TAKE_BACK);
        }
        self.tell(&screen::shown(text, self.style));
        self.speaking = !text.ends_with('\n');
    }

    /// Tells the rest of a text, which ends with it.
    pub(crate) fn end(&mut self, rest: &str) {
        let rest = rest.trim_end();
        if !rest.is_empty() {
            self.say(rest);
        }
        self.take_back();
    }

    /// Whether one terminal shows both streams.
    pub(crate) fn is_one_screen(&self) -> bool {
        self.stdout == Reader::Terminal && self.stderr == Reader::Terminal
    }

    /// Tells a warning.
    pub(crate) fn warning(&mut self, text: &str) {
        let label = self.style.yellow("warning:");
        self.note(&format!("{label} {text}"));
    }

    /// Tells an error.
    pub(crate) fn error(&mut self, text: &str) {
        let label = self.style.red("error:");
        self.note(&format!("{label} {text}"));
    }

    /// Prints a fix.
    pub(crate) fn hint(&mut self, text: &str) {
        self.note(&format!("hint: {text}"));
    }

    /// Tells why a verb failed, and the fix; programs read it on stdout.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        if self.format == Format::Json {
            let told = ErrorDocument {
                error: Told {
                    reason: failure.reason(),
                    message: with_sources(failure),
                    hint: failure.hint(),
                },
            };
            // A stdout that takes nothing is no reason to be silent on stderr.
            drop(self.json_line(&told));
        }
        self.error(&with_sources(failure));
        if let Some(hint) = failure.hint() {
            self.hint(&hint);
        } else if failure.exit() == Exit::Internal {
            self.hint("this is a fault in Rye; please report it, with `ryectl --version` and the daemon's log");
        }
    }

    /// Reports how one of several parts of a verb ended, and returns the exit code of all so far: the first failure names it.
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

    /// Clears the way for something else: a line is taken back, a text ends.
    fn take_back(&mut self) {
        if std::mem::take(&mut self.pending) {
            self.tell(TAKE_BACK);
        }
        if std::mem::take(&mut self.speaking) {
            self.tell("\n");
        }
    }

    /// Writes to stderr; that nobody reads it is nothing to stop for.
    fn tell(&mut self, text: &str) {
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

/// A message of the daemon that cannot be printed because a field of it is not what the contract says.
fn malformed(error: &serde_json::Error) -> Failure {
    let what = error.to_string();
    Failure::Client(rye_client::Error::Malformed { what })
}
