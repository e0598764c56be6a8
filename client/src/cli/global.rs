//! The options that every verb takes.

use std::path::PathBuf;

use clap::Args;
use clap::builder::FalseyValueParser;

/// Options of every verb.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Global {
    /// Use only the daemon on this socket.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "RYE_SOCKET",
        hide_env_values = true
    )]
    pub(crate) socket: Option<PathBuf>,
    /// Use the daemon with this state directory (default: ~/.local/state/rye).
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "RYE_STATE_DIR",
        hide_env_values = true
    )]
    pub(crate) state_dir: Option<PathBuf>,
    /// The project (default: the nearest parent directory with a `.ai`, else the current directory).
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "RYE_PROJECT",
        hide_env_values = true
    )]
    pub(crate) project: Option<PathBuf>,
    /// Fail instead of starting a daemon when none runs.
    #[arg(long, global = true, env = "RYE_NO_AUTOSTART", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) no_autostart: bool,
    /// Print JSON: one document, or one object a line for streams.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}
