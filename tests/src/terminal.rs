//! A real terminal (tmux) that runs commands of a world and whose screen is read.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::{in_clean_environment, search_path};
use crate::until::until;
use crate::{World, binaries};

/// Settings of every terminal: no status line, and a long history.
const SETTINGS: &str = "set -g status off\nset -g history-limit 20000\n";
/// Text that is shown after a command, before its exit code.
const END: &str = "-- ended with ";

/// Terminals of one size, each with one command. A drop ends the commands.
#[derive(Debug)]
pub struct Terminal<'a> {
    world: &'a World,
    columns: u16,
    rows: u16,
}

/// A command that runs or ran in a terminal.
#[derive(Debug)]
pub struct Screen<'a> {
    terminal: &'a Terminal<'a>,
    session: String,
}

impl World {
    /// Makes terminals of this size in the project. Returns `None`, and reports it, if the machine has no tmux.
    ///
    /// # Panics
    /// In CI, if tmux is missing.
    pub fn terminal(&self, columns: u16, rows: u16) -> Option<Terminal<'_>> {
        let terminal = Terminal {
            world: self,
            columns,
            rows,
        };
        let there = terminal.tmux(&["-V"]).is_some();
        assert!(
            there || std::env::var_os("CI").is_none(),
            "tmux is missing: `.ci/run` installs it"
        );
        std::fs::write(terminal.settings(), SETTINGS).expect("the world is ours");
        there.then_some(terminal)
    }
}

impl Terminal<'_> {
    fn settings(&self) -> std::path::PathBuf {
        self.world.root().join("tmux.conf")
    }

    /// Returns the output of `tmux` with the arguments `words`, or `None` if it fails or is missing.
    fn tmux(&self, words: &[&str]) -> Option<String> {
        let socket = self.world.root().join(format!("tmux-{}", self.columns));
        let beside = binaries::ryectl();
        let beside = beside.parent().unwrap_or(Path::new("/"));
        let mut path = OsString::from(beside);
        path.push(":");
        path.push(search_path());
        let mut command: Command =
            in_clean_environment("tmux", &self.world.home(), &self.world.project());
        let output = command
            .env("PATH", path)
            .env("RYE_STATE_DIR", self.world.state())
            .envs(self.world.settings())
            .arg("-u")
            .arg("-S")
            .arg(socket)
            .arg("-f")
            .arg(self.settings())
            .args(words)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    pub const fn columns(&self) -> u16 {
        self.columns
    }

    /// Starts `command`, a line for a shell, in a terminal of its own.
    ///
    /// # Panics
    /// If the terminal cannot be made.
    pub fn start(&self, command: &str) -> Screen<'_> {
        let (columns, rows) = (self.columns.to_string(), self.rows.to_string());
        // The session stays open until it is ended, so that its screen can be read.
        let line = format!("{command}; echo '{END}'$?; exec cat");
        let words = [
            "new-session",
            "-d",
            "-P",
            "-F",
            "#{session_id}",
            "-x",
            &columns,
            "-y",
            &rows,
            "sh",
            "-c",
            &line,
        ];
        let session = self.tmux(&words).expect("tmux makes a session");
        Screen {
            terminal: self,
            session: session.trim().to_owned(),
        }
    }

    /// Runs `command` to its end. Returns the screen with its history.
    pub fn run(&self, command: &str) -> String {
        let screen = self.start(command);
        screen.ended()
    }
}

impl Screen<'_> {
    /// Returns the screen with its history. Wrapped lines are joined.
    pub fn text(&self) -> String {
        let target = format!("{}:", self.session);
        let words = ["capture-pane", "-p", "-J", "-S", "-", "-t", &target];
        let text = self.terminal.tmux(&words).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// Returns the screen with its history, line by line as displayed.
    pub fn lines(&self) -> Vec<String> {
        let target = format!("{}:", self.session);
        let words = ["capture-pane", "-p", "-S", "-", "-t", &target];
        let text = self.terminal.tmux(&words).unwrap_or_default();
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    /// Waits until the screen shows `part`. Returns the screen.
    ///
    /// # Panics
    /// If the text does not appear in time.
    pub fn shows(&self, part: &str) -> String {
        until(&format!("`{part}` on the screen"), || {
            let text = self.text();
            text.contains(part).then_some(text)
        })
    }

    /// Waits for the end of the command. Returns the screen, with the exit code last.
    ///
    /// # Panics
    /// If the command does not end in time.
    pub fn ended(&self) -> String {
        // The shell's own line is never shown, so a match is output. The shell writes [`END`] and the code in one
        // piece.
        until("the end of the command", || {
            let text = self.text();
            let (_, code) = text.rsplit_once(END)?;
            let whole = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_digit());
            whole.then_some(text)
        })
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // If no command was started, no server runs.
        drop(self.tmux(&["kill-server"]));
    }
}
