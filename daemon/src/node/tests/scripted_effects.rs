//! Effects that a test executes itself: the real dispatcher looks calls up, and a script defines their effect.
//!
//! It verifies the rules for every effect: none before its announcement is durable, no second one of an `at_most_once`
//! attempt, none more often than it was announced.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::id::RunId;
use rye_core::machine::CallOutcome;
use rye_core::model::{Failure, KillReceipt, Resources, Slot};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::services::{AttemptCtx, Dispatch, Ended, Order, Prepared};
use crate::stop::Urgency;

/// Behaviour of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Answer,
    Fail,
    /// Waits until it is released or stopped.
    Hold,
    /// Keeps its thread busy until the daemon is gone.
    Compute,
}

/// Chooses the behaviour of an effect, by its attempt and by the number of earlier effects with its key.
type Script = dyn Fn(&AttemptCtx, usize) -> Act + Send + Sync;

pub(crate) struct ScriptedEffects {
    script: Box<Script>,
    progress: watch::Sender<StageProgress>,
    rules: Mutex<Rules>,
}

/// Conditions that a test may wait for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StageProgress {
    /// Number of held effects.
    pub(crate) held: usize,
    /// Number of stopped effects.
    pub(crate) stopped: usize,
    /// True if effects are no longer held.
    released: bool,
    /// Number of the daemon.
    life: usize,
}

#[derive(Default)]
struct Rules {
    begun: HashMap<String, usize>,
    active: HashMap<RunId, usize>,
    broken: Vec<String>,
}

impl ScriptedEffects {
    pub(crate) fn new(
        script: impl Fn(&AttemptCtx, usize) -> Act + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            progress: watch::Sender::default(),
            rules: Mutex::default(),
        })
    }

    /// Wraps the dispatcher of one daemon.
    pub(crate) fn wrap(self: &Arc<Self>, real: Arc<dyn Dispatch>) -> Arc<dyn Dispatch> {
        Arc::new(Door {
            stage: Arc::clone(self),
            life: self.progress.borrow().life,
            real,
        })
    }

    pub(crate) async fn until(&self, enough: impl Fn(&StageProgress) -> bool) {
        drop(
            self.progress
                .subscribe()
                .wait_for(|seen| enough(seen))
                .await,
        );
    }

    /// Releases all effects from now on.
    pub(crate) fn release(&self) {
        self.progress.send_modify(|seen| seen.released = true);
    }

    /// Holds effects by the script again.
    pub(crate) fn hold(&self) {
        self.progress.send_modify(|seen| seen.released = false);
    }

    /// Records that the daemon is gone, with all its effects.
    pub(crate) fn next_life(&self) {
        self.progress.send_modify(|seen| {
            seen.life += 1;
            seen.held = 0;
        });
        self.rules().active.clear();
    }

    /// Number of effects of `run` in progress.
    pub(crate) fn active(&self, run: &RunId) -> usize {
        self.rules().active.get(run).copied().unwrap_or_default()
    }

    /// Rules that were broken.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.rules().broken.clone()
    }

    pub(crate) fn breaks(&self, rule: String) {
        self.rules().broken.push(rule);
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap()
    }
}

struct Door {
    stage: Arc<ScriptedEffects>,
    life: usize,
    real: Arc<dyn Dispatch>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Door").field(&self.life).finish()
    }
}

impl Dispatch for Door {
    fn prepare(&self, orders: Vec<Order>) -> BoxFuture<'_, Vec<Prepared>> {
        self.real.prepare(orders)
    }

    fn carry_out<'a>(&'a self, _prepared: Prepared, cx: &'a AttemptCtx) -> BoxFuture<'a, Ended> {
        self.perform(cx).boxed()
    }

    fn check_limits(&self, requested: Resources) -> Result<(), String> {
        self.real.check_limits(requested)
    }
}

/// Counts an effect in progress until it is dropped.
struct Active<'a> {
    door: &'a Door,
    run: &'a RunId,
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if self.door.is_of_this_life() {
            let mut rules = self.door.stage.rules();
            *rules.active.entry(self.run.clone()).or_default() -= 1;
        }
    }
}

/// Counts a held effect until it is dropped.
struct HeldEffect<'a>(&'a Door);

impl Drop for HeldEffect<'_> {
    fn drop(&mut self) {
        if self.0.is_of_this_life() {
            self.0.stage.progress.send_modify(|seen| seen.held -= 1);
        }
    }
}

impl Door {
    fn is_of_this_life(&self) -> bool {
        self.stage.progress.borrow().life == self.life
    }

    async fn perform(&self, cx: &AttemptCtx) -> Ended {
        let (announced, at_most_once) = announced(cx).await;
        if !self.is_of_this_life() {
            return std::future::pending().await;
        }
        let earlier = {
            let mut rules = self.stage.rules();
            *rules.active.entry(cx.run.clone()).or_default() += 1;
            let begun = rules.begun.entry(cx.key.clone()).or_default();
            *begun += 1;
            let begun = *begun;
            let what = format!("step {} {:?} of {}", cx.step, cx.slot, cx.run);
            if announced == 0 {
                rules
                    .broken
                    .push(format!("{what} began before it was durable"));
            } else if at_most_once && begun > announced {
                rules.broken.push(format!(
                    "{what} began {begun} times, and was announced {announced} times"
                ));
            }
            begun - 1
        };
        let _active = Active {
            door: self,
            run: &cx.run,
        };
        let act = (self.stage.script)(cx, earlier);
        let released = self.stage.progress.borrow().released;
        match act {
            Act::Fail => ended(Some(Failure::permanent("failed", "on purpose"))),
            Act::Hold if !released => {
                self.stage.progress.send_modify(|seen| seen.held += 1);
                let _held = HeldEffect(self);
                tokio::select! {
                    // A stop that was raised before the release counts.
                    biased;
                    () = cx.stop.at_least(Urgency::Cancel) => {
                        self.stage.progress.send_modify(|seen| seen.stopped += 1);
                        Ended::Stopped(KillReceipt::default())
                    }
                    () = self.stage.until(|seen| seen.released) => ended(None),
                }
            }
            Act::Compute => {
                self.stage.progress.send_modify(|seen| seen.held += 1);
                let gone = self.stage.until(|seen| seen.life != self.life);
                let here = tokio::runtime::Handle::current();
                tokio::task::block_in_place(|| here.block_on(gone));
                std::future::pending().await
            }
            Act::Answer | Act::Hold => ended(None),
        }
    }
}

/// Number of durable announcements of the attempt, and true if it may happen only once.
async fn announced(cx: &AttemptCtx) -> (usize, bool) {
    let history = cx.services.journal.history(&cx.run).await.unwrap();
    let started = history.iter().filter(|line| {
        line.event_type.ends_with("_started") || line.event_type == "process_launched"
    });
    let (mut times, mut at_most_once) = (0, false);
    for line in started {
        let payload: Value = serde_json::from_str(&line.payload).unwrap();
        if payload.get("key") == Some(&json!(cx.key)) {
            times += 1;
            at_most_once |= payload.get("effect") == Some(&json!("at_most_once"));
        }
    }
    (times, at_most_once)
}

fn ended(failure: Option<Failure>) -> Ended {
    let result = match failure {
        Some(_) => Value::Null,
        None => json!({"n": 1}),
    };
    Ended::Outcome(Box::new(CallOutcome {
        failure,
        ..CallOutcome::known(result)
    }))
}

/// True if the attempt belongs to a node or to an item of a node.
pub(crate) const fn is_node(cx: &AttemptCtx) -> bool {
    matches!(cx.slot, Slot::Main | Slot::Part(_))
}
