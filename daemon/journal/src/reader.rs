//! Readers of runs and their events, from memory, log and history.

mod run_store;
mod spot;

mod event_store;

mod run_pages;

mod range;

mod cursor;

mod live;
mod transcript;

pub use cursor::{Cursor, Of, Read, Sees, Since, Until};
pub(crate) use event_store::EventStore;
pub use live::{Live, Shown};
pub(crate) use run_pages::Source;
pub(crate) use run_store::RunStore;
pub use spot::Spot;
pub use transcript::{Extract, Piece, Reader, THREADS, Verdict, WrittenLine};
