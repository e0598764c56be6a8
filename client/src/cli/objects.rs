//! The arguments of `cache` and `objects`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Verbs about the cache of node results of the project.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheVerb {
    /// List what it holds
    #[command(after_help = "Example:\n  ryectl cache ls --json")]
    Ls,
    /// Drop entries, so that their nodes run again
    #[command(after_help = "Examples:\n  ryectl cache drop 9f86d081\n  ryectl cache drop --all")]
    Drop(Drop),
}

/// Entries to drop.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Drop {
    /// Keys as `cache ls` shows them, or beginnings that no other key has.
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Every entry.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Verbs about the objects of the project.
#[derive(Debug, Subcommand)]
pub(crate) enum ObjectsVerb {
    /// Print an object by its hash, as JSON
    #[command(
        after_help = "Example:\n  ryectl objects get 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 | jq .kind"
    )]
    Get {
        /// SHA-256 in hex, as receipts, references and other objects name it.
        #[arg(value_name = "HASH")]
        hash: String,
    },
    /// Write all objects as single files, `ab/cd/HASH.json`, without the daemon
    #[command(after_help = "Example:\n  ryectl objects export ./objects")]
    Export {
        /// Directory of the files; it is made if it is missing.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}
