//! The journal on real files. `rig` holds what the tests share.

mod accounts;
mod deltas;
mod durability;
mod feeds;
mod fence;
mod files;
mod lanes;
mod line;
mod merged;
mod objects;
mod reader;
mod recovery;
mod rig;
mod store;
mod stored;
