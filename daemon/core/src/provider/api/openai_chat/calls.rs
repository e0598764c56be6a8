//! Tool calls of an answer, assembled from their parts.
//!
//! A part belongs to the call of its index or its id, in any order. A call is emitted when the next one begins and its
//! arguments are a complete object; all other calls are emitted at the end. Calls are emitted in order only.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::conversation::{Block, Stop};
use crate::provider::field;
use crate::provider::half::{Halves, Piece};
use crate::provider::quirks::{IndexRule, Quirks};
use crate::provider::stream::{
    Calls as Complete, Fault, MOST_POSITION, Meter, RawCall, StreamSignal, add_arguments, malformed,
};

/// Position of the first call, after reasoning and text.
const FIRST_CALL: u32 = 2;

/// Addition to a call.
#[derive(Deserialize)]
pub(super) struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    #[serde(default)]
    function: Function,
}

#[derive(Default, Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

impl CallDelta {
    /// Decodes the addition from generic JSON.
    pub(super) fn of(part: &Value) -> Result<Self, Fault> {
        let Some(part) = field::object(part, "tool_calls")? else {
            return Err(malformed("`tool_calls` has an entry of null"));
        };
        let none = Map::new();
        let function = part.get("function").unwrap_or(&Value::Null);
        let function = field::object(function, "function")?.unwrap_or(&none);
        let of = |map: &Map<String, Value>, key| {
            let word = map.get(key).map(|value| field::word(value, key));
            word.transpose()
        };
        Ok(Self {
            index: field::index(part.get("index").unwrap_or(&Value::Null), "index")?,
            id: of(part, "id")?,
            function: Function {
                name: of(function, "name")?,
                arguments: function.get("arguments").map(field::arguments),
            },
        })
    }
}

/// Calls of one answer, in order.
#[derive(Debug)]
pub(super) struct Calls {
    rule: IndexRule,
    list: Vec<Building>,
    /// Number of calls emitted so far, from the first.
    ready: usize,
    /// Index of the call that the last part belonged to.
    last: usize,
    complete: Complete,
    halves: Halves,
}

/// A call being assembled.
#[derive(Debug, Default)]
struct Building {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    is_too_large: bool,
    scan: Scan,
    made: Option<Made>,
}

/// A call that was emitted.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) block: Block,
    pub(super) raw: Value,
}

impl Calls {
    pub(super) fn new(quirks: Quirks, turn: u32) -> Self {
        Self {
            rule: quirks.tool_index,
            list: Vec::new(),
            ready: 0,
            last: 0,
            complete: Complete::new(turn),
            halves: Halves::default(),
        }
    }

    pub(super) const fn has_begun(&self) -> bool {
        !self.list.is_empty()
    }

    /// Adds a part. `exact` are its arguments, if they contain half surrogate pairs.
    pub(super) fn add(
        &mut self,
        part: CallDelta,
        exact: Option<Piece>,
        meter: &mut Meter,
        signals: &mut Vec<StreamSignal>,
    ) -> Result<(), Fault> {
        let CallDelta {
            index,
            id,
            function: Function { name, arguments },
        } = part;
        let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
        let more = exact.unwrap_or_else(|| Piece::from(arguments.unwrap_or_default()));
        meter.weigh(id.len() + name.len())?;
        if self.is_repeated(index, &id, &name, &more) {
            return Ok(());
        }
        let at = match self.find(index, &id, &name) {
            Some(at) => at,
            None => self.begin(index, signals)?,
        };
        self.last = at;
        let position = position(at)?;
        let more = self.halves.join(position, more);
        meter.weigh(more.len())?;
        let call = &mut self.list[at];
        if call.made.is_some() {
            return match more.trim() {
                "" => Ok(()),
                _ => Err(malformed("a call continues after its arguments were whole")),
            };
        }
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name.is_empty() && !name.is_empty() {
            call.name.clone_from(&name);
            signals.push(StreamSignal::CallBegun { position, name });
        }
        if !more.is_empty() && call.add(&more) {
            let text = more;
            signals.push(StreamSignal::CallArgs { position, text });
        }
        Ok(())
    }

    /// Returns true if a part repeats a whole call, as some providers do at the end of an answer.
    fn is_repeated(&mut self, index: Option<u64>, id: &str, name: &str, more: &Piece) -> bool {
        if id.is_empty() || name.is_empty() {
            return false;
        }
        let is_same = |call: &&mut Building| {
            call.index == index && call.id == id && call.name == name && more.is(&call.arguments)
        };
        self.list
            .iter_mut()
            .find(is_same)
            .is_some_and(Building::is_whole)
    }

    /// Returns the call that a part belongs to, or `None` if the part begins another call.
    fn find(&mut self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let is_last = self.list.get(self.last).is_some_and(|last| {
            index.is_some() && last.index == index && (id.is_empty() || last.id == id)
        });
        let at = if is_last {
            self.last
        } else {
            let of_id = |call: &Building| call.id == id && (index.is_none() || call.index == index);
            let by_id = (!id.is_empty()).then(|| self.list.iter().rposition(of_id));
            let by_index = || match index {
                Some(_) => self.list.iter().rposition(|call| call.index == index),
                None => self.list.len().checked_sub(1).map(|_| self.last),
            };
            let at = by_id.flatten().or_else(by_index)?;
            if self.is_another(at, index, id, name) {
                return None;
            }
            at
        };
        // A name after complete arguments is that of another call.
        let call = &mut self.list[at];
        let is_another =
            !name.is_empty() && !call.name.is_empty() && { call.name != name || call.is_whole() };
        (!is_another).then_some(at)
    }

    /// Returns true if the index or the id shows that the part does not belong to the call at `at`.
    fn is_another(&self, at: usize, index: Option<u64>, id: &str, name: &str) -> bool {
        let call = &self.list[at];
        let has_other_id = !id.is_empty() && !call.id.is_empty() && call.id != id;
        match self.rule {
            IndexRule::Id => has_other_id || (index.is_none() && id.is_empty() && !name.is_empty()),
            // Some providers send a new id with each part, but a name only with the first.
            IndexRule::Index => has_other_id && !name.is_empty(),
        }
    }

    /// Begins another call, and emits the preceding complete calls.
    fn begin(
        &mut self,
        index: Option<u64>,
        signals: &mut Vec<StreamSignal>,
    ) -> Result<usize, Fault> {
        while let Some(call) = self.list.get_mut(self.ready) {
            if call.name.is_empty() || !call.is_whole() {
                break;
            }
            self.emit(self.ready, None, signals)?;
        }
        let at = self.list.len();
        position(at)?;
        self.list.push(Building {
            index,
            ..Building::default()
        });
        Ok(at)
    }

    /// Emits all remaining calls after the answer ended for the reason `stop`.
    pub(super) fn end(&mut self, stop: Stop, signals: &mut Vec<StreamSignal>) -> Result<(), Fault> {
        while self.ready < self.list.len() {
            self.emit(self.ready, Some(stop), signals)?;
        }
        Ok(())
    }

    /// Emits the next call; `stop` is the stop reason of an ended answer.
    fn emit(
        &mut self,
        at: usize,
        stop: Option<Stop>,
        signals: &mut Vec<StreamSignal>,
    ) -> Result<(), Fault> {
        let position = position(at)?;
        let is_cut = stop == Some(Stop::Length) && at == self.last;
        let call = &mut self.list[at];
        if let Some(half) = self.halves.end(position) {
            call.add(&half);
        }
        let is_empty = call.arguments.trim().is_empty() && !call.is_too_large;
        let came = RawCall {
            position,
            id: &call.id,
            name: &call.name,
            arguments: if is_empty && !is_cut {
                "{}"
            } else {
                &call.arguments
            },
            object: None,
            is_too_large: call.is_too_large,
            is_cut,
        };
        let (ready, raw) = self.complete.complete(came, |id, name, sent| {
            json!({
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": Value::Object(sent.clone()).to_string()},
            })
        });
        if call.name.is_empty() {
            let name = ready.name.clone();
            signals.push(StreamSignal::CallBegun { position, name });
        }
        let block = ready.block();
        call.made = Some(Made { block, raw });
        self.ready = at + 1;
        signals.push(StreamSignal::CallReady(ready));
        Ok(())
    }

    /// Takes the emitted calls.
    pub(super) fn take_made(&mut self) -> Vec<Made> {
        let list = std::mem::take(&mut self.list);
        list.into_iter().filter_map(|call| call.made).collect()
    }
}

impl Building {
    /// Appends to the arguments. Returns `false` if they exceed their size limit.
    fn add(&mut self, more: &str) -> bool {
        add_arguments(&mut self.arguments, &mut self.is_too_large, more);
        !self.is_too_large
    }

    /// Returns true if the arguments look like a complete object.
    fn is_whole(&mut self) -> bool {
        !self.is_too_large && self.scan.is_whole(&self.arguments)
    }
}

/// Incremental scan of a text for the end of its object. Each byte is scanned once.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    depth: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    BeforeObject,
    InObject,
    InText,
    Escaped,
    Closed,
    /// The text is not a single object.
    Odd,
}

impl Scan {
    /// Returns true if `text`, which extends the text of the previous call, is one object.
    fn is_whole(&mut self, text: &str) -> bool {
        for byte in &text.as_bytes()[self.at..] {
            self.step(*byte);
        }
        self.at = text.len();
        self.state == State::Closed
    }

    fn step(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::InText, b'\\') => State::Escaped,
            (State::InText, byte) if byte != b'"' => State::InText,
            (State::Escaped, _) | (State::InObject, b'"') => State::InText,
            (state, b' ' | b'\t' | b'\n' | b'\r') => state,
            (State::BeforeObject, b'{') => {
                self.depth = 1;
                State::InObject
            }
            (State::BeforeObject | State::Closed | State::Odd, _) => State::Odd,
            (State::InObject, b'{' | b'[') => {
                self.depth += 1;
                State::InObject
            }
            (State::InObject, b'}' | b']') => {
                self.depth -= 1;
                if self.depth == 0 {
                    State::Closed
                } else {
                    State::InObject
                }
            }
            (State::InText | State::InObject, _) => State::InObject,
        };
    }
}

/// Returns the position of a call in the message.
fn position(at: usize) -> Result<u32, Fault> {
    let position = u32::try_from(at)
        .ok()
        .map(|at| at.saturating_add(FIRST_CALL));
    position
        .filter(|position| u64::from(*position) <= MOST_POSITION)
        .ok_or(Fault::Excess("too many calls"))
}
