//! Ending what a process leaves behind. Everything here blocks, for two seconds at worst.

use std::collections::BTreeMap;
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

/// Kills `held` and whatever `find` finds, over and over, until `find` finds nothing alive or patience ends: the death
/// of one process re-parents its children, which makes them visible.
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
        let mut found = false;
        for stat in find() {
            let key = (stat.pid, stat.start_time);
            if ending.contains_key(&key) {
                continue;
            }
            if let Some(held) = Held::take(stat) {
                held.signal(Signal::SIGKILL);
                ending.insert(key, (held, Signal::SIGKILL));
                found = true;
            }
        }
        let all_ended = ending.values().all(|(held, _)| held.has_ended_by(deadline));
        if !found || !all_ended || Instant::now() >= deadline {
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

/// Ends what earlier lives of the daemon left running on this boot of the machine: the named leaders, the members of
/// their sessions, and what descends from these. Blocks, usually for milliseconds.
///
/// A leader is known by pid and start time. If it is gone, its session members are known by two facts: their session,
/// and that they carry some attempt's tag. (A number is not given away while a session has it; but after the last
/// member went, an unrelated session may have got it.)
pub fn end_leftovers(leaders: &[ProcessIdentity]) -> KillReceipt {
    let boot = procfs::boot_id();
    let ours: Vec<&ProcessIdentity> = leaders
        .iter()
        .filter(|leader| leader.boot_id == boot)
        .collect();
    if ours.is_empty() {
        return KillReceipt::default();
    }
    let held = members(&ours)
        .into_iter()
        .flat_map(|member| procfs::tree(member.pid))
        .filter_map(Held::take)
        .map(|held| (held, Signal::SIGKILL))
        .collect();
    end(held, || members(&ours))
}

/// The living members of the sessions that `leaders` opened.
fn members(leaders: &[&ProcessIdentity]) -> Vec<Stat> {
    let processes = procfs::all();
    let is_member = |stat: &Stat, leader: &ProcessIdentity| {
        stat.session == leader.pid
            && match processes.iter().find(|other| other.pid == leader.pid) {
                Some(holder) => holder.start_time == leader.start_time,
                None => stat.has_variable(ATTEMPT_VARIABLE, None),
            }
    };
    processes
        .iter()
        .filter(|stat| stat.is_alive() && leaders.iter().any(|leader| is_member(stat, leader)))
        .cloned()
        .collect()
}
