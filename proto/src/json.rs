//! The JSON of messages that `ryectl --json` prints. Names, order and meaning of the fields are a stable interface for
//! scripts.
//!
//! Most messages derive `Serialize`; `tests/generated.rs` lists their attributes, which name the functions here.
//! Messages with members that are derived from several fields implement it below.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rye_core::model::RunKind;
use rye_core::money::Usd;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Value, json};

use crate::convert::{self, Malformed};
use crate::v1;

#[expect(
    clippy::ptr_arg,
    clippy::ref_option,
    reason = "serde hands out fields as they are"
)]
pub(crate) mod field {
    use super::*;

    /// Writes a text; null if it is empty.
    pub(crate) fn text<S: Serializer>(text: &String, to: S) -> Result<S::Ok, S::Error> {
        some(text).serialize(to)
    }

    /// Writes a time as RFC 3339; null if it is absent.
    pub(crate) fn time<S: Serializer>(
        at: &Option<prost_types::Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        super::time(at.as_ref()).serialize(to)
    }

    /// Writes a count or a time in milliseconds as a number, and money as decimal text; null if it is empty.
    pub(crate) fn amount<S: Serializer>(text: &String, to: S) -> Result<S::Ok, S::Error> {
        match text.parse::<u64>() {
            Ok(number) => to.serialize_u64(number),
            Err(_) => some(text).serialize(to),
        }
    }

    /// Writes a reference to an item as `TYPE:ID`.
    pub(crate) fn item<S: Serializer>(
        item: &Option<v1::ItemRef>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&item.clone().unwrap_or_default().name())
    }

    pub(crate) fn tiers<S: Serializer>(
        tiers: &Vec<v1::ModelTier>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let tiers: BTreeMap<_, _> = tiers
            .iter()
            .map(|tier| (&tier.name, &tier.models))
            .collect();
        tiers.serialize(to)
    }

    pub(crate) fn sorted<S: Serializer>(
        map: &HashMap<String, String>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        map.iter().collect::<BTreeMap<_, _>>().serialize(to)
    }

    pub(crate) fn isolation<S: Serializer>(number: &i32, to: S) -> Result<S::Ok, S::Error> {
        let isolation = v1::Isolation::try_from(*number).unwrap_or_default();
        isolation.word().serialize(to)
    }

    pub(crate) fn delta_kind<S: Serializer>(number: &i32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match v1::DeltaKind::try_from(*number).unwrap_or_default() {
            v1::DeltaKind::Unspecified => "unknown",
            v1::DeltaKind::Text => "text",
            v1::DeltaKind::Thinking => "thinking",
            v1::DeltaKind::CallBegun => "call_begun",
            v1::DeltaKind::CallArgs => "call_args",
            v1::DeltaKind::CallReady => "call_ready",
            v1::DeltaKind::Reset => "reset",
            v1::DeltaKind::Output => "output",
        })
    }

    /// Writes the payload of an event as an object.
    pub(crate) fn payload_json<S: Serializer>(text: &String, to: S) -> Result<S::Ok, S::Error> {
        let payload = checked(convert::document("payload_json", text))?;
        payload.unwrap_or_else(|| json!({})).serialize(to)
    }

    /// Defines functions for fields that hold JSON as text. A function has the name of its field, which errors name; an
    /// empty text becomes null.
    macro_rules! documents {
        ($($name:ident),+) => {
            $(pub(crate) fn $name<S: Serializer>(text: &String, to: S) -> Result<S::Ok, S::Error> {
                checked(convert::document(stringify!($name), text))?.serialize(to)
            })+
        };
    }
    documents!(params_json, schema_json);

    /// Defines functions for fields with money, by the name of the field; an empty text becomes zero.
    macro_rules! money {
        ($($name:ident),+) => {
            $(pub(crate) fn $name<S: Serializer>(text: &String, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(&checked::<Usd, _>(convert::usd(stringify!($name), text))?)
            })+
        };
    }
    money!(reserved, held, own, actual, overrun, spent, spend);

    /// Defines functions for fields with limits of money, by the name of the field; null if there is no limit.
    macro_rules! limits {
        ($($name:ident),+) => {
            $(pub(crate) fn $name<S: Serializer>(
                text: &Option<String>,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                let limit = checked(convert::limit(stringify!($name), text.as_deref()))?;
                limit.map(|limit| limit.to_string()).serialize(to)
            })+
        };
    }
    limits!(max, remaining);
}

/// Writes a JSON object with these members.
macro_rules! object {
    ($to:expr, { $($name:literal: $value:expr,)+ }) => {{
        let mut map = $to.serialize_map(None)?;
        $(map.serialize_entry($name, &$value)?;)+
        map
    }};
}

impl Serialize for v1::Run {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let status = checked(self.core_status())?;
        let kind = checked(self.core_kind())?;
        let output = checked(self.output())?;
        let (output, outputs, result) = match (kind, output) {
            (RunKind::Thread, Some(outputs @ Value::Object(_))) => (None, Some(outputs), None),
            (RunKind::Thread, result) => (None, None, result),
            (RunKind::Graph | RunKind::Tool | RunKind::Process, output) => (output, None, None),
        };
        let mut map = object!(to, {
            "run_id": self.run_id,
            "item_id": self.item_id(),
            "kind": kind.as_str(),
            "status": status.as_str(),
            "parent_id": some(&self.parent_id),
            "project": some(&self.project),
            "success": status.is_terminal().then(|| status.is_success()),
            "state": checked(self.state())?,
            "output": output,
            "steps": self.steps,
            "outputs": outputs,
            "result": result,
        });
        if self.truncated {
            map.serialize_entry("truncated", &true)?;
        }
        map.serialize_entry("error", &self.error)?;
        map.serialize_entry("errors_suppressed", &self.errors.len())?;
        map.serialize_entry("errors", &self.errors)?;
        if !self.approvals.is_empty() {
            map.serialize_entry("approvals", &self.approvals)?;
        }
        if let Some(waiting) = &self.waiting {
            map.serialize_entry("waiting", waiting)?;
        }
        map.serialize_entry("suspend", &self.suspend)?;
        if !self.uncertain.is_empty() {
            map.serialize_entry("uncertain", &self.uncertain)?;
        }
        if !self.parent_attempt.is_empty() {
            map.serialize_entry("parent_attempt", &self.parent_attempt)?;
        }
        map.serialize_entry("cost", &self.cost.clone().unwrap_or_default())?;
        map.serialize_entry("spawn_count", &self.spawn_count)?;
        map.serialize_entry("cancel", &self.cancel)?;
        map.serialize_entry("started_at", &time(self.started_at.as_ref()))?;
        map.serialize_entry("ended_at", &time(self.ended_at.as_ref()))?;
        map.serialize_entry("continuation_of", &some(&self.continuation_of))?;
        map.serialize_entry("continued_by", &some(&self.continued_by))?;
        map.serialize_entry("model", &some(&self.model))?;
        map.serialize_entry("provider", &some(&self.provider))?;
        map.end()
    }
}

impl Serialize for v1::DescribeResponse {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Described<'a> {
            #[serde(flatten)]
            item: v1::Item,
            inputs: Option<Value>,
            permissions: Option<&'a [String]>,
            executor_id: Option<&'a str>,
            effect: Option<&'a str>,
            tags: &'a [String],
            shadows: &'a [v1::ShadowedItem],
        }

        let inputs = convert::document("inputs_schema_json", &self.inputs_schema_json);
        let described = Described {
            item: self.item.clone().unwrap_or_default(),
            inputs: checked(inputs)?,
            permissions: self.has_permissions.then_some(&self.permissions),
            executor_id: some(&self.executor_id),
            effect: some(&self.effect),
            tags: &self.tags,
            shadows: &self.shadows,
        };
        described.serialize(to)
    }
}

impl Serialize for v1::Provider {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let map = object!(to, {
            "name": self.name,
            "api": self.api,
            "as_of": some(&self.as_of),
            "open": self.open,
            "usable": self.lacks.is_empty(),
            "lacks": some(&self.lacks),
            "models": self.models,
        });
        map.end()
    }
}

/// A thread of a directive before it begins; `item_id` is not part of it.
impl Serialize for v1::PreviewResponse {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let first_call = some(&self.hold).map(|hold| {
            json!({"input_tokens": self.input_tokens, "max_output": self.max_output, "hold": hold})
        });
        let map = object!(to, {
            "system": some(&self.system),
            "message": self.message,
            "tools": self.tools,
            "left_out": self.left_out,
            "limits": self.limits.clone().unwrap_or_default(),
            "provider": self.provider,
            "model": self.model.clone().unwrap_or_default(),
            "first_call": first_call,
            "too_small": some(&self.too_small),
            "layers": self.layers,
            "risks": self.risks,
            "warnings": self.warnings,
        });
        map.end()
    }
}

impl Serialize for v1::Process {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let map = object!(to, {
            "handle": self.handle,
            "name": self.name,
            "owner": some(&self.owner_id),
            "pid": self.pid,
            "pgid": self.pid,
            "status": self.status,
            "running": self.running,
            "ready": self.ready,
            "uptime": self.uptime_ms.map(|ms| Duration::from_millis(ms).as_secs_f64()),
            "exit_code": self.exit_code,
            "signal": self.signal,
            "cause": some(&self.cause),
            "restarts": self.restarts,
            "started_at": time(self.started_at.as_ref()),
            "reason": some(&self.reason),
            "command": self.command,
            "args": self.args,
            "cwd": some(&self.cwd),
            "survive": self.survive,
            "server": some(&self.server),
            "ports": self.ports.iter().collect::<BTreeMap<_, _>>(),
            "why": self.why,
            "listening": self.listening,
            "memory_bytes": self.memory_bytes,
            "cpu_ms": self.cpu_ms,
            "healthy": self.healthy,
        });
        map.end()
    }
}

impl Serialize for v1::ProcessListener {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let map = object!(to, {
            "port": self.port,
            "addr": self.addr,
            "pid": self.pid,
        });
        map.end()
    }
}

impl Serialize for v1::ProcessUnready {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let map = object!(to, {
            "code": self.code,
            "port": self.port,
            "pid": self.pid,
            "comm": some(&self.comm),
            "status": self.status,
            "error": some(&self.error),
        });
        map.end()
    }
}

impl Serialize for v1::ProcessLine {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let map = object!(to, {
            "at": time(self.at.as_ref()),
            "stream": self.stream,
            "text": self.text,
            "attempt": self.attempt,
            "cursor": self.cursor,
        });
        map.end()
    }
}

impl Serialize for v1::TranscriptVerdict {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let map = object!(to, {
            "intact": self.problem.is_empty(),
            "problem": some(&self.problem),
            "events": self.events,
            "checkpoints": self.checkpoints,
            "bytes": self.bytes,
        });
        map.end()
    }
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn time(at: Option<&prost_types::Timestamp>) -> Option<String> {
    at.map(|at| convert::timestamp(at).to_string())
}

fn checked<T, E: serde::ser::Error>(value: Result<T, Malformed>) -> Result<T, E> {
    value.map_err(E::custom)
}

#[cfg(test)]
mod tests;
