//! Behaviour that users, scripts and operators of Rye rely on, tested with the real binaries.
//!
//! One binary, one module per topic. Each test has a world of its own (see `rye_tests`).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot continue fails, and one that cannot begin says why"
)]

mod harness;

mod main_job;
mod managed;
mod memory;
mod pages;
mod project;
mod readme;
mod run_on_a_budget;
mod script_a_model;
mod write_a_tool;

mod apart;
mod approvals;
mod bad_input;
mod bounds;
mod budget;
mod callbacks;
mod callers;
mod capability;
mod chain;
mod contained;
mod environment;
mod examples;
mod fetch;
mod golden;
mod http_tool;
mod isolation;
mod items;
mod limits;
mod load;
mod mcp;
mod model_server;
mod multi_file_tools;
mod native;
mod nested;
mod original;
mod policy;
mod printed;
mod process_end;
mod secrets;
mod stub;
mod tool;
mod trust;
mod zoo;

mod adopted;
mod attacked;
mod cli;
mod clients;
mod daemon;
mod finding;
mod permission;
mod removal;
mod repairs;
mod resource_limits;
mod resume;
mod rpc;
mod siblings;
mod steered;
mod steering;
mod test_verb;
mod thread;

mod crash;
mod events;
mod events_of_many;
mod faults;
mod full_disk;
mod objects;
mod storage;

mod cited;
mod payloads;
mod pinned;
mod projects;
mod tidy;
