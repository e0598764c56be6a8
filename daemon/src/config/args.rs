//! Command line of `ryed`.

use std::os::fd::RawFd;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use serde::{Deserialize, Serialize};

/// The daemon of Rye: runs signed tools and graphs, and keeps the record.
#[derive(Debug, Clone, Default, Parser)]
#[expect(
    clippy::doc_markdown,
    reason = "clap prints these comments as they stand"
)]
#[command(
    name = "ryed",
    version,
    after_help = "Examples:
  ryed                                     start with the user's settings
  ryed --state-dir /tmp/rye-try            a daemon of its own, with its own socket
  ryed --config ./ryed.yaml --print-config show what would be in force, and why
  ryed rebuild --project ~/code/app        write the files of its runs again

A setting comes from its flag, else its environment variable, else the settings file, else its default.
--print-config lists all of them with their variables."
)]
pub struct Args {
    /// Settings file [default: $XDG_CONFIG_HOME/rye/ryed.yaml if it is there] [env: RYE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the settings in force as YAML, with the origin of each, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Directory of the daemon's log, store and keys [default: $XDG_STATE_HOME/rye] [env: RYE_STATE_DIR]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Socket to serve on [default: $XDG_RUNTIME_DIR/rye/ryed.sock, or ryed.sock in a --state-dir] [env: RYE_SOCKET]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Use a copy of a state directory as one of its own: nothing in it resumes by itself
    #[arg(long)]
    pub adopt_copy: bool,
    /// How log lines look; auto: human on a terminal, JSON otherwise [env: RYE_LOG_FORMAT]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What is logged: error, warn, info, debug, trace, or a filter such as `ryed::journal=debug` [env: RYE_LOG_LEVEL]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What `ryed` does, if it does not serve.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Write the files of all runs of projects again that are missing or differ from the record, and exit
    ///
    /// A daemon that runs on the state directory does it; if none does, this program takes the state directory for as long as it lasts.
    #[command(after_help = "Example:\n  ryed rebuild --project ~/code/app")]
    Rebuild {
        /// Directories of projects
        #[arg(long = "project", value_name = "DIR", required = true, num_args = 1..)]
        projects: Vec<PathBuf>,
    },
    /// Keep a process that survives the daemon. Only the daemon starts it.
    #[command(hide = true)]
    Shim {
        /// Descriptors that the daemon has opened.
        plan: RawFd,
        ready: RawFd,
        lock: RawFd,
    },
}

/// Use of a means of containment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Containment {
    /// If the host allows it.
    #[default]
    Auto,
    Off,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}
