//! Safe paths: files below a directory that another process may rearrange at the same time, and atomic writes of files.
//!
//! [`Dir`] **never** follows a symbolic link and never leaves its directory. The kernel resolves each path below an
//! open directory and refuses links. An operation that changes a directory names a single entry of it. Entries other
//! than plain files and directories are refused. [`open`] is for callers that accept links which stay below the
//! directory. A file is replaced atomically only by a [`Draft`].

mod open;

mod dir;

mod draft;

pub use self::dir::{Dir, Entries, Entry, EntryKind, Found, boot_id, identity};
pub use self::draft::{Draft, temporary_name};
pub use self::open::{open, open_without_links};
