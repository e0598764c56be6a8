//! Ends the processes that a process leaves behind. Everything here blocks, at most two seconds.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};
use rye_core::model::{AdoptedProcess, EndedProcess, KillReceipt, ProcessIdentity};

use super::cgroup::AttemptCgroup;
use super::ending::number;
use super::host;
use super::members::Members;
use super::pidfd::ProcessHandle;
use super::plan::ATTEMPT_VARIABLE;
use super::procfs::{self, Stat, Variable};

/// Time limit of a sweep. Processes die of KILL in milliseconds. Only one that hangs in the kernel, or a swarm that
/// forks faster than it is killed, takes this long, and is reported as surviving.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of looks while a killed process is not dead yet.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Pause before the next look if a process was in an exec, or ending.
const SETTLING: Duration = Duration::from_millis(1);

/// Result of one look.
#[derive(Debug, Default)]
pub(super) struct OrphanScan {
    /// Processes to be ended.
    pub(super) found: Vec<Stat>,
    /// True if the look was complete: every process was classified, and none died meanwhile that may have passed on
    /// unlisted children.
    pub(super) is_settled: bool,
}

impl OrphanScan {
    /// True if nothing is left.
    pub(super) fn is_clear(&self) -> bool {
        self.found.is_empty() && self.is_settled
    }
}

/// Finds the processes of one attempt that its leader left behind, again after each round of kills.
#[derive(Debug, Clone)]
pub(super) struct Orphans {
    /// Pid of the leader, which is its group and session too. The leader is a zombie, so the number is still its own.
    leader: i32,
    /// Start time of the leader.
    since: u64,
    /// Process that adopts orphans of the daemon. Without one, only processes that were seen before can be ended.
    adopter: Option<i32>,
    tag: String,
    /// Dead children of the adopter that an earlier look saw, by pid and start time: their children have been visible
    /// since.
    dead: BTreeSet<(i32, u64)>,
    /// Cgroup of the attempt, if the host has one for it.
    cgroup: Option<Arc<AttemptCgroup>>,
    /// Processes without a tag that the adopter got since the leader started.
    strangers: BTreeMap<(i32, u64), String>,
}

impl Orphans {
    pub(super) fn new(
        (leader, since): (i32, u64),
        adopter: Option<i32>,
        tag: String,
        cgroup: Option<Arc<AttemptCgroup>>,
    ) -> Self {
        Self {
            leader,
            since,
            adopter,
            tag,
            dead: BTreeSet::new(),
            cgroup,
            strangers: BTreeMap::new(),
        }
    }

    /// The processes of the attempt while its leader lives.
    pub(super) fn members(&self) -> Members {
        let cgroup = self.cgroup.as_ref().map(|cgroup| cgroup.path().to_owned());
        Members::new(self.leader, self.adopter, self.tag.clone(), cgroup)
    }

    /// True if no process of the attempt can be alive.
    pub(super) fn are_complete(&self) -> bool {
        let cgroup = self.cgroup.as_deref();
        cgroup.is_some_and(|cgroup| !cgroup.is_populated())
    }

    /// Adds to `receipt` whether processes may be left, and which.
    pub(super) fn completed(self, receipt: KillReceipt) -> KillReceipt {
        let complete = match &self.cgroup {
            // Survivors are known.
            Some(cgroup) => {
                let members = cgroup.members();
                let is_known =
                    |stat: &Stat| stat.pid == self.leader || receipt.survivors.contains(&stat.pid);
                members.iter().all(is_known)
            }
            None => false,
        };
        let strangers = self.strangers.into_iter().filter(|_| !complete);
        let living = strangers.filter(|((pid, start_time), _)| {
            let now = Stat::read(*pid).filter(Stat::is_alive);
            now.is_some_and(|now| now.start_time == *start_time)
        });
        KillReceipt {
            complete,
            adopted: living
                .map(|((pid, _), comm)| AdoptedProcess { pid, comm })
                .collect(),
            ..receipt
        }
    }

    /// Searches the children of the adopter for those in the leader's group or session, and those that carry the
    /// attempt's tag. If the adopter itself is dead, its orphans went to an ancestor, so all processes are searched.
    ///
    /// The leader is dead, so every living process of the attempt descends from a child of the adopter. If the list of
    /// these is complete and each is classified, no process of the attempt can be missing.
    pub(super) fn look(&mut self) -> OrphanScan {
        let mut look = OrphanScan {
            found: Vec::new(),
            is_settled: true,
        };
        if let Some(cgroup) = &self.cgroup {
            let members = cgroup.members().into_iter();
            look.found
                .extend(members.filter(|stat| stat.pid != self.leader));
            // A process that was just forked is not listed yet.
            look.is_settled = !look.found.is_empty() || !cgroup.is_populated();
        }
        let Some(adopter) = self.adopter else {
            return look;
        };
        // The adopter is the parent of this process, until its death changes that; or it is this process, in tests.
        let daemon = getpid().as_raw();
        let adopts = getppid().as_raw() == adopter || daemon == adopter;
        let listed = if adopts {
            procfs::children_of_single_thread(adopter)
        } else {
            procfs::all().into_iter().map(|stat| stat.pid).collect()
        };
        // The one child that the adopter did not adopt is this daemon.
        for pid in listed.into_iter().filter(|pid| *pid != daemon) {
            // Reaped since it was listed, and so perhaps replaced: the list may have a gap.
            let there = Stat::read(pid).filter(|stat| !adopts || stat.parent == adopter);
            let Some(stat) = there else {
                look.is_settled = false;
                continue;
            };
            match self.ownership(&stat) {
                Ownership::Ours if look.found.iter().any(|found| found.pid == stat.pid) => {}
                Ownership::Ours => look.found.push(stat),
                Ownership::Foreign => {}
                // The list of all processes includes kernel threads, which can never be classified.
                Ownership::Unknown => look.is_settled &= !adopts && !stat.has_memory(),
            }
        }
        look
    }

    fn ownership(&mut self, stat: &Stat) -> Ownership {
        if !stat.is_alive() {
            // It may have died after the list was read, and its children were adopted then.
            return if self.dead.insert((stat.pid, stat.start_time)) {
                Ownership::Unknown
            } else {
                Ownership::Foreign
            };
        }
        if stat.group == self.leader || stat.session == self.leader {
            return Ownership::Ours;
        }
        match stat.variable(ATTEMPT_VARIABLE) {
            Variable::Is(tag) if tag == self.tag.as_bytes() => Ownership::Ours,
            Variable::Is(_) => Ownership::Foreign,
            Variable::Absent | Variable::Hidden => {
                if stat.start_time >= self.since {
                    let key = (stat.pid, stat.start_time);
                    self.strangers.insert(key, stat.comm.clone());
                }
                Ownership::Foreign
            }
            Variable::Unsettled => Ownership::Unknown,
        }
    }
}

/// Relation of a process to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ownership {
    Ours,
    /// Of another owner, or dead since an earlier look.
    Foreign,
    /// Another look is needed.
    Unknown,
}

/// Kills `held` and all that `look` finds, until all of them are dead and one more look is clear, or patience ends.
/// Repetition is needed because the death of a process re-parents its children, which makes them visible.
///
/// Each process in `held` comes with the last signal it got; one that is dead by now died of that.
pub(super) fn end(
    held: Vec<(ProcessHandle, Signal)>,
    mut look: impl FnMut() -> OrphanScan,
) -> KillReceipt {
    let deadline = Instant::now() + PATIENCE;
    let mut ending: BTreeMap<(i32, u64), (ProcessHandle, Signal)> = BTreeMap::new();
    for (held, last) in held {
        let signal = if held.has_ended_by(Instant::now()) {
            last
        } else {
            held.signal(Signal::SIGKILL);
            Signal::SIGKILL
        };
        ending.insert((held.stat.pid, held.stat.start_time), (held, signal));
    }
    loop {
        // Deaths first, then the look: only a dead process passes on its children.
        let look_at = deadline.min(Instant::now() + LOOK_AGAIN);
        let all_ended = ending.values().all(|(held, _)| held.has_ended_by(look_at));
        let OrphanScan { found, is_settled } = look();
        let mut news = false;
        for stat in found {
            let key = (stat.pid, stat.start_time);
            if ending.contains_key(&key) {
                continue;
            }
            // A process that died after it was found may have left children too.
            news = true;
            if let Some(held) = ProcessHandle::take(stat) {
                held.signal(Signal::SIGKILL);
                ending.insert(key, (held, Signal::SIGKILL));
            }
        }
        if (all_ended && !news && is_settled) || Instant::now() >= deadline {
            return receipt(ending.into_values());
        }
        if !is_settled {
            std::thread::sleep(SETTLING);
        }
    }
}

fn receipt(ending: impl Iterator<Item = (ProcessHandle, Signal)>) -> KillReceipt {
    let mut receipt = KillReceipt::default();
    let now = Instant::now();
    for (held, signal) in ending {
        if held.has_ended_by(now) {
            receipt.processes.push(EndedProcess {
                pid: held.stat.pid,
                comm: held.stat.comm,
                signal: Some(number(signal)),
                exit: None,
            });
        } else {
            receipt.survivors.push(held.stat.pid);
        }
    }
    receipt
}

/// A call that was in flight when the daemon went down.
#[derive(Debug, Clone)]
pub struct Leftover {
    /// Its process, if that was recorded in time.
    pub leader: Option<ProcessIdentity>,
    /// Tag of its attempt; one that ends with a dot is a prefix of tags.
    pub tag: String,
}

/// Ends processes of earlier daemons in this boot of the machine: the named leaders, the members of their sessions, and
/// processes with the tag of a call in flight. Includes all of their descendants. Blocks, usually for milliseconds.
///
/// A leader is identified by pid and start time. If it is gone, its session members are identified by two facts: their
/// session, and the tag of any attempt. (A number is not reused while a session has it; but after the last member has
/// ended, an unrelated session may have got it.) A process outside these sessions is identified by the exact tag of an
/// attempt that the log announced and that never ended: it may have been started just before its leader was recorded.
///
/// Descendants of another living daemon are not touched: the records may be a copy of that daemon's, with the names of
/// its processes.
pub fn end_leftovers(calls: &[Leftover]) -> KillReceipt {
    if calls.is_empty() {
        return KillReceipt::default();
    }
    let boot = procfs::boot_id();
    let leaders: Vec<&ProcessIdentity> = calls
        .iter()
        .filter_map(|call| call.leader.as_ref())
        .filter(|leader| leader.boot_id == boot)
        .collect();
    let look = || members(&leaders, calls);
    let held = look()
        .found
        .into_iter()
        .flat_map(|member| procfs::tree(member.pid))
        .filter_map(ProcessHandle::take)
        .map(|held| (held, Signal::SIGKILL))
        .collect();
    end(held, look)
}

/// Living members of the sessions of `leaders`, and living processes with the tag of one of `calls`.
fn members(leaders: &[&ProcessIdentity], calls: &[Leftover]) -> OrphanScan {
    let processes = procfs::all();
    let tags: HashSet<&[u8]> = calls.iter().map(|call| call.tag.as_bytes()).collect();
    let is_known = |tag: &[u8]| {
        let family = tag.iter().rposition(|byte| *byte == b'.');
        tags.contains(tag) || family.is_some_and(|end| tags.contains(&tag[..=end]))
    };
    let holds_session = |leader: &ProcessIdentity, tag: &Variable| match processes
        .iter()
        .find(|other| other.pid == leader.pid)
    {
        Some(holder) => holder.start_time == leader.start_time,
        None => matches!(tag, Variable::Is(_)),
    };
    let mut look = OrphanScan {
        found: Vec::new(),
        is_settled: true,
    };
    let others = ForeignDaemons::among(&processes);
    for stat in processes.iter().filter(|stat| stat.is_alive()) {
        let tag = stat.variable(ATTEMPT_VARIABLE);
        let is_member = leaders
            .iter()
            .any(|leader| stat.session == leader.pid && holds_session(leader, &tag));
        match tag {
            Variable::Is(tag) if is_known(&tag) || is_member => {
                look.found.extend(others.unless_foreign(stat));
            }
            _ if is_member => look.found.extend(others.unless_foreign(stat)),
            // An ending process has passed on its children by the next look, which sees them wherever they are.
            Variable::Unsettled => look.is_settled &= !stat.has_memory(),
            Variable::Is(_) | Variable::Absent | Variable::Hidden => {}
        }
    }
    look
}

/// Processes below other living daemons.
struct ForeignDaemons<'a> {
    processes: HashMap<i32, &'a Stat>,
    /// This daemon and its parent.
    own_pids: [i32; 2],
}

impl<'a> ForeignDaemons<'a> {
    fn among(processes: &'a [Stat]) -> Self {
        let living = processes.iter().filter(|stat| stat.is_alive());
        Self {
            processes: living.map(|stat| (stat.pid, stat)).collect(),
            own_pids: [getpid().as_raw(), getppid().as_raw()],
        }
    }

    /// `stat`, unless it belongs to another daemon.
    fn unless_foreign(&self, stat: &Stat) -> Option<Stat> {
        (!self.have(stat)).then(|| stat.clone())
    }

    /// True if another daemon is an ancestor of `stat`. Any process with the daemon's name counts as one; a false one
    /// among the leftovers is ended with all of its descendants.
    fn have(&self, stat: &Stat) -> bool {
        let mut seen = HashSet::from([stat.pid]);
        let mut above = stat.parent;
        while let Some(stat) = self.processes.get(&above) {
            if self.own_pids.contains(&stat.pid) || !seen.insert(stat.pid) {
                return false;
            }
            if stat.comm == host::NAME {
                return true;
            }
            above = stat.parent;
        }
        false
    }
}
