//! The arguments of `test`.

use std::path::PathBuf;

use clap::Args;

/// Which tests to run, and how.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// A folder or a file of tests, or a tool that has one; all below `.ai/tools` of the project unless given.
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Only cases whose tool or name holds this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// How many cases run at once (default: one for each processor, at most 4).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: Option<u16>,
    /// Also write the results to this file, as the XML that build servers read.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Keep the directories in which the cases ran, and tell where they are.
    #[arg(long)]
    pub(crate) keep: bool,
}
