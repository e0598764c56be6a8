//! Ending a run by force: who asked, and what had to be ended.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::RunId;

/// One process that a kill ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedProcess {
    /// Process id.
    pub pid: i32,
    /// Command name as the kernel knows it.
    pub comm: String,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Its exit code, if it exited.
    pub exit: Option<i32>,
}

/// A request to end a run and what is below it by force. It is never taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// Who or what asked first.
    pub by: String,
    /// Time between TERM and KILL in milliseconds; the shortest one that was asked for.
    pub grace_ms: u64,
    /// Whether it goes for detached runs below, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tree: bool,
}

impl Kill {
    /// A request by `by`, with `grace` between TERM and KILL; not for detached runs.
    pub fn new(by: impl Into<String>, grace: Duration) -> Self {
        Self {
            by: by.into(),
            grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
            tree: false,
        }
    }

    /// Time between TERM and KILL.
    pub const fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    /// Takes over what `later` asks for beyond it.
    pub fn merge(&mut self, later: &Self) {
        self.grace_ms = self.grace_ms.min(later.grace_ms);
        self.tree |= later.tree;
    }
}

/// What a kill ended, and what it could not end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillReceipt {
    /// Processes that are gone.
    pub processes: Vec<EndedProcess>,
    /// Processes still there (uninterruptible sleep), by pid.
    pub survivors: Vec<i32>,
}

impl KillReceipt {
    /// Takes over what `other` found.
    pub fn merge(&mut self, other: Self) {
        self.processes.extend(other.processes);
        self.survivors.extend(other.survivors);
    }
}

/// What the kill of a run ended in it, and in the runs below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Killed {
    /// The run.
    pub run_id: RunId,
    /// What was ended in it.
    #[serde(flatten)]
    pub receipt: KillReceipt,
    /// The same of the runs that it started.
    pub below: Vec<Self>,
}

impl Killed {
    /// `top` with what `line` was: runs below it, each behind the one that started it.
    pub fn with(top: Self, line: Vec<(Option<RunId>, Self)>) -> Self {
        let mut all = vec![(None, top.clone())];
        all.extend(line);
        while let Some((parent, killed)) = all.pop() {
            let above = all
                .iter()
                .position(|(_, above)| parent.as_ref() == Some(&above.run_id));
            // One whose parent is none of them hangs below the top.
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
