//! Identity and origin of the process at the other end of a socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::unistd::{Pid, getpid};

use super::cgroup::AttemptCgroups;
use super::error::Error;
use super::pidfd;
use super::plan::ATTEMPT_VARIABLE;
use super::procfs::{Stat, Variable};

/// Number of attempts when the process table changes during the walk.
const TRIES: usize = 4;

/// Maximum length of a chain of parents; a longer one counts as unknown.
const LONGEST_CHAIN: usize = 4096;

/// Origin of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lineage {
    /// It does not descend from the daemon or its parent, and carries no tag of an attempt.
    Outside,
    /// It is part of a run.
    Inside {
        /// Tag of the attempt, its own or that of the nearest tagged ancestor; empty if there is none.
        attempt: Vec<u8>,
    },
    /// It has ended, is in another pid namespace, is hidden, or changes too fast.
    Unknown,
}

/// Descent of a process, relative to the daemon and its parent process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Descent {
    /// The daemon or its parent process itself.
    Daemon,
    Foreign,
    Ours,
    Unknown,
}

/// The process that connected to a socket.
#[derive(Debug)]
pub struct Peer {
    pid: Pid,
    uid: u32,
    /// Handle on it; `None` if it had already ended.
    pidfd: Option<OwnedFd>,
}

/// Fields of a process that the walk needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    parent: i32,
    start_time: u64,
}

impl Peer {
    /// Identifies the peer of `socket`, a Unix stream socket.
    pub fn of(socket: &impl AsFd) -> Result<Self, Error> {
        let credentials = getsockopt(socket, PeerCredentials)
            .map_err(io::Error::from)
            .map_err(Error::Credentials)?;
        // Linux 6.5 returns the descriptor it opened when the peer connected. Older kernels need a lookup of the pid
        // now: if a peer connected and ended, and its pid was reused in between, the new process passes for it.
        let pidfd = getsockopt(socket, PeerPidfd)
            .or_else(|_| pidfd::open(credentials.pid()))
            .ok();
        Ok(Self {
            pid: Pid::from_raw(credentials.pid()),
            uid: credentials.uid(),
            pidfd,
        })
    }

    /// Process id in this pid namespace; 0 if the peer is in another one.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Effective user id at the time of the connection.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Finds out if the peer belongs to a run: it descends from this process or from `parent`, the parent process of
    /// this daemon, or is in the cgroup of an attempt, or its environment carries the tag of an attempt, whatever its
    /// current parent. The cgroup names the attempt, because a process can change its environment.
    pub fn lineage(&self, parent: Option<Pid>, cgroups: Option<&AttemptCgroups>) -> Lineage {
        let pid = self.pid.as_raw();
        let house = [Some(getpid()), parent].map(|pid| pid.map(Pid::as_raw));
        let descent = trace(pid, house, |pid| {
            Stat::read(pid).map(|stat| Link {
                parent: stat.parent,
                start_time: stat.start_time,
            })
        });
        let of_tag = || match (descent, tag_of(pid)) {
            (Descent::Daemon, _) | (Descent::Foreign, Variable::Absent) => Lineage::Outside,
            (_, Variable::Is(attempt)) => Lineage::Inside { attempt },
            (Descent::Ours, _) => Lineage::Inside {
                attempt: tag_above(pid, house),
            },
            (Descent::Foreign | Descent::Unknown, _) => Lineage::Unknown,
        };
        let in_cgroup = cgroups.and_then(|cgroups| cgroups.attempt_of(pid));
        let lineage = in_cgroup.map_or_else(of_tag, |attempt| Lineage::Inside { attempt });
        // The pid meant this process all the time only if it is still alive now.
        match &self.pidfd {
            Some(pidfd) if !pidfd::has_ended_by(pidfd.as_fd(), Instant::now()) => lineage,
            Some(_) | None => Lineage::Unknown,
        }
    }
}

/// Walks from `pid` to a member of `house`, or to a process without a parent.
///
/// A parent's pid may be reused during the walk, so each step is read again afterwards. A process whose parent field is
/// unchanged had that parent all the time: the field changes only when the parent dies, and never changes back.
fn trace(pid: i32, house: [Option<i32>; 2], look: impl Fn(i32) -> Option<Link>) -> Descent {
    if pid <= 0 {
        return Descent::Unknown;
    }
    if house.contains(&Some(pid)) {
        return Descent::Daemon;
    }
    for _ in 0..TRIES {
        let mut chain: Vec<(i32, Link)> = Vec::new();
        let mut at = pid;
        let found = loop {
            let Some(link) = look(at) else { break None };
            chain.push((at, link));
            if house.contains(&Some(link.parent)) {
                break Some(Descent::Ours);
            }
            if link.parent == 0 {
                break Some(Descent::Foreign);
            }
            if chain.len() > LONGEST_CHAIN {
                break None;
            }
            at = link.parent;
        };
        let still = chain.iter().all(|(pid, link)| look(*pid) == Some(*link));
        if let (Some(descent), true) = (found, still) {
            return descent;
        }
    }
    Descent::Unknown
}

/// Tag in the environment of `pid`. Repeats the read while the process is in an exec.
fn tag_of(pid: i32) -> Variable {
    let look = || Stat::read(pid).map(|stat| stat.variable(ATTEMPT_VARIABLE));
    let mut looks = std::iter::repeat_with(look).take(TRIES).flatten();
    let settled = looks.find(|tag| *tag != Variable::Unsettled);
    settled.unwrap_or(Variable::Unsettled)
}

/// Tag of the nearest ancestor of `pid` below `house` that has one.
fn tag_above(pid: i32, house: [Option<i32>; 2]) -> Vec<u8> {
    let parent = |pid: &i32| Some(Stat::read(*pid)?.parent);
    let line = std::iter::successors(parent(&pid), parent);
    let mut line = line
        .take_while(|pid| *pid > 0 && !house.contains(&Some(*pid)))
        .take(LONGEST_CHAIN);
    let tag = line.find_map(|pid| match tag_of(pid) {
        Variable::Is(tag) => Some(tag),
        Variable::Absent | Variable::Hidden | Variable::Unsettled => None,
    });
    tag.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::net::UnixStream;

    use super::*;

    const HOUSE: [Option<i32>; 2] = [Some(50), Some(40)];

    fn table(rows: &[(i32, i32)]) -> impl Fn(i32) -> Option<Link> + use<'_> {
        move |pid| {
            let parent = rows.iter().find(|row| row.0 == pid)?.1;
            Some(Link {
                parent,
                start_time: 7,
            })
        }
    }

    #[test]
    fn descendant_of_daemon_is_inside() {
        let look = table(&[
            (1, 0),
            (40, 1),
            (50, 40),
            (60, 50),
            (61, 60),
            (70, 40),
            (9, 1),
        ]);
        for (pid, expected) in [
            (60, Descent::Ours),
            (61, Descent::Ours),
            (70, Descent::Ours),
            (9, Descent::Foreign),
            (1, Descent::Foreign),
            (50, Descent::Daemon),
            (40, Descent::Daemon),
            (99, Descent::Unknown),
            (0, Descent::Unknown),
            (-1, Descent::Unknown),
        ] {
            assert_eq!(trace(pid, HOUSE, &look), expected, "{pid}");
        }
    }

    #[test]
    fn parent_change_during_walk_is_unknown() {
        // The parent 60 of 61 has died, and its pid was reused by a child of init; then 61 is adopted by 40.
        let looks = Cell::new(0);
        let look = |pid| {
            looks.set(looks.get() + 1);
            let adopted = looks.get() > 1;
            let parent = match pid {
                61 if adopted => 40,
                61 => 60,
                60 => 1,
                _ => 0,
            };
            Some(Link {
                parent,
                start_time: 7,
            })
        };
        assert_eq!(trace(61, HOUSE, look), Descent::Ours);
        let restless = |pid| {
            looks.set(looks.get() + 1);
            Some(Link {
                parent: 0,
                start_time: looks.get() + u64::try_from(i32::max(pid, 0)).unwrap(),
            })
        };
        assert_eq!(trace(61, HOUSE, restless), Descent::Unknown);
    }

    #[test]
    fn own_process_is_outside() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.pid(), getpid());
        assert_eq!(peer.uid(), nix::unistd::geteuid().as_raw());
        assert_eq!(peer.lineage(None, None), Lineage::Outside);
    }
}
