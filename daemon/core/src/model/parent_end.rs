//! The consequence of a parent's end for its child run.

use serde::{Deserialize, Serialize};

use super::life::Status;

/// The consequence of the parent's end. Fixed when the run is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentEnd {
    /// The parent waits for it: it is cancelled with the parent, and never outlives it.
    #[default]
    Wait,
    /// The parent continues without waiting for it. It is killed with the parent; for other ends of the parent these
    /// fates apply.
    Follow {
        /// The parent has completed, with or without suppressed errors.
        on_complete: Fate,
        on_error: Fate,
        on_cancel: Fate,
    },
    /// The parent continues without waiting for it, and it is left alone unless the whole tree is killed.
    Detach,
}

/// The fate of a run whose parent has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    Leave,
    Cancel,
}

impl ParentEnd {
    pub const fn waits(&self) -> bool {
        matches!(self, Self::Wait)
    }

    /// True if the run continues, whatever happens to the parent.
    pub const fn is_detached(&self) -> bool {
        matches!(self, Self::Detach)
    }

    /// True if the run is stopped when its parent has reached the status `parent`.
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

/// Terms of the child runs of a run, fixed when it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildTerms {
    /// The consequence of its end for child runs that it does not wait for and that follow it.
    pub follow: ParentEnd,
    /// Limit of live child runs, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Limit of live runs of its tree, with a thread that it starts, if it is below that of the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_in_tree: Option<u32>,
    /// Waiting times of `wait_threads`.
    #[serde(default, skip_serializing_if = "Waits::is_none")]
    pub waits: Waits,
}

/// Times for which a call of `wait_threads` waits, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Default; 0 is without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<u32>,
    /// Limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
}

impl Waits {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ChildTerms {
    /// A parent that completes leaves its child runs; one that fails or is cancelled cancels them.
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
    /// True if all of them are the default.
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
