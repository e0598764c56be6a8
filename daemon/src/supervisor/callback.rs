//! Calls that programs of attempts make.
//!
//! Each call is a child run of the run whose attempt the program is: with its own record, the authority of that run
//! narrowed by the tool's `permissions`, and an account below its account. A call is looked up, checked and planned as
//! an action of the run, so it is refused with the same code as that. **Order.** `callback_started` and the child run
//! are one commit, which the journal refuses once the run is being stopped. A task of the supervisor completes the call,
//! even if the program drops the connection. **Failure.** When the program ends first, its child runs are cancelled, and
//! killed if they do not end within [`GRACE`]. A program that repeats its calls is ended while one of them is suspended,
//! and if it makes another call than before ([`super::shared_call`]).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rye_core::callers::Caller;
use rye_core::capability::Primary;
use rye_core::cas::InputHashes;
use rye_core::definition::Authority;
use rye_core::error::with_sources;
use rye_core::id::{ItemRef, RunId};
use rye_core::machine::asks;
use rye_core::model::event::{CallbackEnded, CallbackStarted, ToolCallProgress, Warning};
use rye_core::model::{
    Callback, DIVERGED, Event, Failure, Kill, Life, Object, Outcome, Run, RunKind, Spec,
    SuspendReason,
};
use rye_journal::{Change, RefusalReason};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::error::Error;
use super::execute::{Executed, Lookup};
use super::handle::{Begin, Beginner, EnvelopeRequest, Launch, Supervisor};
use super::shared_call::{CallKeys, Shared, SharedKey};
use crate::callbacks::{Closed, Halt, Program, Turn};
use crate::chain::{CallOrigin, Chain};
use crate::children;
use crate::dispatch;
use crate::drive;
use crate::index::FetchRequest;
use crate::port::{ChildRequest, Nest, Nested, NestedCallback};
use crate::projects::ProjectRef;
use crate::services::{Envelope, Order, Prepared, TraceMode};
use crate::stop::CancelMode;
use rye_host::task;

/// Time that the child runs of a program have to end after it has ended.
const GRACE: Duration = Duration::from_secs(5);
/// Time that a program which repeats its calls waits for a suspended run before it is ended.
const PARK_AFTER: Duration = Duration::from_secs(5);
/// Longest idempotency key, and longest message of a report of progress, in bytes.
const MOST_TEXT: usize = 1000;

/// A call of an item.
#[derive(Debug, Clone)]
pub struct ProgramCall {
    pub item: ItemRef,
    pub params: Object,
    /// Key that all tries of the attempt share.
    pub key: Option<String>,
}

impl Supervisor {
    /// Runs an item for its result, on behalf of `program`.
    pub async fn call_back(
        &self,
        program: Arc<Program>,
        call: ProgramCall,
    ) -> Result<(Executed, Lookup), Error> {
        let (this, entered) = (self.clone(), program.enter()?);
        let work = async move {
            let called = this.carry_out_call(&program, &call).await;
            drop(entered);
            called
        };
        self.run_to_end(work).await
    }

    /// Finds items that the run of `program` may fetch.
    pub async fn fetch_for(&self, program: &Program, asked: FetchRequest) -> Result<Value, Error> {
        let _entered = program.enter()?;
        let run = self.run_of(&program.run).await?;
        let layers = layers(program, &run.spec);
        self.fetch(layers, Path::new(&run.spec.project), asked)
            .await
    }

    /// Records the progress of `program`. Returns false if another report was recorded within the last second.
    pub fn note_progress(
        &self,
        program: &Program,
        fraction: Option<f64>,
        message: String,
    ) -> Result<bool, Error> {
        if fraction.is_some_and(|fraction| !(0.0..=1.0).contains(&fraction)) {
            let message = "`fraction` is from 0 to 1".to_owned();
            return Err(Error::Params { message });
        }
        bounded("message", &message)?;
        if !program.takes_progress(self.services().clock.up()) {
            return Ok(false);
        }
        let event = Event::from(ToolCallProgress {
            step: program.step,
            slot: program.slot,
            fraction,
            message,
        });
        self.journal().note(&program.run, event)?;
        Ok(true)
    }

    async fn carry_out_call(
        &self,
        program: &Program,
        call: &ProgramCall,
    ) -> Result<(Executed, Lookup), Error> {
        if let Some(key) = &call.key {
            bounded("idempotency_key", key)?;
        }
        let parent = self.run_of(&program.run).await?;
        let parent = narrowed(program, &parent);
        let turn = program.turn()?;
        let turn = turn.as_ref();
        let (shared, callback) = self.identify(program, &parent, call, turn);
        let caller = CallingProgram { program, turn };
        let shared = self
            .shared_call(program, shared, &parent, &callback)
            .await?;
        let (key, continues, recorded) = match shared {
            Shared::Attached(run) => {
                turn.inspect(|turn| turn.count());
                return self
                    .answer_program(caller, run, None, nothing_found())
                    .await;
            }
            Shared::Made { key, continues } => (key, continues, None),
            Shared::Differs { key, recorded } => (key, None, Some(recorded)),
        };
        let CallKeys { start_key, key } = key;
        let mut prepared = self.prepare_call(&parent, call, &key).await?;
        let found = Lookup {
            chain: prepared.chain.iter().flat_map(Chain::links).collect(),
            trace: None,
        };
        let order = match request(&prepared, &call.params, &parent.spec) {
            Ok(child) => Nest {
                parent: &parent,
                child,
                key: &key,
                attempt: parent
                    .graph()
                    .map(|_| parent.name_of(&program.node, program.slot)),
                continues,
                callback: Some(NestedCallback {
                    callback: callback.clone(),
                    start_key,
                }),
            },
            Err(failure) => {
                self.warn_of_refusal(program, &parent, &failure);
                return Ok((refusal(prepared.envelope(), failure), found));
            }
        };
        match self.runs().nest(order).await {
            Err(failure) => Ok((refusal(prepared.envelope(), failure), found)),
            Ok(Nested::Answer(value)) => Ok((Executed::Document(value), found)),
            Ok(Nested::Create {
                run,
                spec,
                fault,
                warnings,
            }) => {
                if let (Some(turn), Some(recorded)) = (turn, recorded) {
                    return Err(diverged(turn, &recorded, &spec.item, &callback.call));
                }
                let child = Child {
                    run: &run,
                    spec: &spec,
                };
                match self.create_child(program, child, fault, warnings).await? {
                    Created::New => self.begin_child(caller, run, &spec, found).await,
                    Created::Earlier(run) => self.answer_program(caller, run, None, found).await,
                    Created::Refused(failure) => Ok((refusal(prepared.envelope(), failure), found)),
                }
            }
        }
    }

    /// Starts the child run that was created for a call, and answers the call.
    async fn begin_child(
        &self,
        caller: CallingProgram<'_>,
        run: RunId,
        spec: &Spec,
        found: Lookup,
    ) -> Result<(Executed, Lookup), Error> {
        if let Some(turn) = caller.turn {
            turn.count();
        }
        let envelope = self.launch_child(&run, spec.kind()).await?;
        if !spec.parent_end.waits() {
            return Ok((Executed::Launched(self.run_of(&run).await?), found));
        }
        self.answer_program(caller, run, envelope, found).await
    }

    /// Returns the identity of a call among those of its attempt, and its record.
    fn identify<'a>(
        &self,
        program: &Program,
        parent: &Run,
        call: &'a ProgramCall,
        turn: Option<&Turn<'_>>,
    ) -> (Option<SharedKey<'a>>, Callback) {
        if let (Some(turn), Some(_)) = (turn, &call.key)
            && turn.warns_of_key()
        {
            let text = "idempotency keys have no effect in a program with `replay: ordered`";
            self.warn(program, parent, text.to_owned());
        }
        let shared = match (turn, &call.key) {
            (Some(turn), _) => Some(SharedKey::Ordered(turn.ordinal())),
            (None, Some(key)) => Some(SharedKey::Named(key)),
            (None, None) => None,
        };
        let item = call.item.canonical();
        let hashes = InputHashes::new(Primary::Execute, &item, &call.params, std::iter::empty());
        let callback = Callback {
            keyed: shared.is_some(),
            attempt: program.number,
            call: hashes.call.unwrap_or_default(),
            ordinal: turn.map(Turn::ordinal),
        };
        (shared, callback)
    }

    /// Commits the child run of a call with the event of its parent. Returns when this is durable.
    async fn create_child(
        &self,
        program: &Program,
        Child { run, spec }: Child<'_>,
        fault: Option<Failure>,
        warnings: Vec<String>,
    ) -> Result<Created, Error> {
        let ordered = spec.callback.as_ref();
        let ordered = ordered.filter(|callback| callback.ordinal.is_some());
        let started = Event::from(CallbackStarted {
            step: program.step,
            slot: program.slot,
            item: spec.item.to_string(),
            child: run.clone(),
            ordinal: ordered.and_then(|callback| callback.ordinal),
            params_hash: ordered.map(|callback| callback.call.clone()),
        });
        let notes = warnings.into_iter().filter(|_| fault.is_none());
        let notes = notes.map(|message| {
            let node = None;
            Change::event(run, Warning { node, message }.into())
        });
        let mut changes = vec![
            Change::event(&program.run, started),
            Change::create(run, Arc::clone(spec)),
            Change::event(run, self.first_event(fault.clone())),
        ];
        changes.extend(notes);
        match self.journal().commit(changes).await {
            Ok(committed) => {
                self.journal().durable(committed.ticket).await?;
                Ok(Created::New)
            }
            Err(rye_journal::Error::Refused(refused)) => {
                // Another call with the same key was faster.
                if let RefusalReason::KeyTaken(run) = &refused.why {
                    return Ok(Created::Earlier(run.clone()));
                }
                match drive::refused_child(&refused) {
                    Some(failure) => Ok(Created::Refused(failure)),
                    None => Err(rye_journal::Error::Refused(refused).into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Looks up, checks and plans the call as an action of `parent`.
    async fn prepare_call(
        &self,
        parent: &Run,
        call: &ProgramCall,
        key: &str,
    ) -> Result<Prepared, Error> {
        let order = Order {
            origin: CallOrigin {
                run: parent.id.clone(),
                spec: Arc::clone(&parent.spec),
                attempt: 1,
                key: key.to_owned(),
            },
            project: self
                .projects()
                .open(ProjectRef::from(&*parent.spec))
                .await?,
            primary: Primary::Execute,
            item: call.item.clone(),
            params: call.params.clone(),
            trace: TraceMode::Off,
            authority: Authority::Run,
            caller: Caller::Code,
            timeout: None,
        };
        let mut prepared = self.shared.services.dispatch.prepare(vec![order]).await;
        Ok(prepared.pop().expect("each order is answered"))
    }

    /// Records a refusal as for an action of the run itself.
    fn warn_of_refusal(&self, program: &Program, parent: &Run, failure: &Failure) {
        if !dispatch::is_refusal(failure) {
            return;
        }
        let (why, by) = (&failure.message, &parent.spec.principal);
        self.warn(program, parent, format!("{why}; asked for by {by}"));
    }

    fn warn(&self, program: &Program, parent: &Run, message: String) {
        let node = Some(program.node.clone()).filter(|node| !node.is_empty());
        let warning = Event::from(Warning { node, message });
        if let Err(error) = self.journal().note(&parent.id, warning) {
            tracing::warn!(run = %parent.id, error = %with_sources(&error), "a warning was not recorded");
        }
    }

    /// Starts the task of a new child run. Returns the receiver of the envelope of a tool.
    async fn launch_child(
        &self,
        run: &RunId,
        kind: RunKind,
    ) -> Result<Option<oneshot::Receiver<Envelope>>, Error> {
        let record = self.run_of(run).await?;
        if record.status().is_terminal() {
            return Ok(None);
        }
        let (envelope, receiver) = oneshot::channel();
        let is_tool = kind == RunKind::Tool;
        let envelope_request = is_tool.then_some(EnvelopeRequest {
            trace: TraceMode::Off,
            envelope,
        });
        self.launch(Launch::Run(Beginner {
            begin: Begin::Existing(record),
            envelope_request,
        }))
        .await?;
        Ok(is_tool.then_some(receiver))
    }

    /// Waits for `run`, and ends it if the program ends first. A program that repeats its calls is ended instead if the
    /// run stays suspended.
    async fn answer_program(
        &self,
        CallingProgram { program, turn }: CallingProgram<'_>,
        run: RunId,
        envelope: Option<oneshot::Receiver<Envelope>>,
        found: Lookup,
    ) -> Result<(Executed, Lookup), Error> {
        let record = self.run_of(&run).await?;
        if turn.is_some() && !record.spec.parent_end.waits() {
            return Ok((Executed::Launched(record), found));
        }
        let is_recorded = record.status().is_terminal();
        let record = loop {
            let runs = self.runs();
            let record = tokio::select! {
                biased;
                settled = runs.settled(run.clone()) => settled?,
                () = self.shared.stopping.cancelled() => return Err(Error::Stopping),
                () = program.ended() => {
                    self.end_child(&run).await;
                    return Err(Closed::Ended.into());
                }
            };
            let Life::Suspended(why) = &record.life else {
                break record;
            };
            let Some(turn) = turn else {
                return Ok((suspended(&record, why.reason), found));
            };
            let resumed = tokio::select! {
                resumed = self.resumed(&run) => resumed?,
                () = task::sleep(Some(PARK_AFTER)) => false,
                () = program.ended() => false,
                () = self.shared.stopping.cancelled() => return Err(Error::Stopping),
            };
            if !resumed && !program.has_ended() {
                let leaf = why.child.clone().unwrap_or_else(|| run.clone());
                turn.halt(Halt::Parked(leaf));
                return Err(Closed::Ended.into());
            }
        };
        if let (Some(turn), false) = (turn, is_recorded) {
            self.note_end(program, turn, &record);
        }
        let envelope = match envelope {
            Some(envelope) => envelope.await.ok(),
            None => None,
        };
        Ok(match envelope {
            Some(envelope) => (Executed::Tool(Box::new(envelope), run), found),
            None => (recorded(record), found),
        })
    }

    /// Resolves to true once `run` is no longer suspended.
    async fn resumed(&self, run: &RunId) -> Result<bool, Error> {
        let Some(mut commits) = self.journal().commits(run) else {
            return Ok(true);
        };
        while self.run_of(run).await?.suspension().is_some() {
            if commits.changed().await.is_err() {
                break;
            }
        }
        Ok(true)
    }

    /// Records the end of a call of a program that repeats its calls.
    fn note_end(&self, program: &Program, turn: &Turn<'_>, record: &Run) {
        let ordinal = record.spec.callback.as_ref();
        let ordinal = ordinal.and_then(|callback| callback.ordinal);
        let ended = Event::from(CallbackEnded {
            step: program.step,
            slot: program.slot,
            ordinal: ordinal.unwrap_or_else(|| turn.ordinal()),
            child: record.id.clone(),
            status: record.status(),
        });
        if let Err(error) = self.journal().note(&program.run, ended) {
            tracing::warn!(run = %program.run, error = %with_sources(&error), "the end of a call was not recorded");
        }
    }

    /// Ends the child run of a program that has ended.
    async fn end_child(&self, run: &RunId) {
        let cause = "the program that started it has ended";
        let cancelled = self.cancel_as(run, cause, CancelMode::Useless).await;
        if cancelled.is_ok() {
            let ended = tokio::time::timeout(GRACE, self.journal().ended(run)).await;
            if matches!(ended, Ok(Ok(()))) {
                return;
            }
            let kill = Kill::new(cause, Duration::ZERO);
            if let Err(error) = self.kill(run, kill).await {
                tracing::info!(%run, error = %with_sources(&error), "the run of a program was not killed");
            }
        }
    }
}

/// A child run that is not created yet.
struct Child<'a> {
    run: &'a RunId,
    spec: &'a Arc<Spec>,
}

/// Result of the creation of a child run.
enum Created {
    New,
    /// The run of another call with the same key, which was faster.
    Earlier(RunId),
    Refused(Failure),
}

/// A program, and its turn if it repeats its calls.
#[derive(Clone, Copy)]
struct CallingProgram<'a> {
    program: &'a Program,
    turn: Option<&'a Turn<'a>>,
}

/// Ends a program whose call is not the one of its earlier try.
fn diverged(turn: &Turn<'_>, recorded: &Run, item: &ItemRef, now: &str) -> Error {
    let ordinal = turn.ordinal();
    let earlier = recorded.spec.callback.as_ref();
    let earlier = earlier.map_or("", |callback| &callback.call);
    let message = format!(
        "call {ordinal} of the program is `{item}` ({now:.12}), and was `{}` ({earlier:.12}) in an earlier try: a program with `replay: ordered` \
         makes the same calls each time",
        recorded.spec.item
    );
    let failure = Failure {
        class: Some("permanent".into()),
        ..Failure::permanent(DIVERGED, message).decided()
    };
    let data = json!({"diverged": {
        "ordinal": ordinal,
        "recorded": {"item": recorded.spec.item.to_string(), "params_hash": earlier},
        "now": {"item": item.to_string(), "params_hash": now},
    }});
    let failure = Box::new(failure);
    turn.halt(Halt::Diverged {
        failure: failure.clone(),
        data,
    });
    Error::Diverged { failure }
}

/// The answer for a call whose run is suspended.
fn suspended(run: &Arc<Run>, reason: SuspendReason) -> Executed {
    let (id, reason) = (&run.id, reason.as_str());
    let message =
        format!("the run `{id}` is suspended ({reason}); resume it with `ryectl resume {id}`");
    let envelope = Envelope {
        data: json!({"run_id": id, "reason": reason}),
        failure: Some(Failure::permanent("child_suspended", message)),
        ..Envelope::of(run.spec.item.clone())
    };
    Executed::Tool(Box::new(envelope), id.clone())
}

/// The answer for a call whose run has ended, from its record.
fn recorded(run: Arc<Run>) -> Executed {
    if run.spec.kind() != RunKind::Tool {
        return Executed::Run(run);
    }
    let data = run.output().map(|output| Value::clone(output));
    let data = data.unwrap_or_default();
    let failure = match run.outcome() {
        Some(Outcome::Error { error }) => Some(error.clone()),
        _ => children::failure_of(&run),
    };
    let envelope = Envelope {
        data,
        failure,
        ..Envelope::of(run.spec.item.clone())
    };
    Executed::Tool(Box::new(envelope), run.id.clone())
}

fn bounded(field: &str, text: &str) -> Result<(), Error> {
    if text.len() <= MOST_TEXT {
        return Ok(());
    }
    let message = format!(
        "`{field}` has {} bytes, and may have {MOST_TEXT}",
        text.len()
    );
    Err(Error::Params { message })
}

/// The authority of `program`, which is part of the run of `spec`.
fn layers(program: &Program, spec: &Spec) -> Vec<rye_core::capability::Layer> {
    let own = program.layer.iter();
    spec.layers.iter().chain(own).cloned().collect()
}

/// Returns `run` with the authority of its program.
fn narrowed(program: &Program, run: &Run) -> Run {
    let spec = Spec {
        layers: layers(program, &run.spec),
        ..Spec::clone(&run.spec)
    };
    Run {
        spec: Arc::new(spec),
        ..run.clone()
    }
}

/// Returns the child run that carries a prepared call out. Nobody is asked about the start of a run that makes calls of
/// its own, so a program does not start one that needs an approval.
fn request(prepared: &Prepared, params: &Object, spec: &Spec) -> Result<ChildRequest, Failure> {
    if let Err(failure) = &prepared.plan {
        return Err(Failure::clone(failure));
    }
    let (item, params) = (prepared.item.clone(), params.clone());
    let needs_answer = |item: &ItemRef| asks(spec, Primary::Execute, item);
    match prepared.child_request(&params) {
        Some(wanted) if needs_answer(&item) || needs_answer(wanted.item()) => {
            let item = wanted.item();
            let text = format!("`{item}` needs an approval, for which a program cannot wait");
            Err(Failure::permanent("approval_needed", text).decided())
        }
        Some(wanted) => Ok(wanted),
        None => Ok(ChildRequest::Tool { item, params }),
    }
}

fn refusal(envelope: Envelope, failure: Failure) -> Executed {
    Executed::NoRun(Box::new(Envelope {
        failure: Some(failure),
        ..envelope
    }))
}

fn nothing_found() -> Lookup {
    Lookup {
        chain: Vec::new(),
        trace: None,
    }
}
