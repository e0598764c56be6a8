//! The owner of all runs.
//!
//! **Owns** the admission of runs, one task per live run with its stop signal, and the treatment of live runs when the
//! daemon starts and stops. **Never** awaits a run: it notifies runs by their [`Stop`](crate::stop::Stop), and learns
//! of their ends from the journal.
//!
//! ```text
//! start ─admit─► launch ─► task: commit run_created ─durable─► answer, graph::drive | tool::drive ─► terminal event
//! a graph or a directive that a run calls: run_created in the parent's commit ─durable─► launch ─► task: graph::drive
//! cancel ─commit cancel_requested─► stop signal          kill ─stop signal─► task leaves ─► commit run_killed
//! ```
//!
//! **Order and races.** A run is created by its own task, so a caller that disconnects leaves no run without a task. A
//! child run is created in the commit of the step that starts it. A cancel that precedes the task is found in the
//! record. A kill and a natural end may race: the journal accepts one terminal event, and the other is refused and
//! dropped. **Failure.** A task that panics ends its run with the error code `panicked`. A failed journal ends the
//! daemon.

mod error;
mod request;

mod handle;
mod raises;

mod approvals;
mod budget;
mod cancel_file;
mod ending;
mod graph_params;
mod life;
mod message;
mod recovery;
mod removal;
mod unknown;

mod resume;

mod lineage;

mod admission;

mod execute;
mod freezing;
mod preview;
mod processes;
mod shared_call;

mod callback;

pub use callback::ProgramCall;
pub use error::Error;
pub use execute::{Executed, Lookup, Step};
pub use handle::{Launches, Supervisor};
pub use preview::Preview;
pub use recovery::settle_open_calls;
pub use removal::{Prune, PruneToken, Pruned};
pub use request::{Lineage, Reach, Start, StartAt, Started};
