//! The end of a run by force: the request, and the processes that it ended.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::RunId;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedProcess {
    pub pid: i32,
    /// Command name as the kernel knows it.
    pub comm: String,
    pub signal: Option<i32>,
    pub exit: Option<i32>,
}

/// A request to end a run and the runs below it by force. It is never withdrawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The user or component that requested it first.
    pub by: String,
    /// Time between TERM and KILL in milliseconds; the shortest that was requested.
    pub grace_ms: u64,
    /// True if detached runs below are killed, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tree: bool,
}

impl Kill {
    /// Makes a request by `by`, with `grace` between TERM and KILL, that spares detached runs.
    pub fn new(by: impl Into<String>, grace: Duration) -> Self {
        Self {
            by: by.into(),
            grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
            tree: false,
        }
    }

    pub const fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    /// Merges a later request: the shorter grace and the wider reach win.
    pub fn merge(&mut self, later: &Self) {
        self.grace_ms = self.grace_ms.min(later.grace_ms);
        self.tree |= later.tree;
    }
}

/// Processes that a kill ended, and those that it could not end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillReceipt {
    /// Processes that have ended.
    pub processes: Vec<EndedProcess>,
    /// Processes still there (uninterruptible sleep), by pid.
    pub survivors: Vec<i32>,
    /// True if no process can be left but the survivors. False if the host cannot tell.
    #[serde(default)]
    pub complete: bool,
    /// Processes of unknown origin that the parent of the daemon adopted meanwhile; only if it is not complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<AdoptedProcess>,
}

/// A process that may belong to an attempt that was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptedProcess {
    pub pid: i32,
    pub comm: String,
}

/// The receipt of an attempt without processes.
impl Default for KillReceipt {
    fn default() -> Self {
        Self {
            processes: Vec::new(),
            survivors: Vec::new(),
            complete: true,
            adopted: Vec::new(),
        }
    }
}

impl KillReceipt {
    pub fn merge(&mut self, other: Self) {
        self.processes.extend(other.processes);
        self.survivors.extend(other.survivors);
        self.complete &= other.complete;
        for adopted in other.adopted {
            if !self.adopted.contains(&adopted) {
                self.adopted.push(adopted);
            }
        }
    }
}

/// The processes that the kill of a run ended, in the run and in the runs below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Killed {
    pub run_id: RunId,
    #[serde(flatten)]
    pub receipt: KillReceipt,
    /// Receipts of the runs that it started.
    pub below: Vec<Self>,
}

impl Killed {
    /// Builds the tree under `top` from `line`: runs below it, each after the one that started it.
    pub fn with(top: Self, line: Vec<(Option<RunId>, Self)>) -> Self {
        let mut all = vec![(None, top.clone())];
        all.extend(line);
        while let Some((parent, killed)) = all.pop() {
            let above = all
                .iter()
                .position(|(_, above)| parent.as_ref() == Some(&above.run_id));
            // A run whose parent is not in the tree is put below the top.
            match all.get_mut(above.unwrap_or(0)) {
                Some((_, above)) => above.below.insert(0, killed),
                None => return killed,
            }
        }
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(killed: &Killed) -> String {
        let below: String = killed.below.iter().map(shape).collect();
        format!("{}({below})", &killed.run_id.as_str()[2..3])
    }

    #[test]
    fn killed_runs_are_nested_below_their_parents() {
        let killed = |id: &str| Killed {
            run_id: RunId::new(id).unwrap(),
            receipt: KillReceipt::default(),
            below: Vec::new(),
        };
        let id = |id: &str| format!("t-{id}-1767225600-aaaaaaaaaa");
        let line = [("b", "a"), ("c", "a"), ("d", "b"), ("e", "b")];
        let line = line.map(|(run, parent)| {
            let parent = RunId::new(id(parent)).unwrap();
            (Some(parent), killed(&id(run)))
        });
        let whole = Killed::with(killed(&id("a")), line.into());
        assert_eq!(shape(&whole), "a(b(d()e())c())");
        assert_eq!(shape(&Killed::with(killed(&id("a")), Vec::new())), "a()");
    }
}
