//! The handle on a journal, and its threads.

mod handle;

mod accounts;
mod export_source;
mod listing;
mod long;
mod removal;
mod steps;
mod threads;

pub use accounts::AccountRow;
pub use export_source::{ExportSource, Exported, FoundRun, Money, PublishedRun, Touched};
pub use handle::Journal;
pub use listing::{Filter, Page, page_token};
pub use steps::{EndedItems, StepLine, Walked};
pub use threads::Recovered;
