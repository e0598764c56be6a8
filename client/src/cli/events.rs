//! The arguments of `events`.

use clap::Args;

use super::run_name::RunName;

/// Events of a run, or of several.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Events {
    /// The run.
    #[arg(value_name = "RUN", required_unless_present = "all")]
    pub(crate) run: Option<RunName>,
    /// Also of all runs below it: first what each has done before, then what happens.
    #[arg(long, requires = "run")]
    pub(crate) tree: bool,
    /// Of all runs from now on; with --project, of the runs of that project.
    #[arg(long, conflicts_with = "run")]
    pub(crate) all: bool,
    /// Stay until the run, or the tree, has ended; with --all, until Ctrl-C.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Also tell what the model of a thread says and what tools print, as it comes: on stderr, with --json as objects `{"delta": …}` of the stream.
    #[arg(long, requires = "follow", conflicts_with_all = ["tree", "all"])]
    pub(crate) deltas: bool,
    /// Begin behind this event: its `cursor`, or its number in the run.
    #[arg(
        long,
        value_name = "CURSOR",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) from: String,
}
