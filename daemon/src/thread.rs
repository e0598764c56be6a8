//! Threads: their machine is the [`ThreadMachine`], their steps are calls of a model, and their messages are entries of
//! a conversation.
//!
//! **Owns** the conversation of a live thread in memory, and its slot at the provider. **Never** decides: the machine
//! does.
//!
//! **Order.** An entry is on disk before the commit that names it. The slot at the provider is acquired before money is
//! held, so a wait costs nothing. Model output is reported part by part, in the order of the stream, and its end last.
//! **Failure.** A missing or damaged entry ends the thread with an error that names it; nothing is sent then. The
//! machine receives every failure of a model call with its meaning ([`rye_core::provider::failure`]).

mod compose;
mod delta_stream;
mod live_conversation;
mod model_call;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use rye_core::cas::InputHashes;
use rye_core::conversation::{Entry, Message, Source};
use rye_core::error::with_sources;
use rye_core::machine::{Call, CallOutcome, ResultText};
use rye_core::model::thread::TurnWait;
use rye_core::model::{Effect, Failure, Run, Slot, ThreadSource};
use rye_core::provider::Owner;
use rye_core::thread::{
    Composed, Funds, ModelSignal, Terms, ThreadAnswer, ThreadMachine, ThreadQuery,
};
use rye_item::Library;
use serde_json::Value;

pub use self::compose::{INTEGRITY, prompt};
use self::live_conversation::LiveConversation;
use crate::chain::{Chain, dot_env};
use crate::children::{self, Child, Lookup};
use crate::drive::{self, Job, Kind, Reports, RunContext};
use crate::provider::{Admission, CallPermit, ProjectEnv, QueuedCall, Wait};
use crate::services::{Ended, Prepared, TraceMode};
use crate::stop::{DriverExit, Stop};
use rye_host::fail_point;

struct ThreadRun {
    at: RunContext,
    terms: Arc<Terms>,
    conversation: LiveConversation,
    /// The next call of the model, from its place in the queue of the provider until it begins.
    next_call: Mutex<NextCall>,
}

/// The next call of the model.
#[derive(Debug, Default)]
enum NextCall {
    #[default]
    None,
    Queued(QueuedCall),
    Permitted(CallPermit),
}

/// Executor of a call.
enum Planned {
    Model,
    Tool(Box<Prepared>),
    Child(Child),
}

/// Drives the thread `run`, which works on `source`, until it ends, is suspended, or the daemon stops.
pub async fn drive(
    at: RunContext,
    source: &ThreadSource,
    run: &Arc<Run>,
    stop: &Stop,
) -> Result<DriverExit, rye_journal::Error> {
    let services = Arc::clone(&at.services);
    let terms = match services.contracts.read(&source.contract) {
        Ok(terms) => terms,
        Err(problem) => {
            let text = format!("the record of the thread cannot be read: {problem}");
            let failure = Failure::permanent("internal", text);
            return drive::fail(&services.journal, run, failure).await;
        }
    };
    let kind = ThreadRun {
        conversation: LiveConversation::new(&services.journal),
        at,
        terms,
        next_call: Mutex::default(),
    };
    drive::drive(&services, Arc::new(kind), run, stop).await
}

impl ThreadRun {
    fn next_call(&self) -> MutexGuard<'_, NextCall> {
        let next = self.next_call.lock();
        next.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the permit of the next call, if there is one.
    fn take_permit(&self) -> Option<CallPermit> {
        match std::mem::take(&mut *self.next_call()) {
            NextCall::Permitted(permit) => Some(permit),
            NextCall::None | NextCall::Queued(_) => None,
        }
    }

    /// Waits for the permit of the next call. Returns the answer if there is none yet.
    async fn permit(&self) -> Result<(), ThreadAnswer> {
        let services = &self.at.services;
        let next = std::mem::take(&mut *self.next_call());
        let queued = match next {
            NextCall::Permitted(permit) => {
                *self.next_call() = NextCall::Permitted(permit);
                return Ok(());
            }
            NextCall::Queued(queued) => queued,
            NextCall::None => {
                let model = &self.terms.contract.model;
                let project = match model.endpoint.owner {
                    Owner::User => ProjectEnv::default(),
                    Owner::Project => self.project_env().await,
                };
                let queued = services.providers.join(model, &project).await;
                queued.map_err(|error| {
                    let text = with_sources(&error);
                    ThreadAnswer::Unusable(Failure::permanent("model_unusable", text))
                })?
            }
        };
        match queued.progress().await {
            Admission::Granted(permit) => {
                *self.next_call() = NextCall::Permitted(permit);
                Ok(())
            }
            Admission::Queued(queued, wait) => {
                *self.next_call() = NextCall::Queued(queued);
                let tick = services.clock.tick();
                let until = match wait {
                    Wait::Until(up) => Some(tick.at.plus(up.since(tick.up))),
                    Wait::ForSlot => None,
                };
                Err(ThreadAnswer::Waits(TurnWait::for_provider(until)))
            }
        }
    }

    /// Composes the prompt, and stores the first entry of the conversation.
    async fn compose(&self) -> Result<ThreadAnswer, rye_journal::Error> {
        let contract = &self.terms.contract;
        fail_point::reach(fail_point::FailPlace::Composing);
        let prompt = match compose::compose(&self.at, contract).await {
            Ok(prompt) => prompt,
            Err(failure) => return Ok(ThreadAnswer::Failed(failure)),
        };
        let root = contract.root(prompt.system.clone());
        let first = Message::text(Source::Directive, prompt.message.clone());
        let (head, bytes) = self
            .conversation
            .begin(root, first, &contract.model)
            .await?;
        Ok(ThreadAnswer::Composed(Box::new(Composed {
            system: prompt.system,
            message: prompt.message,
            head,
            bytes,
            warnings: prompt.warnings,
        })))
    }

    /// Waits for a slot at the provider, then checks the available money.
    async fn funds(&self) -> ThreadAnswer {
        if let Err(answer) = self.permit().await {
            return answer;
        }
        let services = &self.at.services;
        let account = &self.at.spec.budget.account;
        let Some((next, left)) = services.journal.spendable(account) else {
            let text = "the account of the thread is gone";
            return ThreadAnswer::Failed(Failure::permanent("internal", text));
        };
        ThreadAnswer::Funds(Funds {
            next,
            left,
            meters: services.caps.in_force(services.journal.now()),
        })
    }

    /// Variables of the project for its own provider files.
    async fn project_env(&self) -> ProjectEnv {
        let project = self.at.spec.project.clone();
        let read = move |_: &Library| ProjectEnv::new(&project, dot_env(Path::new(&project)));
        let visit = self.at.project.visit("read the variables", read);
        // A missing project has no variables.
        let none = |_gone| ProjectEnv::new(&self.at.spec.project, []);
        visit.await.unwrap_or_else(none)
    }

    async fn call_tool(&self, call: &Call, prepared: Prepared, stop: &Stop) -> Ended {
        let heading = match call.slot {
            Slot::Part(place) => format!("turn {} {}[{place}]", call.step, call.item.id),
            Slot::Main | Slot::Hook(_) => format!("turn {} {}", call.step, call.item.id),
        };
        self.at.carry_out(call, prepared, stop, &heading).await
    }

    /// Outcome of a call in the form the model receives. The full text of a long result is stored first.
    async fn store_long_result(&self, call: &Call, came_to: Box<CallOutcome>) -> Box<CallOutcome> {
        let record = self.at.services.journal.snapshot(&self.at.run);
        let turn = record.as_ref().and_then(|record| record.thread()?.turn());
        let Some(turn) = turn else {
            // The run has ended meanwhile.
            return came_to;
        };
        let contract = &self.terms.contract;
        let artifact = contract.shown(turn, &came_to, call.result_text).artifact;
        let Some(artifact) = artifact else {
            return came_to;
        };
        match self.conversation.keep(artifact.text).await {
            Ok(_name) => came_to,
            Err(error) => {
                let text = format!(
                    "the result was too long to be sent, and could not be stored: {}",
                    with_sources(&error)
                );
                Box::new(CallOutcome {
                    failure: Some(Failure::permanent("storage", text)),
                    certainty: came_to.certainty,
                    ..CallOutcome::known(Value::Null)
                })
            }
        }
    }

    /// Looks up the executor of a tool call: the tool itself, or a child run if it is a graph or starts a thread.
    async fn look_up_tool(&self, run: &Run, call: &Call) -> Job<Planned> {
        let (found, hashes) = if let Some(found) = children::attached(call) {
            (found, InputHashes::default())
        } else {
            let prepared = self.at.prepare(call, TraceMode::Off).await;
            let Some(wanted) = prepared.child_request(&call.params) else {
                let hashes = prepared.hashes(call, None);
                return match prepared.shortage() {
                    Some(lack) => Job::Exhausted(lack),
                    None => begin(Planned::Tool(Box::new(prepared)), hashes),
                };
            };
            let found = children::nest(&self.at.services, run, call, wanted).await;
            let hashes = prepared.hashes(call, found.directive());
            (found, hashes)
        };
        let found = match found {
            Lookup::Answer(answer) => Lookup::Answer(self.store_long_result(call, answer).await),
            found @ Lookup::Run(..) => found,
        };
        found.job(hashes, Planned::Child)
    }
}

/// Job of a call that needs no child run.
fn begin(plan: Planned, hashes: InputHashes) -> Job<Planned> {
    Job::Begin {
        plan,
        child: None,
        creates: Vec::new(),
        hashes,
    }
}

impl Kind for ThreadRun {
    type Machine = ThreadMachine;
    type Plan = Planned;

    fn machine(&self, run: Arc<Run>) -> ThreadMachine {
        ThreadMachine::new(Arc::clone(&self.terms), run)
    }

    async fn look_up(&self, run: &Run, calls: &[&Call]) -> Vec<Job<Planned>> {
        let look_ups = calls.iter().map(async |call| match call.slot {
            Slot::Main | Slot::Hook(_) => begin(Planned::Model, InputHashes::default()),
            Slot::Part(_) => self.look_up_tool(run, call).await,
        });
        join_all(look_ups).await
    }

    fn effect(plan: &Planned) -> Option<Effect> {
        match plan {
            Planned::Tool(prepared) => prepared.chain.as_ref().and_then(Chain::effect),
            Planned::Model | Planned::Child(_) => None,
        }
    }

    fn replays(plan: &Planned) -> bool {
        match plan {
            Planned::Tool(prepared) => prepared.chain.as_ref().is_some_and(Chain::replays),
            Planned::Model | Planned::Child(_) => false,
        }
    }

    fn result_text(plan: &Planned) -> ResultText {
        match plan {
            Planned::Tool(prepared) => prepared.result_text(),
            Planned::Model | Planned::Child(_) => ResultText::default(),
        }
    }

    async fn answer(
        &self,
        run: &Run,
        query: &ThreadQuery,
    ) -> Result<ThreadAnswer, rye_journal::Error> {
        match query {
            ThreadQuery::Compose => self.compose().await,
            ThreadQuery::Funds => Ok(self.funds().await),
            ThreadQuery::Keep(entry) => Ok(ThreadAnswer::Kept(
                self.conversation.push(Entry::clone(entry)).await?,
            )),
            ThreadQuery::Reseed => {
                let state = run.thread();
                let head = state.and_then(|state| state.head.as_ref());
                let model = &self.terms.contract.model;
                match head {
                    Some(head) => self.conversation.reseed(head, model).await,
                    None => Ok(ThreadAnswer::Failed(Failure::permanent(
                        "internal",
                        "there is no conversation to tell anew",
                    ))),
                }
            }
            ThreadQuery::Read(position, reading) => {
                let part = self.conversation.part(reading.clone()).await;
                Ok(ThreadAnswer::Read(*position, part))
            }
        }
    }

    async fn carry_out(
        &self,
        call: &Call,
        plan: Planned,
        stop: &Stop,
        reports: &Reports<ModelSignal>,
    ) -> Ended {
        let ended = match plan {
            Planned::Model => return model_call::carry_out(self, call, stop, reports).await,
            Planned::Tool(prepared) => self.call_tool(call, *prepared, stop).await,
            Planned::Child(child) => {
                let RunContext { services, run, .. } = &self.at;
                let limit = "the limit of time of";
                children::carry_out(services, run, call, child, stop, limit).await
            }
        };
        match ended {
            Ended::Outcome(came_to) => Ended::Outcome(self.store_long_result(call, came_to).await),
            ended @ (Ended::Stopped(_) | Ended::Suspended(_) | Ended::Exhausted(_)) => ended,
        }
    }
}
