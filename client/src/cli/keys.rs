//! The arguments of `key`, `trust`, `untrust`, `sign` and `verify`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Verbs about keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Make your signing key
    #[command(after_help = "Example:\n  ryectl key generate")]
    Generate,
    /// Show your signing key's public half
    #[command(after_help = "Example:\n  ryectl key show > me.pem")]
    Show,
    /// List the keys that are trusted
    #[command(after_help = "Example:\n  ryectl key list --json")]
    List,
    /// Trust a key: items signed with it may run
    ///
    /// Your word counts more than the file's own signature.
    #[command(after_help = "Example:\n  ryectl key trust colleague.pem --owner ana")]
    Trust {
        /// A public key as PEM, or a trusted-key TOML.
        file: PathBuf,
        /// Whose key it is; without it what the file says, else `local`.
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
        /// Let its signatures count also where they leave out parts of a file.
        #[arg(long)]
        accept_partial: bool,
    },
    /// Take a key out of your trusted keys
    #[command(after_help = "Example:\n  ryectl key untrust 0123456789abcdef")]
    Untrust {
        /// Fingerprint of the key.
        fingerprint: String,
    },
}

/// A directory to trust, or to trust no longer.
#[derive(Debug, Args)]
pub(crate) struct Directory {
    /// The project, or a directory in it.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Items to sign or verify.
#[derive(Debug, Args)]
pub(crate) struct Targets {
    /// An item (`ID`, `TYPE:ID` or its path), or a pattern of items.
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
}
