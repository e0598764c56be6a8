//! Free ports for managed processes.
//!
//! **Owns** the sockets that keep the chosen ports of an attempt from its choice until its program is executed. They are
//! bound and never listen, so the program can bind the port as soon as they are closed. **Never** gives a port to
//! another process within a minute. **Failure.** [`NoFreePort`] if the range is used up.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rye_core::id::RunId;
use rye_core::model::Ports;
use rye_core::process::PortQuery;
use tokio::net::TcpSocket;
use tokio::time::Instant;

use crate::config::PortRange;
use rye_host::task;

/// Time for which a port is not given to another process.
const REST: Duration = Duration::from_mins(1);

/// The range of ports is used up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no port from {range} is free for `{name}`: stop processes, or extend the setting `ports.range`"
)]
pub struct NoFreePort {
    name: String,
    range: PortRange,
}

/// The ports of all managed processes.
#[derive(Debug)]
pub struct PortTable {
    range: PortRange,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Ports of attempts that have not started.
    held: HashMap<RunId, BTreeMap<String, Reservation>>,
    /// The process that was last given a port, and the time.
    given: HashMap<u16, (RunId, Instant)>,
    /// Offset of the next port to try in the range.
    next: u16,
}

/// A port, bound on both loopback addresses.
#[derive(Debug)]
struct Reservation {
    port: u16,
    /// Held for their being open.
    _sockets: Vec<TcpSocket>,
}

impl PortTable {
    /// Begins at a random port of `range`: another daemon of this host has the same range, and a port is free between
    /// its release and the start of the server.
    pub fn new(range: PortRange) -> Self {
        let mut random = [0; 2];
        getrandom::fill(&mut random).expect("the kernel has a random source");
        let count = u32::from(range.0.end() - range.0.start()) + 1;
        let next = u32::from(u16::from_ne_bytes(random)) % count;
        let shared = Shared {
            next: u16::try_from(next).expect("it is below the number of ports"),
            ..Shared::default()
        };
        Self {
            range,
            shared: Mutex::new(shared),
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses ports for the next attempt of `run`, and keeps them until [`release`](Self::release). Ports that the
    /// attempt has already are returned again.
    pub async fn reserve(
        self: &Arc<Self>,
        run: &RunId,
        query: &PortQuery,
    ) -> Result<Ports, NoFreePort> {
        let (this, run, query) = (Arc::clone(self), run.clone(), query.clone());
        let now = Instant::now();
        task::blocking("choose ports", move || this.choose(&run, &query, now)).await
    }

    fn choose(&self, run: &RunId, query: &PortQuery, now: Instant) -> Result<Ports, NoFreePort> {
        let mut shared = self.shared();
        shared
            .given
            .retain(|_, (_, since)| now.duration_since(*since) < REST);
        let mut held = shared.held.remove(run).unwrap_or_default();
        held.retain(|name, _| query.auto.contains(name));
        for name in &query.auto {
            if held.contains_key(name) {
                continue;
            }
            let preferred = query.preferred.get(name).copied();
            let reservation = preferred
                .filter(|port| shared.may_give(*port, run))
                .and_then(|port| Reservation::again(port).ok())
                .or_else(|| shared.next_free(&self.range));
            let Some(reservation) = reservation else {
                return Err(NoFreePort {
                    name: name.clone(),
                    range: self.range.clone(),
                });
            };
            shared.given.insert(reservation.port, (run.clone(), now));
            held.insert(name.clone(), reservation);
        }
        let ports = held.iter().map(|(name, held)| (name.clone(), held.port));
        let ports = ports.collect();
        shared.held.insert(run.clone(), held);
        Ok(ports)
    }

    /// Closes the sockets that keep the ports of `run`.
    pub fn release(&self, run: &RunId) {
        let held = self.shared().held.remove(run);
        drop(held);
    }
}

impl Shared {
    /// True if `run` may have `port` as far as other processes are concerned.
    fn may_give(&self, port: u16, run: &RunId) -> bool {
        self.given.get(&port).is_none_or(|(owner, _)| owner == run)
    }

    /// Returns the next port that can be bound and was not given to any process recently.
    fn next_free(&mut self, range: &PortRange) -> Option<Reservation> {
        let (first, last) = (*range.0.start(), *range.0.end());
        for _ in first..=last {
            let port = first + self.next;
            self.next = if port == last { 0 } else { self.next + 1 };
            if self.given.contains_key(&port) {
                continue;
            }
            if let Ok(free) = Reservation::new(port) {
                return Some(free);
            }
        }
        None
    }
}

impl Reservation {
    /// Reserves a port on which nothing listens, and which has no connections, either.
    fn new(port: u16) -> io::Result<Self> {
        Self::bound(port, false)
    }

    /// Reserves a port that the same process had before. Its old connections do not matter.
    fn again(port: u16) -> io::Result<Self> {
        Self::bound(port, true)
    }

    fn bound(port: u16, reuse: bool) -> io::Result<Self> {
        let bind = |socket: TcpSocket, addr: SocketAddr| {
            socket.set_reuseaddr(reuse)?;
            socket.bind(addr)?;
            io::Result::Ok(socket)
        };
        let v4 = bind(TcpSocket::new_v4()?, (Ipv4Addr::LOCALHOST, port).into())?;
        let v6 = TcpSocket::new_v6().and_then(|v6| bind(v6, (Ipv6Addr::LOCALHOST, port).into()));
        let v6 = match v6 {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            // A host without IPv6.
            v6 => v6.ok(),
        };
        Ok(Self {
            port,
            _sockets: std::iter::once(v4).chain(v6).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn query(names: &[&str]) -> PortQuery {
        PortQuery {
            auto: names.iter().map(|name| (*name).to_owned()).collect(),
            preferred: Ports::new(),
        }
    }

    fn run(name: &str) -> RunId {
        RunId::new(format!("{name}-1-a")).unwrap()
    }

    /// A range of `length` ports that are free.
    fn free_range(length: u16) -> PortRange {
        let is_free = |port: &u16| Reservation::new(*port).is_ok();
        let mut starts = (33..2000_u16).map(|n| n * 16 + 7);
        let first = starts.find(|first| (*first..first + length).all(|port| is_free(&port)));
        let first = first.unwrap();
        PortRange(first..=first + length - 1)
    }

    #[tokio::test(start_paused = true)]
    async fn port_is_kept_until_release_and_rests_for_a_minute() {
        let range = free_range(3);
        let table = Arc::new(PortTable::new(range.clone()));
        let first = table.reserve(&run("a"), &query(&["x", "y"])).await.unwrap();
        assert_eq!(first.len(), 2);
        assert_ne!(first["x"], first["y"]);
        let again = table.reserve(&run("a"), &query(&["x", "y"])).await;
        assert_eq!(again.unwrap(), first, "asked twice for one attempt");
        assert!(TcpListener::bind(("127.0.0.1", first["x"])).is_err());
        table.release(&run("a"));
        TcpListener::bind(("127.0.0.1", first["x"])).unwrap();
        let other = table.reserve(&run("b"), &query(&["x"])).await.unwrap();
        assert!(!first.values().any(|port| *port == other["x"]));
        let none = table.reserve(&run("c"), &query(&["z"])).await.unwrap_err();
        let text = format!("no port from {range} is free for `z`");
        assert!(none.to_string().starts_with(&text), "{none}");
        tokio::time::advance(REST).await;
        table.reserve(&run("c"), &query(&["z"])).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn restart_gets_its_port_again_unless_it_is_taken() {
        let table = Arc::new(PortTable::new(free_range(2)));
        let first = table.reserve(&run("a"), &query(&["x"])).await.unwrap();
        table.release(&run("a"));
        let again = PortQuery {
            preferred: first.clone(),
            ..query(&["x"])
        };
        assert_eq!(table.reserve(&run("a"), &again).await.unwrap(), first);
        table.release(&run("a"));
        let _stranger = TcpListener::bind(("127.0.0.1", first["x"])).unwrap();
        assert_ne!(table.reserve(&run("a"), &again).await.unwrap(), first);
    }
}
