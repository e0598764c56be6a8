//! The calls of an answer, put together from their parts.
//!
//! A part belongs to the call of its index or its id, whatever came between. One call is complete, and handed out, when the next begins
//! and its arguments are a whole object; the others are at the end. Calls are handed out in their order only.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::conversation::{Block, Stop};
use crate::provider::field;
use crate::provider::half::{Halves, Piece};
use crate::provider::quirks::{IndexRule, Quirks};
use crate::provider::stream::{
    Calls as Complete, Came, Fault, MOST_POSITION, Meter, Signal, add_arguments, malformed,
};

/// The place of the first call, behind thoughts and text.
const FIRST_CALL: u32 = 2;

/// More of a call.
#[derive(Deserialize)]
pub(super) struct Part {
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

impl Part {
    /// The same, of JSON of any shape.
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

/// The calls of one answer, in their order.
#[derive(Debug)]
pub(super) struct Calls {
    rule: IndexRule,
    list: Vec<Building>,
    /// How many of them, from the first, are handed out.
    ready: usize,
    /// The one that the last part belonged to.
    last: usize,
    complete: Complete,
    halves: Halves,
}

/// A call that is put together.
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

/// A call that was handed out.
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

    /// True if there is any call.
    pub(super) const fn has_begun(&self) -> bool {
        !self.list.is_empty()
    }

    /// Takes in a part. `exact` are its arguments, if they hold halves of characters.
    pub(super) fn add(
        &mut self,
        part: Part,
        exact: Option<Piece>,
        meter: &mut Meter,
        signals: &mut Vec<Signal>,
    ) -> Result<(), Fault> {
        let Part {
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
            signals.push(Signal::CallBegun { position, name });
        }
        if !more.is_empty() && call.add(&more) {
            let text = more;
            signals.push(Signal::CallArgs { position, text });
        }
        Ok(())
    }

    /// True if a part says a whole call once more, as some do at the end of an answer.
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

    /// The call that a part belongs to; `None` if it begins another.
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
        // A name behind whole arguments is that of another call.
        let call = &mut self.list[at];
        let is_another =
            !name.is_empty() && !call.name.is_empty() && { call.name != name || call.is_whole() };
        (!is_another).then_some(at)
    }

    /// True if the index or the id of a part says that it does not belong to the call that was found.
    fn is_another(&self, at: usize, index: Option<u64>, id: &str, name: &str) -> bool {
        let call = &self.list[at];
        let has_other_id = !id.is_empty() && !call.id.is_empty() && call.id != id;
        match self.rule {
            IndexRule::Id => has_other_id || (index.is_none() && id.is_empty() && !name.is_empty()),
            // Some give each part another id, but only the first a name.
            IndexRule::Index => has_other_id && !name.is_empty(),
        }
    }

    /// Begins another call, ahead of which those that are whole are handed out.
    fn begin(&mut self, index: Option<u64>, signals: &mut Vec<Signal>) -> Result<usize, Fault> {
        while let Some(call) = self.list.get_mut(self.ready) {
            if call.name.is_empty() || !call.is_whole() {
                break;
            }
            self.hand_out(self.ready, None, signals)?;
        }
        let at = self.list.len();
        position(at)?;
        self.list.push(Building {
            index,
            ..Building::default()
        });
        Ok(at)
    }

    /// The answer has ended for the reason `stop`: all calls are handed out.
    pub(super) fn end(&mut self, stop: Stop, signals: &mut Vec<Signal>) -> Result<(), Fault> {
        while self.ready < self.list.len() {
            self.hand_out(self.ready, Some(stop), signals)?;
        }
        Ok(())
    }

    /// Hands out the next call; `stop` is why the answer has ended, if it has.
    fn hand_out(
        &mut self,
        at: usize,
        stop: Option<Stop>,
        signals: &mut Vec<Signal>,
    ) -> Result<(), Fault> {
        let position = position(at)?;
        let is_cut = stop == Some(Stop::Length) && at == self.last;
        let call = &mut self.list[at];
        if let Some(half) = self.halves.end(position) {
            call.add(&half);
        }
        let is_empty = call.arguments.trim().is_empty() && !call.is_too_large;
        let came = Came {
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
            signals.push(Signal::CallBegun { position, name });
        }
        let block = ready.block();
        call.made = Some(Made { block, raw });
        self.ready = at + 1;
        signals.push(Signal::CallReady(ready));
        Ok(())
    }

    /// The calls that were handed out.
    pub(super) fn take_made(&mut self) -> Vec<Made> {
        let list = std::mem::take(&mut self.list);
        list.into_iter().filter_map(|call| call.made).collect()
    }
}

impl Building {
    /// Takes in more of the arguments; `false` if they are larger than may be.
    fn add(&mut self, more: &str) -> bool {
        add_arguments(&mut self.arguments, &mut self.is_too_large, more);
        !self.is_too_large
    }

    /// True if the arguments look like a whole object.
    fn is_whole(&mut self) -> bool {
        !self.is_too_large && self.scan.is_whole(&self.arguments)
    }
}

/// How far a text was looked at for the end of the object in it. Each byte is looked at once.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    depth: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Ahead of the object.
    #[default]
    Ahead,
    Inside,
    InText,
    /// Behind a backslash in a text.
    Escaped,
    /// Behind the object.
    Closed,
    /// There is something else than one object.
    Odd,
}

impl Scan {
    /// True if `text`, which is that of the call before and perhaps more, is one object.
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
            (State::Escaped, _) | (State::Inside, b'"') => State::InText,
            (state, b' ' | b'\t' | b'\n' | b'\r') => state,
            (State::Ahead, b'{') => {
                self.depth = 1;
                State::Inside
            }
            (State::Ahead | State::Closed | State::Odd, _) => State::Odd,
            (State::Inside, b'{' | b'[') => {
                self.depth += 1;
                State::Inside
            }
            (State::Inside, b'}' | b']') => {
                self.depth -= 1;
                if self.depth == 0 {
                    State::Closed
                } else {
                    State::Inside
                }
            }
            (State::InText | State::Inside, _) => State::Inside,
        };
    }
}

/// The place of a call in the message.
fn position(at: usize) -> Result<u32, Fault> {
    let position = u32::try_from(at)
        .ok()
        .map(|at| at.saturating_add(FIRST_CALL));
    position
        .filter(|position| u64::from(*position) <= MOST_POSITION)
        .ok_or(Fault::Excess("too many calls"))
}
