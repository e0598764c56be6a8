//! Foreign processes that get the pids of processes which have just ended.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rye_tests::command::program;
use rye_tests::skipped;

/// Most foreign processes.
const MOST: usize = 64;
/// Pause between looks for a free pid.
const PAUSE: Duration = Duration::from_millis(1);
/// File with the last pid that was given. The next process gets the following one.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// A thread that starts a foreign process under each watched pid that becomes free. A drop asserts that none of them was
/// signalled.
#[derive(Debug)]
pub(super) struct Recycler {
    watched: Arc<Mutex<VecDeque<i32>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Child>>>,
}

impl Recycler {
    pub(super) fn start() -> Self {
        let watched: Arc<Mutex<VecDeque<i32>>> = Arc::default();
        let is_over: Arc<AtomicBool> = Arc::default();
        let thread = {
            let (watched, is_over) = (Arc::clone(&watched), Arc::clone(&is_over));
            let named = thread::Builder::new().name("recycler".to_owned());
            named.spawn(move || recycle(&watched, &is_over)).unwrap()
        };
        Self {
            watched,
            is_over,
            thread: Some(thread),
        }
    }

    /// Starts no process while `work` signals pids that it has just looked up.
    pub(super) fn pause<T>(&self, work: impl FnOnce() -> T) -> T {
        let _none_starts = self.watched.lock().unwrap();
        work()
    }

    /// Adds pids.
    pub(super) fn watch(&self, pids: &[i32]) {
        self.watched.lock().unwrap().extend(pids);
    }
}

impl Drop for Recycler {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let foreign = self.thread.take().map(|thread| thread.join().unwrap());
        let mut harmed = Vec::new();
        for mut child in foreign.into_iter().flatten() {
            harmed.extend(child.try_wait().unwrap());
            end(child);
        }
        assert!(
            harmed.is_empty() || thread::panicking(),
            "foreign processes were ended: {harmed:?}"
        );
    }
}

/// Returns the foreign processes.
fn recycle(watched: &Mutex<VecDeque<i32>>, is_over: &AtomicBool) -> Vec<Child> {
    let mut foreign = Vec::new();
    while !is_over.load(Ordering::Relaxed) && foreign.len() < MOST {
        thread::sleep(PAUSE);
        let mut watched = watched.lock().unwrap();
        let free: Vec<i32> = watched
            .iter()
            .copied()
            .filter(|pid| is_free(*pid))
            .collect();
        watched.retain(|pid| !free.contains(pid));
        for pid in free {
            if let Err(refused) = fs::write(LAST_PID, (pid - 1).to_string()) {
                skipped(&format!("pids cannot be chosen: {refused}"));
                return foreign;
            }
            let mut sleep = program("sleep");
            let child = sleep.arg("1000").stdin(Stdio::null()).spawn().unwrap();
            if child.id() == pid.unsigned_abs() {
                foreign.push(child);
            } else {
                // Another process was faster.
                end(child);
            }
        }
    }
    foreign
}

fn is_free(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

fn end(mut child: Child) {
    drop(child.kill());
    let _status = child.wait().unwrap();
}
