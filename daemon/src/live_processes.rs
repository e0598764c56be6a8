//! The attempts of managed processes in flight: what they use now, and on which ports they listen.
//!
//! **Never** holds anything that is not read anew from the host, except the result of the last probe of health, and the
//! switch by which an attempt is frozen.

mod freeze_switch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rye_core::id::RunId;
use rye_host::task;
use rye_process::{Listener, Load, Members};
use serde_json::{Value, json};

pub use self::freeze_switch::{FreezeError, FreezeSwitch, SharedSwitch};

#[derive(Debug, Default)]
pub struct LiveProcesses(Arc<Mutex<Attempts>>);

type Attempts = HashMap<RunId, Attempt>;

#[derive(Debug, Clone)]
struct Attempt {
    members: Members,
    is_healthy: Option<bool>,
    switch: SharedSwitch,
}

/// Figures of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    pub load: Load,
    pub listening: Vec<Listener>,
    /// Result of the last probe of its health; `None` before the first one.
    pub is_healthy: Option<bool>,
}

impl Figures {
    /// Adds the figures to the JSON object of a process.
    pub fn add_to(&self, document: &mut Value) {
        let listening = self.listening.iter().map(|listener| {
            json!({"port": listener.port, "addr": listener.addr.to_string(), "pid": listener.pid})
        });
        document["listening"] = listening.collect();
        document["memory_bytes"] = json!(self.load.memory_bytes);
        document["cpu_ms"] = json!(self.load.cpu_ms);
        document["healthy"] = json!(self.is_healthy);
    }
}

/// An attempt in flight. Dropping it removes the attempt.
#[derive(Debug)]
pub struct LiveAttempt {
    attempts: Arc<Mutex<Attempts>>,
    run: RunId,
    switch: SharedSwitch,
}

fn lock(attempts: &Mutex<Attempts>) -> MutexGuard<'_, Attempts> {
    attempts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveProcesses {
    /// Adds the attempt `number` of the process `run`.
    pub fn enter(&self, run: &RunId, number: u32, members: Members) -> LiveAttempt {
        let switch = Arc::new(FreezeSwitch::new(number, members.freezer()));
        let attempt = Attempt {
            members,
            is_healthy: None,
            switch: Arc::clone(&switch),
        };
        lock(&self.0).insert(run.clone(), attempt);
        LiveAttempt {
            attempts: Arc::clone(&self.0),
            run: run.clone(),
            switch,
        }
    }

    /// Returns the switch that freezes the process `run`; `None` if no attempt is in flight.
    pub fn switch(&self, run: &RunId) -> Option<SharedSwitch> {
        let attempts = lock(&self.0);
        attempts.get(run).map(|attempt| Arc::clone(&attempt.switch))
    }

    /// Returns the figures of the process `run`; `None` if no attempt is in flight.
    pub async fn figures(&self, run: &RunId) -> Option<Figures> {
        let attempt = lock(&self.0).get(run).cloned()?;
        let read = move || Figures {
            load: attempt.members.load(),
            listening: attempt.members.listening(),
            is_healthy: attempt.is_healthy,
        };
        Some(task::blocking("read the figures of a process", read).await)
    }
}

impl LiveAttempt {
    pub fn switch(&self) -> &FreezeSwitch {
        &self.switch
    }

    pub fn note_health(&self, is_healthy: bool) {
        if let Some(attempt) = lock(&self.attempts).get_mut(&self.run) {
            attempt.is_healthy = Some(is_healthy);
        }
    }
}

impl Drop for LiveAttempt {
    fn drop(&mut self) {
        lock(&self.attempts).remove(&self.run);
    }
}
