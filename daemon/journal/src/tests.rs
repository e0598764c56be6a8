//! The journal on real files. `rig` holds what the tests share.

mod accounts;
mod deltas;
mod durability;
mod feeds;
mod fence;
mod line;
mod merged;
mod reader;
mod recovery;
mod removal;
mod store;
mod stored;
