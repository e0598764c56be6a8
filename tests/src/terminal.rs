//! A real terminal (tmux), in which commands of a world run and whose screen is read.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::{in_clean_environment, search_path};
use crate::until::until;
use crate::{World, binaries};

/// What every terminal is set up with: no line of its own, and room for what scrolls away.
const SETTINGS: &str = "set -g status off\nset -g history-limit 20000\n";
/// What is shown when a command has ended, before its exit code.
const END: &str = "-- ended with ";

/// Terminals of one size, each with one command. When it is dropped, whatever runs in them ends.
#[derive(Debug)]
pub struct Terminal<'a> {
    world: &'a World,
    columns: u16,
    rows: u16,
}

/// A command that runs in a terminal, or has run there.
#[derive(Debug)]
pub struct Screen<'a> {
    terminal: &'a Terminal<'a>,
    session: String,
}

impl World {
    /// A terminal of this size in the project; `None` on a machine without tmux, which is reported.
    ///
    /// # Panics
    /// In CI, which has to have it.
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

    /// What `tmux` answers to `words`; `None` if it fails, or is not there.
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

    /// How many columns it has.
    pub const fn columns(&self) -> u16 {
        self.columns
    }

    /// Starts `command`, a line for a shell, in a terminal of its own.
    ///
    /// # Panics
    /// If the terminal cannot be made.
    pub fn start(&self, command: &str) -> Screen<'_> {
        let (columns, rows) = (self.columns.to_string(), self.rows.to_string());
        // It stays until it is ended, so that its screen can be read.
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

    /// Runs `command` to its end; what stands on the screen then, with what has scrolled away.
    pub fn run(&self, command: &str) -> String {
        let screen = self.start(command);
        screen.ended()
    }
}

impl Screen<'_> {
    /// What stands on the screen, with what has scrolled away. A line that goes on below is one line.
    pub fn text(&self) -> String {
        let target = format!("{}:", self.session);
        let words = ["capture-pane", "-p", "-J", "-S", "-", "-t", &target];
        let text = self.terminal.tmux(&words).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// The same, line by line of the screen.
    pub fn lines(&self) -> Vec<String> {
        let target = format!("{}:", self.session);
        let words = ["capture-pane", "-p", "-S", "-", "-t", &target];
        let text = self.terminal.tmux(&words).unwrap_or_default();
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    /// Waits until the screen shows `part`; the screen then.
    ///
    /// # Panics
    /// If it never does.
    pub fn shows(&self, part: &str) -> String {
        until(&format!("`{part}` on the screen"), || {
            let text = self.text();
            text.contains(part).then_some(text)
        })
    }

    /// Waits for the end of the command; the screen then, with its exit code last.
    ///
    /// # Panics
    /// If it never ends.
    pub fn ended(&self) -> String {
        // The line of the shell itself is never shown, so that this is its output; the code follows in one piece with it.
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
        // Where no command was started, no server runs.
        drop(self.tmux(&["kill-server"]));
    }
}
