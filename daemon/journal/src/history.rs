//! The history: ranges of the log, each sealed as a *section* with its events grouped by run and compressed, and with
//! the final records of runs.
//!
//! **Owns** the files `<n>.his` in its directory. A file is a sequence of frames ([`rye_core::frame`]) with the segment
//! id 2^63 + n. A section consists of blocks of events, records and index entries, followed by its directory. All its
//! frames have the position of its last commit as LSN, and the position before its first commit as durable position. A
//! section counts once its directory is complete. A full file ends with a table of its directories. The payload of a
//! frame is one byte (0: plain, 1: zstd) and JSON lines, of which the first names the form.
//!
//! **Never** opens a file of a project, signs, or interprets an event. **Order**: sections are appended in the order of
//! the log by one caller at a time; a reader finds a section after it is synced. Readers hold only the file of their
//! section, so neither the appender nor the replacement of a file disturbs them. **Failure** of an append leaves
//! history unchanged. Damage is confined: in a block to the runs in it, in a directory to its section, in a table to
//! the speed of the next start.
//!
//! **Compaction** rewrites full files without the runs that were removed. Positions stay covered: a file without living
//! runs becomes one section without runs and is not unlinked, because it would look like a lost file. A removal stays
//! in a directory as long as a section has one of its runs.
//!
//! Each file of 64 MiB has one open descriptor.

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
