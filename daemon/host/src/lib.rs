//! What the daemon needs of its host: tasks and threads, time, safe paths, blobs, and the places where tests kill it.
//!
//! Groups of modules are rows, the lowest first: a module uses only earlier rows.

pub mod blobs;
pub mod clock;
pub mod crash_suspects;
pub mod fail_point;
pub mod safe_path;

pub mod task;

pub mod file_pool;
