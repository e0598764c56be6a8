//! Objects of projects, which record the results of runs; each is named by the SHA-256 of its content.

mod project_objects;
pub mod run_objects;

pub use project_objects::{OBJECTS, ProjectObjects, ProjectObjectsError, REFS};
