//! Possible cells, and the reasons why others are impossible.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Graph,
    Foreach,
    Tool,
    /// A graph run that another one waits for.
    Child,
    /// A managed process that starts again after a failure.
    Process,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunPhase {
    /// Its first step is planned, and not committed.
    Planned,
    /// Its first step is committed, and not durable.
    Committed,
    Running,
    /// Its first attempt has ended, and that is not committed.
    Ended,
    Backoff,
    Hooks,
    ChildRuns,
    ChildSuspended,
    /// The hooks of its end are being called.
    Ending,
    /// Its first node waits for a time.
    Waiting,
    /// Its first node waits for the answer of a person.
    AwaitingApproval,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellRequest {
    Cancel,
    Kill,
    KillAtOnce,
    Suspend,
    Stop,
    Crash,
    DiskFull,
    /// Another source ends the run, so that the next commit of its driver is refused.
    Refused,
    /// The sync of the log hangs, and the run is killed meanwhile.
    SyncHangs,
}

const KINDS: [Kind; 5] = [
    Kind::Graph,
    Kind::Foreach,
    Kind::Tool,
    Kind::Child,
    Kind::Process,
];
const PLACES: [RunPhase; 11] = [
    RunPhase::Planned,
    RunPhase::Committed,
    RunPhase::Running,
    RunPhase::Ended,
    RunPhase::Backoff,
    RunPhase::Hooks,
    RunPhase::ChildRuns,
    RunPhase::ChildSuspended,
    RunPhase::Ending,
    RunPhase::Waiting,
    RunPhase::AwaitingApproval,
];
const REQUESTS: [CellRequest; 9] = [
    CellRequest::Cancel,
    CellRequest::Kill,
    CellRequest::KillAtOnce,
    CellRequest::Suspend,
    CellRequest::Stop,
    CellRequest::Crash,
    CellRequest::DiskFull,
    CellRequest::Refused,
    CellRequest::SyncHangs,
];

/// Reason why the cell is impossible, if it is.
fn impossible(kind: Kind, place: RunPhase, request: CellRequest) -> Option<&'static str> {
    match (kind, place, request) {
        (
            Kind::Tool,
            RunPhase::Backoff
            | RunPhase::Hooks
            | RunPhase::ChildRuns
            | RunPhase::ChildSuspended
            | RunPhase::Ending
            | RunPhase::Waiting
            | RunPhase::AwaitingApproval,
            _,
        ) => Some("a tool run has one call, no hooks, no child runs and no nodes"),
        (
            Kind::Process,
            RunPhase::Hooks
            | RunPhase::ChildRuns
            | RunPhase::ChildSuspended
            | RunPhase::Ending
            | RunPhase::Waiting
            | RunPhase::AwaitingApproval,
            _,
        ) => Some("a process has attempts and pauses, and no hooks, child runs and nodes"),
        (Kind::Process, _, CellRequest::Suspend) => Some("a process cannot be suspended"),
        (Kind::Foreach, RunPhase::Waiting | RunPhase::AwaitingApproval, _) => {
            Some("a foreach node neither waits nor asks")
        }
        (
            Kind::Tool,
            RunPhase::Running | RunPhase::Committed | RunPhase::Ended,
            CellRequest::Suspend,
        ) => Some("a tool run is suspended before its call or not at all"),
        (_, RunPhase::Committed, CellRequest::SyncHangs) => {
            Some("that place is one where the sync hangs")
        }
        (_, RunPhase::Committed, CellRequest::Suspend) => {
            Some("a suspension is answered when it is durable")
        }
        _ => None,
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) kind: Kind,
    pub(super) place: RunPhase,
    pub(super) request: CellRequest,
}

pub(super) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for kind in KINDS {
        for place in PLACES {
            for request in REQUESTS {
                if impossible(kind, place, request).is_none() {
                    cells.push(Cell {
                        kind,
                        place,
                        request,
                    });
                }
            }
        }
    }
    cells
}
