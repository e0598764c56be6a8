//! The objects of projects: what their runs did, under the SHA-256 of its content.

mod project_objects;
pub mod run_objects;

pub use project_objects::{OBJECTS, ProjectObjects, ProjectObjectsError, REFS};
