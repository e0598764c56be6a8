//! Ending what a process leaves behind. Everything here blocks, for two seconds at worst.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::getpid;
use rye_core::model::{EndedProcess, KillReceipt, ProcessIdentity};

use super::pidfd::Held;
use super::procfs::{self, Stat};
use super::{ATTEMPT_VARIABLE, number};

/// How long a sweep goes on. Processes die of KILL in milliseconds; only one that hangs in the kernel, or a swarm that
/// forks faster than it is killed, takes this long, and is reported as surviving.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a sweep looks for more while something it killed is not dead yet.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Processes of one attempt that its leader left behind: how to find them again after each round of kills.
#[derive(Debug, Clone)]
pub(super) struct Orphans {
    /// Pid of the leader, which is its group and session too. The leader is a zombie, so the number is still its own.
    pub(super) leader: i32,
    /// The process that adopts orphans of the daemon; without one, only what was seen before can be ended.
    pub(super) adopter: Option<i32>,
    /// The tag of the attempt.
    pub(super) tag: String,
}

impl Orphans {
    /// Those the adopter has by now: adopted, and in the leader's group or session or carrying the attempt's tag.
    pub(super) fn find(&self) -> Vec<Stat> {
        let Some(adopter) = self.adopter else {
            return Vec::new();
        };
        // The one child that the adopter did not adopt is this daemon.
        let daemon = getpid().as_raw();
        let mut found = procfs::children_of_single_thread(adopter, Some(daemon));
        found.retain(|stat| {
            stat.group == self.leader
                || stat.session == self.leader
                || stat.has_variable(ATTEMPT_VARIABLE, Some(&self.tag))
        });
        found
    }
}

/// Kills `held` and whatever `find` finds, over and over, until everything known is dead and one more look finds nothing
/// new, or patience ends: the death of one process re-parents its children, which makes them visible.
///
/// With each process in `held` comes the last signal it got; one that is dead by now died of that.
pub(super) fn end(held: Vec<(Held, Signal)>, find: impl Fn() -> Vec<Stat>) -> KillReceipt {
    let deadline = Instant::now() + PATIENCE;
    let mut ending: BTreeMap<(i32, u64), (Held, Signal)> = BTreeMap::new();
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
        // Death first, then the look: only what dies hands its children on.
        let look_at = deadline.min(Instant::now() + LOOK_AGAIN);
        let all_ended = ending.values().all(|(held, _)| held.has_ended_by(look_at));
        let mut news = false;
        for stat in find() {
            let key = (stat.pid, stat.start_time);
            if ending.contains_key(&key) {
                continue;
            }
            // One that has died since it was found may have left children too.
            news = true;
            if let Some(held) = Held::take(stat) {
                held.signal(Signal::SIGKILL);
                ending.insert(key, (held, Signal::SIGKILL));
            }
        }
        if (all_ended && !news) || Instant::now() >= deadline {
            return receipt(ending.into_values());
        }
    }
}

fn receipt(ending: impl Iterator<Item = (Held, Signal)>) -> KillReceipt {
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
    /// Its process, if that was written down in time.
    pub leader: Option<ProcessIdentity>,
    /// The tag of its attempt.
    pub tag: String,
}

/// Ends what earlier lives of the daemon left running on this boot of the machine: the named leaders, the members of
/// their sessions, whatever carries the tag of a call that was in flight, and what descends from these. Blocks, usually
/// for milliseconds.
///
/// A leader is known by pid and start time. If it is gone, its session members are known by two facts: their session,
/// and that they carry some attempt's tag. (A number is not given away while a session has it; but after the last
/// member went, an unrelated session may have got it.) A process outside these sessions is known by the very tag of the
/// attempt that the log announced and that never ended: it may have been started just before its leader was recorded.
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
    let find = || members(&leaders, calls);
    let held = find()
        .into_iter()
        .flat_map(|member| procfs::tree(member.pid))
        .filter_map(Held::take)
        .map(|held| (held, Signal::SIGKILL))
        .collect();
    end(held, find)
}

/// The living members of the sessions that `leaders` opened, and the living processes tagged as one of `calls`.
fn members(leaders: &[&ProcessIdentity], calls: &[Leftover]) -> Vec<Stat> {
    let processes = procfs::all();
    let tags: HashSet<&[u8]> = calls.iter().map(|call| call.tag.as_bytes()).collect();
    let is_member = |stat: &Stat, leader: &ProcessIdentity| {
        stat.session == leader.pid
            && match processes.iter().find(|other| other.pid == leader.pid) {
                Some(holder) => holder.start_time == leader.start_time,
                None => stat.has_variable(ATTEMPT_VARIABLE, None),
            }
    };
    let is_ours = |stat: &Stat| {
        leaders.iter().any(|leader| is_member(stat, leader))
            || stat
                .variable(ATTEMPT_VARIABLE)
                .is_some_and(|tag| tags.contains(tag.as_slice()))
    };
    processes
        .iter()
        .filter(|stat| stat.is_alive() && is_ours(stat))
        .cloned()
        .collect()
}
