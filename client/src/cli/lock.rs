//! The arguments of `lock`.

use clap::{Args, Subcommand};

use super::item_name::{ItemName, only_tool};

/// Verbs about locks.
#[derive(Debug, Subcommand)]
pub(crate) enum LockVerb {
    /// Lock tools as they are now, with your key
    ///
    /// The lock names the tool, what it runs through, the configuration it is given and all its files. From then on it runs only as long as
    /// all of them are the same. Files that nobody signed, such as data, are shown: the lock covers them.
    #[command(after_help = "Example:\n  ryectl lock create team/report")]
    Create(Tools),
    /// Tell whether tools are what they were locked as
    ///
    /// Without TOOL, all that have a lock. Ends with 1 if one is not, or has no lock that holds.
    #[command(after_help = "Example:\n  ryectl lock verify team/report")]
    Verify {
        /// The tools.
        #[arg(value_name = "TOOL", value_parser = only_tool)]
        tools: Vec<ItemName>,
    },
    /// List the locks of the project and of the user
    #[command(after_help = "Example:\n  ryectl lock ls --json")]
    Ls,
}

/// Tools to lock.
#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// The tools.
    #[arg(required = true, value_name = "TOOL", value_parser = only_tool)]
    pub(crate) tools: Vec<ItemName>,
}
