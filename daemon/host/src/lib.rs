//! Interfaces of the daemon to its host: tasks, time, safe paths, caches, blobs, crash suspects, file pools, and fail
//! points for tests.
//!
//! Each group of modules is a row, the lowest first: a module uses only earlier rows.

pub mod cache;
pub mod clock;
pub mod crash_suspects;
pub mod fail_point;
pub mod safe_path;

pub mod blobs;
pub mod task;

pub mod file_pool;
