//! The model of graph runs.

mod event;

pub use self::event::GraphEvent;
