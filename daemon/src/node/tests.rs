//! The daemon in the test process, without its socket.

mod below;
mod continued;
mod cost;
mod fence;
pub(crate) mod hanging_project;
mod matrix;
mod parent_end;
mod planned;
pub(crate) mod rig;
pub(crate) mod scripted_effects;
mod sync;
mod withheld;
