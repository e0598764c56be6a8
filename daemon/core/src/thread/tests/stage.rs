//! A driver for tests: carries out the machine's requests, in the order that the test sets.

use super::*;
use crate::clock::Uptime;
use crate::conversation::Digest;
use crate::conversation::Entry;
use crate::model::thread::CallAt;
use crate::model::{Because, Effect, Failure, RunEvent};

/// A thread in progress, its record, and its calls.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) terms: Arc<Terms>,
    pub(super) machine: ThreadMachine,
    pub(super) log: Vec<Event>,
    pub(super) now: Tick,
    /// Money that is left.
    pub(super) money: Option<Usd>,
    /// The highest limit that the accounts above allow.
    pub(super) bearable: Option<Usd>,
    /// Number of model calls.
    pub(super) asked: u32,
    /// Tool calls in flight, and those that ever began.
    pub(super) running: Vec<Call>,
    pub(super) begun: Vec<Call>,
    pub(super) conversation: Option<Conversation>,
    /// Long results.
    pub(super) kept: BTreeMap<Digest, String>,
    /// Number of child runs that were created.
    children: u32,
    pub(super) first: Run,
}

/// The reason for which the driver stops.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// The model is called.
    Model,
    /// It waits for the end of a call.
    Waits,
    /// The run is suspended, or has ended.
    Rests,
}

impl Stage {
    pub(super) fn new(terms: Arc<Terms>, limit: impl FnOnce(&mut Spec)) -> Self {
        let id = RunId::new("t-d-1-aaaaaaaaaa").unwrap();
        let item = ItemRef::parse("directive:t/d", crate::id::ItemKind::Directive).unwrap();
        let budget = Budget::open(id.clone());
        let mut spec = Spec::new(Task::of(RunKind::Thread), item, id.clone(), budget);
        limit(&mut spec);
        let first = Run::create(id, Timestamp::default(), Arc::new(spec));
        let mut run = first.clone();
        let started: Event = RunEvent::started(Epoch::default()).into();
        run.apply(Timestamp::default(), &started).unwrap();
        Self {
            machine: ThreadMachine::new(Arc::clone(&terms), Arc::new(run)),
            terms,
            log: vec![started],
            now: Tick {
                at: Timestamp::from_ms(1000),
                up: Uptime::from_ns(0),
            },
            money: None,
            bearable: None,
            asked: 0,
            running: Vec::new(),
            begun: Vec::new(),
            conversation: None,
            kept: BTreeMap::new(),
            children: 0,
            first,
        }
    }

    pub(super) fn run(&self) -> &Run {
        &self.machine.run
    }

    /// Carries out the machine's requests until the model is called, or there is something to wait for.
    pub(super) fn play(&mut self) -> Met {
        for _ in 0..1000 {
            match self.machine.next(self.now) {
                Move::Note(events) => self.log.extend(events),
                Move::Query(events, query) => {
                    self.log.extend(events);
                    let answer = self.answer(*query);
                    let events = self.machine.answered(self.now, answer);
                    self.log.extend(events);
                }
                Move::Call(events, mut call) => {
                    self.log.extend(events);
                    let found = by_its_item(&call).filter(|_| call.undeclared);
                    if let Some(effect) = found {
                        (call.effect, call.undeclared) = (effect, false);
                    }
                    if !self.machine.looked_up(&call) {
                        continue;
                    }
                    self.check_start(&call);
                    let child = self.child_of(&call);
                    let events = self
                        .machine
                        .start(self.now, &call, child, InputHashes::default());
                    self.log.extend(events);
                    if call.slot == Slot::Main {
                        self.asked += 1;
                        return Met::Model;
                    }
                    self.running.push((*call).clone());
                    self.begun.push(*call);
                }
                Move::Wait(events, until) => {
                    self.log.extend(events);
                    let Some(until) = until else {
                        return Met::Waits;
                    };
                    self.now.at = self.now.at.plus(until.since(self.now.up));
                    self.now.up = until;
                }
                Move::Suspended(events) | Move::End(events) => {
                    self.log.extend(events);
                    return Met::Rests;
                }
            }
        }
        panic!("it comes to no end: {:?}", self.log);
    }

    /// Checks that nothing begins after the end of the time, and at-most-once calls only after the complete message.
    fn check_start(&self, call: &Call) {
        let speaks = matches!(self.run().thread().unwrap().at, At::Calling(_));
        assert_ne!(self.machine.time_left(), Some(Duration::ZERO), "{call:?}");
        assert!(!speaks || call.effect != Effect::AtMostOnce, "{call:?}");
    }

    /// Advances the clocks.
    pub(super) fn pass(&mut self, ms: u64) {
        let pause = Duration::from_millis(ms);
        self.now.at = self.now.at.plus(pause);
        self.now.up = self.now.up.plus(pause);
    }

    /// Returns the run that carries `call` out: for `t/graph` there is one for each call.
    fn child_of(&mut self, call: &Call) -> Option<RunId> {
        if call.attached.is_some() {
            return call.attached.clone();
        }
        (call.item.id.as_str() == "t/graph").then(|| {
            self.children += 1;
            RunId::new(format!("t-graph-{}-aaaaaaaaaa", self.children)).unwrap()
        })
    }

    pub(super) fn answer(&mut self, query: ThreadQuery) -> ThreadAnswer {
        match query {
            ThreadQuery::Compose => {
                let root = self.terms.contract.root(None);
                let message = Message::text(Source::Directive, "Do it.");
                let entry = Entry::root(root.clone(), vec![message.clone()]);
                let head = Digest::of(&entry.encode().text);
                let begun = Conversation::begin(head, root, vec![message]).unwrap();
                let bytes = begun.bytes();
                self.conversation = Some(begun);
                ThreadAnswer::Composed(Box::new(Composed {
                    system: None,
                    message: "Do it.".to_owned(),
                    head,
                    bytes,
                    warnings: Vec::new(),
                }))
            }
            ThreadQuery::Funds => {
                let settled =
                    |event: &&Event| matches!(event, Event::Run(RunEvent::BudgetSettled(_)));
                let calls = u32::try_from(self.log.iter().filter(settled).count()).unwrap();
                ThreadAnswer::Funds(Funds {
                    next: CallNo(calls + 1),
                    left: self.money.map(|amount| RemainingFunds {
                        amount,
                        account: self.run().spec.budget.account.clone(),
                        used: Usd::ZERO,
                        limit: amount,
                        bearable: self.bearable,
                    }),
                    meters: Vec::new(),
                })
            }
            ThreadQuery::Keep(entry) => {
                let head = Digest::of(&entry.encode().text);
                let conversation = self.conversation.as_mut().unwrap();
                if conversation.head != head {
                    assert_eq!(entry.prev.as_ref(), Some(&conversation.head));
                    conversation.push(head, entry.turn, entry.messages).unwrap();
                }
                ThreadAnswer::Kept(head)
            }
            ThreadQuery::Reseed => {
                let conversation = self.conversation.take().unwrap();
                let turns = conversation.turn;
                let entry = conversation.reseeded(self.terms.contract.model.reseed);
                let (root, bytes) = (Digest::of(&entry.encode().text), entry.bytes());
                let begun = Conversation::begin(root, entry.root.unwrap(), entry.messages);
                self.conversation = Some(begun.unwrap());
                ThreadAnswer::Reseeded(Reseeded { root, bytes, turns })
            }
            ThreadQuery::Read(position, reading) => {
                let text = self.kept.get(&reading.artifact);
                let gone = || Failure::permanent("data_loss", "it is gone");
                let part = text.map(|text| reading.part_of(text));
                ThreadAnswer::Read(position, part.ok_or_else(gone))
            }
        }
    }

    /// Delivers a signal of the model.
    pub(super) fn signal(&mut self, heard: ModelSignal) {
        let events = self.machine.on_signal(self.now, Slot::Main, heard);
        self.log.extend(events);
    }

    /// Ends the model call.
    pub(super) fn over(&mut self) {
        let events = self
            .machine
            .conclude(self.now, Slot::Main, &result(json!(null)));
        self.log.extend(events);
    }

    /// Delivers a whole message and ends the model call.
    pub(super) fn say(&mut self, heard: Vec<ModelSignal>) {
        for heard in heard {
            self.signal(heard);
        }
        self.over();
    }

    /// Ends the tool call at that index among those in flight with `outcome`.
    pub(super) fn end(&mut self, at: usize, outcome: &CallOutcome) {
        let call = self.running.remove(at);
        let turn = self.run().thread().unwrap().turn().unwrap();
        let contract = &self.terms.contract;
        let long = contract.shown(turn, outcome, call.result_text).artifact;
        self.kept.extend(long.map(|long| (long.name, long.text)));
        let events = self.machine.conclude(self.now, call.slot, outcome);
        self.log.extend(events);
    }

    /// Simulates a crash and restart: unrecorded state is lost, and the open call is settled.
    pub(super) fn crash(&mut self) {
        let mut run = self.run().clone();
        if let Some(settled) = run.settlement(Because::Crash) {
            run.apply(self.now.at, &settled).unwrap();
            self.log.push(settled);
        }
        if run.status() == Status::Running {
            let started: Event = RunEvent::started(Epoch::default()).into();
            run.apply(self.now.at, &started).unwrap();
            self.log.push(started);
        }
        self.running.clear();
        self.machine = ThreadMachine::new(Arc::clone(&self.terms), Arc::new(run));
    }

    /// Applies an event of another component to the run.
    pub(super) fn others(&mut self, event: impl Into<Event>) {
        let event = event.into();
        let mut run = self.run().clone();
        run.apply(self.now.at, &event).unwrap();
        self.log.push(event);
        self.machine.rebase(Arc::new(run));
    }

    /// Checks that replaying the events, read back from their texts, results in the record.
    pub(super) fn assert_replay(&self) {
        let mut run = self.first.clone();
        for event in &self.log {
            let written = serde_json::to_value(event).unwrap();
            let payload = written.get("payload").cloned().unwrap_or_default();
            let read = Event::read(event.name(), &payload.to_string()).unwrap();
            assert_eq!(&read, event);
            run.apply(self.run().updated_at, &read)
                .unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(run.life, self.run().life);
        // The start of an attempt is the time of its commit, which no event contains.
        let at = |run: &Run| {
            let mut at = run.thread().unwrap().at.clone();
            if let At::Calling(turn) | At::Acting(turn) = &mut at {
                for call in &mut turn.calls {
                    if let CallAt::Running { attempt, .. } = &mut call.at {
                        attempt.since = Timestamp::default();
                    }
                }
            }
            at
        };
        assert_eq!(at(&run), at(self.run()));
    }

    /// Returns the names of the events, without those of the beginning.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let names = self.log.iter().map(Event::name);
        let begun = names.clone().position(|name| name == "prompt_composed");
        names.skip(begun.map_or(0, |at| at + 1)).collect()
    }

    /// Returns the answers to its calls that the model received, in order: ids and texts.
    pub(super) fn call_results(&self) -> Vec<(String, String)> {
        let messages = self
            .conversation
            .iter()
            .flat_map(|conversation| &conversation.messages);
        let blocks = messages.flat_map(Message::blocks);
        let results = blocks.filter_map(|block| match block {
            Block::Result { id, content, .. } => Some((id.clone(), content.clone())),
            Block::Text { .. } | Block::Thinking { .. } | Block::Call { .. } => None,
        });
        results.collect()
    }
}

/// Returns the effect that an item declares, which is known once it is looked up.
fn by_its_item(call: &Call) -> Option<Effect> {
    match call.item.id.as_str() {
        "t/says-pure" => Some(Effect::Pure),
        "t/says-once" => Some(Effect::AtMostOnce),
        "t/says-again" => Some(Effect::Idempotent),
        _ => None,
    }
}

/// An outcome with this result.
pub(super) fn result(value: Value) -> CallOutcome {
    CallOutcome::known(value)
}

/// The signals of a message: a text, then calls of tools by their ids, names and inputs.
pub(super) fn message_signals(text: &str, calls: &[(&str, &str, Value)]) -> Vec<ModelSignal> {
    let mut blocks = Vec::new();
    let mut heard = Vec::new();
    if !text.is_empty() {
        let block = Block::Text {
            text: text.to_owned(),
        };
        heard.push(ModelSignal::Part(StreamPart {
            position: 0,
            block: block.clone(),
            raw: json!({"type": "text", "text": text}).to_string(),
        }));
        blocks.push(block);
    }
    for (position, (id, name, input)) in calls.iter().enumerate() {
        let call = StreamCall {
            position: u32::try_from(position + 1).unwrap(),
            id: (*id).to_owned(),
            name: (*name).to_owned(),
            arguments: match input.as_object() {
                Some(input) => Arguments::Object(input.clone()),
                None => Arguments::Refused(Refused {
                    code: "invalid_params",
                    problem: input.to_string(),
                    sent: Object::new(),
                }),
            },
            raw: json!({"type": "tool_use", "id": id, "name": name, "input": input}).to_string(),
        };
        blocks.push(call.block());
        heard.push(ModelSignal::Call(call));
    }
    let stop = if calls.is_empty() {
        Stop::End
    } else {
        Stop::Calls
    };
    heard.push(ended(blocks, stop));
    heard
}

/// The end of a message.
pub(super) fn ended(blocks: Vec<Block>, stop: Stop) -> ModelSignal {
    ModelSignal::Complete {
        ended: Box::new(Ended {
            blocks,
            raw: None,
            stop,
            usage: Some(Tokens {
                input: 100,
                output: 10,
                ..Tokens::default()
            }),
            warnings: Vec::new(),
        }),
        request_id: Some("req-1".to_owned()),
    }
}

/// The input of `rye_execute` for a tool.
pub(super) fn execute(item: &str, number: u32) -> Value {
    json!({"item_id": item, "parameters": Object::from_iter([("n".to_owned(), json!(number))])})
}
