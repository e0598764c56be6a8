//! The daemon's own log: for operators, on standard error. Events of runs are not logged here; they are the product.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Starts the log of this process. Must precede all log output; a second call has no effect.
pub fn start(log: &Log) {
    // The library of the Model Context Protocol would log the messages of servers.
    let filter = EnvFilter::new(format!("{},rmcp=off", log.level.as_str()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let to_people = match log.format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => io::stderr().is_terminal(),
    };
    let started = if to_people {
        builder.with_ansi(io::stderr().is_terminal()).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
    if let Err(error) = started {
        tracing::debug!(%error, "the log is already started");
    }
}
