//! Who is at the other end of a socket, and does it belong to us?

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::unistd::{Pid, getpid};

use super::Error;
use super::pidfd;
use super::procfs::Stat;

/// How often the walk is repeated when the table changes under it.
const TRIES: usize = 4;

/// A chain of parents longer than this is not believed.
const LONGEST_CHAIN: usize = 4096;

/// Where a caller comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lineage {
    /// It does not descend from the daemon or its parent.
    Outside,
    /// It does: it is part of a run.
    Inside,
    /// It is gone, in another pid namespace, hidden from us, or changing too fast.
    Unknown,
}

/// The process that connected to a socket.
#[derive(Debug)]
pub struct Peer {
    pid: Pid,
    uid: u32,
    /// A handle on it; `None` if it had ended when we asked.
    pidfd: Option<OwnedFd>,
}

/// What the walk needs to know of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    parent: i32,
    start_time: u64,
}

impl Peer {
    /// Reads who connected `socket`, a Unix stream socket.
    pub fn of(socket: &impl AsFd) -> Result<Self, Error> {
        let credentials = getsockopt(socket, PeerCredentials)
            .map_err(io::Error::from)
            .map_err(Error::Credentials)?;
        // Linux 6.5 hands out the descriptor it took when the peer connected. Before that the pid is looked up now:
        // a peer that connected, ended, and had its pid taken over in between passes for the one who took it.
        let pidfd = getsockopt(socket, PeerPidfd)
            .or_else(|_| pidfd::open(credentials.pid()))
            .ok();
        Ok(Self {
            pid: Pid::from_raw(credentials.pid()),
            uid: credentials.uid(),
            pidfd,
        })
    }

    /// Its process id, as we see it; 0 if it is in another pid namespace.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its effective user id when it connected.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Whether it descends from this process or from `parent`, the parent process of this daemon.
    pub fn lineage(&self, parent: Option<Pid>) -> Lineage {
        let house = [Some(getpid()), parent].map(|pid| pid.map(Pid::as_raw));
        let lineage = trace(self.pid.as_raw(), house, |pid| {
            Stat::read(pid).map(|stat| Link {
                parent: stat.parent,
                start_time: stat.start_time,
            })
        });
        // Only if it is alive now did its pid mean it all the time.
        match &self.pidfd {
            Some(pidfd) if !pidfd::has_ended_by(pidfd.as_fd(), Instant::now()) => lineage,
            Some(_) | None => Lineage::Unknown,
        }
    }
}

/// Walks from `pid` to a member of `house`, or to a process without parent.
///
/// A parent's pid may pass to another process during the walk. So each step is read again afterwards: a process whose
/// parent field is unchanged had that parent all the time, because the field changes only when the parent dies, and
/// then never back.
fn trace(pid: i32, house: [Option<i32>; 2], look: impl Fn(i32) -> Option<Link>) -> Lineage {
    if pid <= 0 {
        return Lineage::Unknown;
    }
    if house.contains(&Some(pid)) {
        return Lineage::Outside;
    }
    for _ in 0..TRIES {
        let mut chain: Vec<(i32, Link)> = Vec::new();
        let mut at = pid;
        let found = loop {
            let Some(link) = look(at) else { break None };
            chain.push((at, link));
            if house.contains(&Some(link.parent)) {
                break Some(Lineage::Inside);
            }
            if link.parent == 0 {
                break Some(Lineage::Outside);
            }
            if chain.len() > LONGEST_CHAIN {
                break None;
            }
            at = link.parent;
        };
        let still = chain.iter().all(|(pid, link)| look(*pid) == Some(*link));
        if let (Some(lineage), true) = (found, still) {
            return lineage;
        }
    }
    Lineage::Unknown
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
    fn a_process_that_descends_from_the_daemon_is_inside() {
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
            (60, Lineage::Inside),
            (61, Lineage::Inside),
            (70, Lineage::Inside),
            (9, Lineage::Outside),
            (1, Lineage::Outside),
            (50, Lineage::Outside),
            (40, Lineage::Outside),
            (99, Lineage::Unknown),
            (0, Lineage::Unknown),
            (-1, Lineage::Unknown),
        ] {
            assert_eq!(trace(pid, HOUSE, &look), expected, "{pid}");
        }
    }

    #[test]
    fn a_parent_that_changes_during_the_walk_is_not_believed() {
        // 61's parent 60 has died and its pid passed to a process of init; then 61 is seen adopted by 40.
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
        assert_eq!(trace(61, HOUSE, look), Lineage::Inside);
        let restless = |pid| {
            looks.set(looks.get() + 1);
            Some(Link {
                parent: 0,
                start_time: looks.get() + u64::try_from(i32::max(pid, 0)).unwrap(),
            })
        };
        assert_eq!(trace(61, HOUSE, restless), Lineage::Unknown);
    }

    #[test]
    fn this_process_is_its_own_peer_and_outside() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.pid(), getpid());
        assert_eq!(peer.uid(), nix::unistd::geteuid().as_raw());
        assert_eq!(peer.lineage(None), Lineage::Outside);
    }
}
