//! The Rye daemon as a library: the binary only calls [`serve`].
//!
//! Blank lines separate rows of modules, the lowest first. A module uses only lower rows (ARCHITECTURE.md, "Rows").
//! `daemon/docs` has the rules that several modules rely on.

pub mod config;
pub mod exhausted;
pub mod exit;
pub mod stop;

pub mod async_log;
pub mod index;
pub mod logging;
pub mod object;

pub mod cache;
pub mod callbacks;
pub mod contracts;
pub mod exports;
pub mod graphs;
pub mod http;
pub mod live_processes;
pub mod port;
pub mod ports;
pub mod process_log;
pub mod projects;
pub mod storage_backoff;
pub mod trees;

pub mod mcp;
pub mod native;
pub mod provider;
pub mod survivor;

pub mod chain;
pub mod directives;
pub mod models;

pub mod logged_output;
pub mod probes;
pub mod services;
pub mod tool_offer;

pub mod dispatch;
pub mod drive;
pub mod inspect;
pub mod output_watch;

pub mod children;

pub mod graph;
pub mod managed;
pub mod thread;
pub mod tool;

pub mod supervisor;

pub mod access;

pub mod rpc;

pub mod node;

pub use node::{keep, rebuild, serve};
