//! Arguments of verbs about threads.

use clap::{Args, Subcommand};

use super::graph::{Attach, Given, Run, RunOptions};
use super::item_name::{ItemName, directive_name, directives};
use super::run_name::RunName;

/// Verbs about threads.
#[derive(Debug, Subcommand)]
pub(crate) enum ThreadVerb {
    /// Have a model work on a directive, and stay with it until it ends
    ///
    /// Shows on stderr what the model says, as it says it, and a line per call of a tool, and ends with what it cost. stdout holds only the outputs
    /// of the directive, or the last text if it declares none. Ctrl-C leaves; the run continues.
    #[command(
        after_help = "Examples:\n  ryectl thread run rye/examples/summarize_file -i path=README.md\n  ryectl thread run app/review --model fast --limit turns=5 --limit spend=0.10"
    )]
    Run(ThreadRun),
    /// Check directives without running them
    ///
    /// Prints a line per finding. Ends with 1 if there are errors. With --json one directive is a document; of several each is a line.
    #[command(
        after_help = "Examples:\n  ryectl thread validate rye/examples/summarize_file\n  ryectl thread validate 'app/*'"
    )]
    Validate(Directives),
    /// Show what a thread of a directive would begin with
    ///
    /// Its model and what that costs, its limits, the tools that the model may call, what would be held for the first call, and the
    /// prompt, with the knowledge as it is now. Nothing runs. What `thread run` would refuse is refused.
    #[command(
        after_help = "Example:\n  ryectl thread show rye/examples/summarize_file -i path=README.md"
    )]
    Show(ThreadShow),
    /// Say something to a thread that has not ended
    ///
    /// Its model is told before its next call; a thread that is about to end takes another turn for it. One that is suspended is told
    /// when it is resumed.
    #[command(
        after_help = "Example:\n  ryectl thread say app-review-1767225600-abcdefghij 'Leave the tests as they are.'"
    )]
    Say(Say),
}

/// What is said to a thread.
#[derive(Debug, Args)]
pub(crate) struct Say {
    /// The thread.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    /// What its model is told.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: String,
}

/// A thread to start.
#[derive(Debug, Args)]
pub(crate) struct ThreadRun {
    #[command(flatten)]
    pub(crate) directive: OneDirective,
    #[command(flatten)]
    pub(crate) given: Given,
    #[command(flatten)]
    pub(crate) attach: Attach,
}

/// A thread to look at.
#[derive(Debug, Args)]
pub(crate) struct ThreadShow {
    #[command(flatten)]
    pub(crate) directive: OneDirective,
    #[command(flatten)]
    pub(crate) asked: RunOptions,
}

/// Directives to check.
#[derive(Debug, Args)]
pub(crate) struct Directives {
    /// The directives: ids, paths, or patterns of ids such as `app/*`.
    #[arg(value_name = "DIRECTIVE|GLOB", value_parser = directives, required = true)]
    pub(crate) items: Vec<ItemName>,
    /// End with 1 if there are warnings, too.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// One directive.
#[derive(Debug, Args)]
pub(crate) struct OneDirective {
    /// The directive.
    #[arg(value_name = "DIRECTIVE", value_parser = directive_name)]
    pub(crate) item: ItemName,
}

impl From<ThreadRun> for Run {
    fn from(run: ThreadRun) -> Self {
        Self {
            item: run.directive.item,
            given: run.given,
            resume: None,
            attach: run.attach,
        }
    }
}
