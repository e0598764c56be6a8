//! Tests of the journal on real files. Shared parts are in `testing`.

mod accounts;
mod base;
mod budget_queue;
mod deltas;
mod durability;
mod feeds;
mod fence;
mod merged;
mod model;
mod reader;
mod recovery;
mod removal;
mod store;
mod stored;
mod sweep;
