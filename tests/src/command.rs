//! Commands and their outcomes.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;

use serde_json::Value;

use crate::{binaries, signals};

/// Makes a command; tests make none elsewhere. The command finds the terminal's signals with their default disposition.
#[expect(
    clippy::disallowed_methods,
    reason = "tests start the programs they test"
)]
pub fn program(path: impl AsRef<OsStr>) -> Command {
    signals::restore();
    Command::new(path)
}

/// Search path of programs, unless python3 is elsewhere.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Makes a command in `directory` whose environment is `PATH`, `HOME` and `LANG`.
pub fn in_clean_environment(path: impl AsRef<OsStr>, home: &Path, directory: &Path) -> Command {
    let mut command = program(path);
    command
        .env_clear()
        .env("PATH", search_path())
        .env("HOME", home)
        .env("LANG", "C.UTF-8")
        .current_dir(directory);
    command
}

/// Returns [`PATH`], preceded by the directory of the real python3 if the path has none. A version manager's shim on
/// the caller's own `PATH` would start a shell for each step.
pub(crate) fn search_path() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        if PATH
            .split(':')
            .any(|directory| Path::new(directory).join("python3").exists())
        {
            return PATH.to_owned();
        }
        let asked = program("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        let found = asked.expect("the tests need python3");
        let found = String::from_utf8(found.stdout)
            .expect("python3 lies on a path that can be written down");
        let directory = Path::new(found.trim()).parent().map(Path::display);
        format!("{}:{PATH}", directory.expect("python3 lies in a directory"))
    })
}

/// A call of `ryectl` that has not been made yet.
#[derive(Debug)]
#[must_use = "a command does nothing until it is run"]
pub struct Ryectl {
    command: Command,
    stdin: Vec<u8>,
}

impl Ryectl {
    pub(crate) fn new(home: &Path, directory: &Path) -> Self {
        Self::at(&binaries::ryectl(), home, directory)
    }

    /// Makes a call of the `ryectl` at `path`, with `home`, in `directory`.
    pub fn at(path: &Path, home: &Path, directory: &Path) -> Self {
        Self {
            command: in_clean_environment(path, home, directory),
            stdin: Vec::new(),
        }
    }

    /// Adds arguments, split at white space.
    pub fn words(mut self, words: &str) -> Self {
        self.command.args(words.split_whitespace());
        self
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub fn within(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn settings<'s>(
        mut self,
        settings: impl Iterator<Item = (&'static str, &'s str)>,
    ) -> Self {
        self.command.envs(settings);
        self
    }

    pub fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Runs as another user, without supplementary groups.
    pub fn as_user(mut self, uid: u32) -> Self {
        self.command.uid(uid).gid(uid);
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Runs the command to its end.
    pub fn run(mut self) -> Outcome {
        let shown = format!("{:?}", self.command);
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ryectl starts");
        let mut stdin = child.stdin.take().expect("it was piped");
        let output = thread::scope(|scope| {
            let bytes = self.stdin;
            scope.spawn(move || {
                // A command may close its input without reading it.
                drop(stdin.write_all(&bytes));
            });
            child.wait_with_output().expect("its output can be read")
        });
        Outcome::new(shown, output.status, output.stdout, output.stderr)
    }

    /// Runs the command and asserts exit code 0.
    ///
    /// # Panics
    /// If the exit code is another one.
    pub fn ok(self) -> Outcome {
        self.run().code(0)
    }

    /// Starts the command with a pipe for its standard output. The caller ends it.
    pub fn spawn(mut self) -> Child {
        self.command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ryectl starts")
    }

    /// Returns the plain command, for uses that the other methods do not cover.
    pub fn into_command(self) -> Command {
        self.command
    }
}

/// Outcome of a command. Each assertion returns it, and shows all of it on failure.
#[must_use = "assert what came of the command, at least its exit code"]
pub struct Outcome {
    command: String,
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(8000)]).into_owned();
        write!(
            f,
            "{}\n--- {}\n--- stdout\n{}\n--- stderr\n{}",
            self.command,
            self.status,
            text(&self.stdout),
            text(&self.stderr)
        )
    }
}

impl Outcome {
    pub(crate) fn new(
        command: String,
        status: ExitStatus,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    ) -> Self {
        Self {
            command,
            status,
            stdout,
            stderr,
        }
    }

    /// Waits for `child`, which [`Ryectl::spawn`] started.
    pub fn of(child: Child) -> Self {
        let output = child.wait_with_output().expect("its output can be read");
        Self::new(
            "ryectl …".to_owned(),
            output.status,
            output.stdout,
            output.stderr,
        )
    }

    /// Asserts the exit code.
    ///
    /// # Panics
    /// If it ended with another code or by a signal.
    pub fn code(self, expected: i32) -> Self {
        self.code_among(&[expected])
    }

    /// Asserts that the exit code is one of `expected`.
    ///
    /// # Panics
    /// If it ended with another code or by a signal.
    pub fn code_among(self, expected: &[i32]) -> Self {
        let code = self.status.code();
        assert!(
            code.is_some_and(|code| expected.contains(&code)),
            "the exit code is not among {expected:?}: {self:?}"
        );
        self
    }

    /// Asserts that `signal` ended it.
    ///
    /// # Panics
    /// If it ended in another way.
    pub fn signal(self, signal: nix::sys::signal::Signal) -> Self {
        let expected = signal_number(signal);
        assert_eq!(
            self.status.signal(),
            Some(expected),
            "not ended by {signal}: {self:?}"
        );
        self
    }

    /// Asserts that standard error contains each of `parts`.
    ///
    /// # Panics
    /// If one is missing.
    pub fn stderr_contains(self, parts: &[&str]) -> Self {
        let stderr = self.stderr();
        for part in parts {
            assert!(
                stderr.contains(part),
                "stderr does not say `{part}`: {self:?}"
            );
        }
        self
    }

    /// Asserts that standard error does not contain `part`.
    ///
    /// # Panics
    /// If it does.
    pub fn stderr_lacks(self, part: &str) -> Self {
        assert!(
            !self.stderr().contains(part),
            "stderr says `{part}`: {self:?}"
        );
        self
    }

    /// Asserts that standard output contains each of `parts`.
    ///
    /// # Panics
    /// If one is missing.
    pub fn prints(self, parts: &[&str]) -> Self {
        let stdout = self.stdout();
        for part in parts {
            assert!(
                stdout.contains(part),
                "stdout does not say `{part}`: {self:?}"
            );
        }
        self
    }

    /// Asserts that standard output is empty.
    ///
    /// # Panics
    /// If it is not.
    pub fn prints_nothing(self) -> Self {
        assert!(
            self.stdout.is_empty(),
            "something stands on stdout: {self:?}"
        );
        self
    }

    /// Returns the exit code, or the signal that ended it.
    pub fn exit(&self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => code.to_string(),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        }
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Parses standard output as one JSON document.
    ///
    /// # Panics
    /// If it is not one JSON document.
    pub fn json(&self) -> Value {
        let parsed = serde_json::from_slice(&self.stdout);
        assert!(
            parsed.is_ok(),
            "stdout is not one JSON document ({parsed:?}): {self:?}"
        );
        parsed.unwrap_or_default()
    }

    /// Parses each line of standard output as a JSON document.
    ///
    /// # Panics
    /// If a line is not JSON.
    pub fn json_lines(&self) -> Vec<Value> {
        self.stdout()
            .lines()
            .map(|line| {
                let parsed = serde_json::from_str(line);
                assert!(parsed.is_ok(), "`{line}` is not JSON: {self:?}");
                parsed.unwrap_or_default()
            })
            .collect()
    }

    /// Returns the only line of standard output.
    ///
    /// # Panics
    /// If there is not exactly one line.
    pub fn line(&self) -> String {
        let stdout = self.stdout();
        assert_eq!(stdout.lines().count(), 1, "not one line: {self:?}");
        stdout.trim_end().to_owned()
    }
}

pub(crate) fn signal_number(signal: nix::sys::signal::Signal) -> i32 {
    #[expect(
        clippy::as_conversions,
        reason = "the enum is `repr(i32)` and has no other way out"
    )]
    let number = signal as i32;
    number
}
