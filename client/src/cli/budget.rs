//! Arguments of verbs about budgets.

use clap::{Args, Subcommand};
use rye_core::money::Usd;

use super::run_name::RunName;
use super::runs::OneRun;
use super::values::usd;

/// Verbs about budgets.
#[derive(Debug, Subcommand)]
pub(crate) enum BudgetVerb {
    /// Show what a run may still spend, and what those above it may
    ///
    /// A run spends from its own limit; without one, from the next limit above. Ends with a line that says who refuses first.
    #[command(after_help = "Example:\n  ryectl budget show app-deploy-1767225600-abcdefghij")]
    Show(OneRun),
    /// Show what a run and all below it have spent
    #[command(
        after_help = "Example:\n  ryectl budget tree app-deploy-1767225600-abcdefghij --json"
    )]
    Tree(OneRun),
    /// Let a run spend more
    ///
    /// The new limit is the whole amount, what is used already included. Ends with 5 if those above have too little for it.
    #[command(
        after_help = "Examples:\n  ryectl budget raise app-deploy-1767225600-abcdefghij --spend 2.50\n  ryectl budget raise app-deploy-1767225600-abcdefghij --spend 2.50 --through"
    )]
    Raise(RaiseBudget),
}

/// A budget to raise.
#[derive(Debug, Args)]
pub(crate) struct RaiseBudget {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    /// The most it may spend from now on, itself and all below it.
    #[arg(long, value_name = "USD", value_parser = usd, allow_negative_numbers = true)]
    pub(crate) spend: Usd,
    /// Raise those above it too that have too little for it.
    #[arg(long)]
    pub(crate) through: bool,
}
