//! What the end of the run that started a run means for it.

use serde::{Deserialize, Serialize};

use super::life::Status;

/// What the end of the run that started a run means for it. Fixed when the run is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentEnd {
    /// The parent waits for it: it is asked to stop when the parent is, and never outlives it.
    #[default]
    Wait,
    /// The parent continues without waiting for it. It is killed with the parent; how else the parent ends decides about it.
    Follow {
        /// The parent has completed, errors that it went past included.
        on_complete: Fate,
        /// The parent has failed.
        on_error: Fate,
        /// The parent was cancelled.
        on_cancel: Fate,
    },
    /// The parent continues without waiting for it, and it is left alone unless the whole tree is killed.
    Detach,
}

/// What becomes of a run whose parent has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It continues.
    Leave,
    /// It is cancelled.
    Cancel,
}

impl ParentEnd {
    /// Whether the parent waits for the run.
    pub const fn waits(&self) -> bool {
        matches!(self, Self::Wait)
    }

    /// Whether the run stays as it is whatever happens to the parent.
    pub const fn is_detached(&self) -> bool {
        matches!(self, Self::Detach)
    }

    /// Whether the run is stopped when its parent has come to be `parent`.
    pub const fn stops_at(&self, parent: Status) -> bool {
        let (complete, error, cancel) = match self {
            Self::Wait => (Fate::Cancel, Fate::Cancel, Fate::Cancel),
            Self::Follow {
                on_complete,
                on_error,
                on_cancel,
            } => (*on_complete, *on_error, *on_cancel),
            Self::Detach => return false,
        };
        let fate = match parent {
            Status::Created | Status::Running | Status::Suspended => return false,
            Status::Completed | Status::CompletedWithErrors => complete,
            Status::Error => error,
            Status::Cancelled => cancel,
            Status::Killed => return true,
        };
        matches!(fate, Fate::Cancel)
    }
}

/// What is fixed, when a run is accepted, about the runs that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildTerms {
    /// What its end means for those that it does not wait for and that are to follow it.
    pub follow: ParentEnd,
    /// Most of them that are not over at once, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Most runs of its tree that are not over, with a thread that it starts, if that is limited below what the daemon allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_in_tree: Option<u32>,
    /// How long it waits for them where it is asked to.
    #[serde(default, skip_serializing_if = "Waits::is_none")]
    pub waits: Waits,
}

/// How long a call of `wait_threads` waits, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// If it does not say; 0 is without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<u32>,
    /// At most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
}

impl Waits {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ChildTerms {
    /// What completes leaves them, what fails or is cancelled cancels them.
    fn default() -> Self {
        Self {
            follow: ParentEnd::Follow {
                on_complete: Fate::Leave,
                on_error: Fate::Cancel,
                on_cancel: Fate::Cancel,
            },
            most: None,
            most_in_tree: None,
            waits: Waits::default(),
        }
    }
}

impl ChildTerms {
    /// Whether they are those of a run about which nobody has said anything.
    pub fn are_usual(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::Fate::{Cancel, Leave};
    use super::*;

    #[test]
    fn fate_is_defined_for_each_end_of_parent() {
        let follow = |stops: [Fate; 3]| ParentEnd::Follow {
            on_complete: stops[0],
            on_error: stops[1],
            on_cancel: stops[2],
        };
        // Completed, completed with errors, error, cancelled, killed.
        let table = [
            (ParentEnd::Wait, [true, true, true, true, true]),
            (ParentEnd::Detach, [false, false, false, false, false]),
            (
                follow([Leave, Cancel, Cancel]),
                [false, false, true, true, true],
            ),
            (
                follow([Cancel, Leave, Leave]),
                [true, true, false, false, true],
            ),
            (
                follow([Leave, Leave, Leave]),
                [false, false, false, false, true],
            ),
        ];
        for (end, expected) in table {
            let ends = Status::ALL.iter().filter(|status| status.is_terminal());
            let stops: Vec<bool> = ends.map(|status| end.stops_at(*status)).collect();
            assert_eq!(stops, expected, "{end:?}");
            let live = Status::ALL.iter().filter(|status| !status.is_terminal());
            assert!(live.clone().all(|status| !end.stops_at(*status)), "{end:?}");
        }
    }
}
