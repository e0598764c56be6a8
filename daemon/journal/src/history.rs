//! The history: ranges of the log, each sealed as a *section*, with the events by run, compressed, and the final records.
//!
//! **Owns** the files `<n>.his` in its directory. A file is a row of frames ([`rye_core::frame`]); its segment id is 2^63 + n. A
//! section is some blocks of events, records and index entries, and at last its directory; all have the position of its last commit,
//! and as durable the position before its first. A section counts once its directory is whole. A file that is full ends with a table
//! of its directories. The payload of a frame is one byte (0: plain, 1: zstd) and JSON lines, of which the first names the form.
//!
//! **Never** opens a file of a project, signs, or knows what an event means. **Order**: sections are appended in the order of the log
//! by one caller at a time; a reader finds a section after it is synced. Readers hold the file of their section and nothing else, so
//! neither the appender nor a file that is replaced disturbs them. **Failure** to append changes nothing that was there before. Damage
//! is confined: of a block to the runs in it, of a directory to its section, of a table to the speed of the next start.
//!
//! **Compaction** writes full files again without the runs that were removed. Positions stay covered: a file without living runs becomes
//! one section without runs and is not unlinked, for else it would look like a lost one. The removals in a directory stay as
//! long as a section has one of their runs.
//!
//! One descriptor is open for each file of 64 MiB.

mod faults;
mod payload;
mod removal;

mod error;
mod file;

mod directory;
mod section;
mod table;

mod dead_runs;
mod frames;
mod scan;
mod usage;

mod block;

mod reader;
mod rewrite;
mod writer;

mod load;

mod store;

mod compact;

#[cfg(test)]
mod tests;

pub use compact::{Compacted, Scope};
pub use directory::{Directory, RunEntry};
pub use error::Error;
pub use file::FileEnd;
pub use reader::{SectionReader, SectionRef};
pub use removal::{Removal, RemovedRun};
pub use section::{Event, RunPart, Section};
pub use store::{Found, Options, Store};
