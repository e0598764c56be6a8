//! The daemon in the test process, without its socket.

mod below;
mod continued;
mod cost;
mod fence;
pub(crate) mod hang;
mod matrix;
mod parent_end;
mod planned;
pub(crate) mod rig;
pub(crate) mod stage;
mod sync;
mod withheld;
