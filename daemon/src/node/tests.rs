//! The daemon in this process, without its socket.

mod hang;
mod matrix;
mod rig;
mod stage;
