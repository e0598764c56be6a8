//! The processes of an attempt in flight: what they use, and the ports on which they listen.
//!
//! **Order.** Everything is read from `/proc` when it is requested, and may be out of date when it is returned. All
//! functions block.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::cgroup;
use super::freezer::Freezer;
use super::plan::ATTEMPT_VARIABLE;
use super::procfs::{self, Stat, Variable};

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The processes of an attempt.
#[derive(Debug, Clone)]
pub struct Members {
    /// Pid of the leader.
    leader: i32,
    /// Process that adopts orphans.
    adopter: Option<i32>,
    tag: String,
    /// Cgroup of the attempt, if the host has one for it.
    cgroup: Option<PathBuf>,
}

/// A port on which a process of an attempt listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    pub port: u16,
    pub addr: IpAddr,
    pub pid: i32,
}

/// Resources in use by the living processes of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub memory_bytes: u64,
    /// Processor time so far in milliseconds.
    pub cpu_ms: u64,
}

/// Owner of a port of this host, as far as programs of this host reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortOwner {
    /// Nothing listens.
    Nobody,
    Attempt,
    /// Another process; unknown if it belongs to another user.
    Stranger(Option<(i32, String)>),
}

impl Members {
    pub(super) const fn new(
        leader: i32,
        adopter: Option<i32>,
        tag: String,
        cgroup: Option<PathBuf>,
    ) -> Self {
        Self {
            leader,
            adopter,
            tag,
            cgroup,
        }
    }

    /// Returns the living processes. Without a cgroup, these are the tree of the leader, and what was adopted from it.
    fn all(&self) -> Vec<Stat> {
        if let Some(cgroup) = &self.cgroup {
            return cgroup::members(cgroup);
        }
        let mut members = procfs::tree(self.leader);
        let adopted = self.adopter.into_iter().flat_map(|adopter| {
            let others = procfs::all().into_iter();
            others.filter(move |stat| stat.parent == adopter && stat.pid != self.leader)
        });
        let tagged = adopted.filter(|stat| {
            stat.session == self.leader
                || matches!(stat.variable(ATTEMPT_VARIABLE), Variable::Is(tag) if tag == self.tag.as_bytes())
        });
        for orphan in tagged {
            members.extend(procfs::tree(orphan.pid));
        }
        members.retain(Stat::is_alive);
        members
    }

    /// Freezer of the attempt; `None` on a host without cgroups for attempts.
    pub fn freezer(&self) -> Option<Freezer> {
        self.cgroup.as_deref().map(Freezer::new)
    }

    pub fn load(&self) -> Load {
        let pids: Vec<Pid> = self
            .all()
            .iter()
            .filter_map(|stat| u32::try_from(stat.pid).ok())
            .map(Pid::from_u32)
            .collect();
        let mut system = System::new();
        let what = ProcessRefreshKind::nothing().with_memory().with_cpu();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&pids), true, what);
        let processes = pids.iter().filter_map(|pid| system.process(*pid));
        processes.fold(Load::default(), |sum, process| Load {
            memory_bytes: sum.memory_bytes + process.memory(),
            cpu_ms: sum.cpu_ms + process.accumulated_cpu_time(),
        })
    }

    /// Returns the ports on which the attempt listens, in their order.
    pub fn listening(&self) -> Vec<Listener> {
        let sockets = listening_sockets();
        let mut found = BTreeSet::new();
        for stat in self.all() {
            for inode in sockets_of(stat.pid) {
                found.extend(sockets.get(&inode).map(|&(addr, port)| Listener {
                    port,
                    addr,
                    pid: stat.pid,
                }));
            }
        }
        // A server that forks has each socket several times.
        let mut by_socket = BTreeMap::new();
        for listener in found {
            by_socket
                .entry((listener.port, listener.addr))
                .or_insert(listener);
        }
        by_socket.into_values().collect()
    }

    /// Returns the owner of `port`. If the attempt shares it with another process, that process is returned, because a
    /// connection may reach it.
    pub fn owner_of(&self, port: u16) -> PortOwner {
        let mut sockets: BTreeSet<u64> = listening_sockets()
            .into_iter()
            .filter(|(_, (addr, number))| *number == port && is_local(addr))
            .map(|(inode, _)| inode)
            .collect();
        if sockets.is_empty() {
            return PortOwner::Nobody;
        }
        for stat in self.all() {
            for inode in sockets_of(stat.pid) {
                sockets.remove(&inode);
            }
            if sockets.is_empty() {
                return PortOwner::Attempt;
            }
        }
        let others = procfs::all().into_iter();
        let mut strangers = others.filter(|stat| {
            let held = sockets_of(stat.pid);
            held.iter().any(|inode| sockets.contains(inode))
        });
        let stranger = strangers.next();
        PortOwner::Stranger(stranger.map(|stat| (stat.pid, stat.comm)))
    }
}

/// True if a connection to the loopback interface reaches a socket bound to `addr`.
fn is_local(addr: &IpAddr) -> bool {
    let is_loopback = match addr {
        IpAddr::V4(addr) => addr.is_loopback(),
        IpAddr::V6(addr) => {
            let v4 = addr.to_ipv4_mapped();
            addr.is_loopback() || v4.is_some_and(|v4| v4.is_loopback() || v4.is_unspecified())
        }
    };
    is_loopback || addr.is_unspecified()
}

/// Returns the listening sockets of the network of this process: address and port by inode.
fn listening_sockets() -> HashMap<u64, (IpAddr, u16)> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    // A host without IPv6 has one table.
    let tables = tables.into_iter().filter_map(|path| fs::read(path).ok());
    let mut sockets = HashMap::new();
    for table in tables {
        sockets.extend(String::from_utf8_lossy(&table).lines().filter_map(listener));
    }
    sockets
}

/// Reads a line of such a table: `sl local remote st … inode …`.
fn listener(line: &str) -> Option<(u64, (IpAddr, u16))> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != LISTEN {
        return None;
    }
    let (addr, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let inode = fields.get(9)?.parse().ok()?;
    Some((inode, (address(addr)?, port)))
}

/// Reads an address: words of four bytes in the order of this host.
fn address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(8 * at..8 * at + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// Returns the sockets that the process `pid` has open; none if access is denied.
fn sockets_of(pid: i32) -> Vec<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = entries.into_iter().flatten().filter_map(Result::ok);
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            inode.strip_suffix(']')?.parse().ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nix::unistd::getpid;

    use super::*;

    fn own(leader: i32) -> Members {
        Members::new(leader, None, String::new(), None)
    }

    #[test]
    fn line_of_the_table_is_read() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 x";
        let (inode, (addr, port)) = listener(line).unwrap();
        assert_eq!(
            (inode, addr.to_string(), port),
            (4711, "127.0.0.1".into(), 8080)
        );
        let six = line.replace("0100007F", "00000000000000000000000001000000");
        assert_eq!(listener(&six).unwrap().1.0.to_string(), "::1");
        for bad in [
            line.replace(" 0A ", " 01 "),
            line.replace("0100007F", "01"),
            line.replace("4711", "x"),
            "sl local".to_owned(),
        ] {
            assert_eq!(listener(&bad), None, "{bad}");
        }
        for (addr, expected) in [
            ("127.0.0.2", true),
            ("0.0.0.0", true),
            ("::", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_local(&addr.parse().unwrap()), expected, "{addr}");
        }
    }

    #[test]
    fn port_belongs_to_the_tree_that_listens() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = server.local_addr().unwrap();
        let pid = getpid().as_raw();
        let members = own(pid);
        assert_eq!(members.owner_of(addr.port()), PortOwner::Attempt);
        let listening = members.listening();
        let of_server = listening.iter().find(|one| one.port == addr.port());
        assert_eq!(
            of_server.map(|one| (one.addr, one.pid)),
            Some((addr.ip(), pid))
        );
        assert!(members.load().memory_bytes > 0);
        // A pid that no process has.
        let stranger = own(i32::MAX);
        let PortOwner::Stranger(found) = stranger.owner_of(addr.port()) else {
            panic!("another process listens there");
        };
        assert_eq!(found.map(|(found, _)| found), Some(pid));
        drop(server);
        assert_eq!(members.owner_of(addr.port()), PortOwner::Nobody);
    }
}
