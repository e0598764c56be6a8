//! Possible cells, and the reasons why others are impossible.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Graph,
    Foreach,
    Tool,
    /// A graph run that another one waits for.
    Child,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
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
    Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
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

const KINDS: [Kind; 4] = [Kind::Graph, Kind::Foreach, Kind::Tool, Kind::Child];
const PLACES: [Place; 11] = [
    Place::Planned,
    Place::Committed,
    Place::Running,
    Place::Ended,
    Place::Backoff,
    Place::Hooks,
    Place::ChildRuns,
    Place::ChildSuspended,
    Place::Ending,
    Place::Waiting,
    Place::Asked,
];
const REQUESTS: [Request; 9] = [
    Request::Cancel,
    Request::Kill,
    Request::KillAtOnce,
    Request::Suspend,
    Request::Stop,
    Request::Crash,
    Request::DiskFull,
    Request::Refused,
    Request::SyncHangs,
];

/// Reason why the cell is impossible, if it is.
fn impossible(kind: Kind, place: Place, request: Request) -> Option<&'static str> {
    match (kind, place, request) {
        (
            Kind::Tool,
            Place::Backoff
            | Place::Hooks
            | Place::ChildRuns
            | Place::ChildSuspended
            | Place::Ending
            | Place::Waiting
            | Place::Asked,
            _,
        ) => Some("a tool run has one call, no hooks, no child runs and no nodes"),
        (Kind::Foreach, Place::Waiting | Place::Asked, _) => {
            Some("a foreach node neither waits nor asks")
        }
        (Kind::Tool, Place::Running | Place::Committed | Place::Ended, Request::Suspend) => {
            Some("a tool run is suspended before its call or not at all")
        }
        (_, Place::Committed, Request::SyncHangs) => Some("that place is one where the sync hangs"),
        (_, Place::Committed, Request::Suspend) => {
            Some("a suspension is answered when it is durable")
        }
        _ => None,
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) kind: Kind,
    pub(super) place: Place,
    pub(super) request: Request,
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
