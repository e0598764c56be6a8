//! Wire types to the model.

use std::sync::Arc;

use std::path::PathBuf;

use rye_core::capability::Layer;
use rye_core::definition::show::Format;
use rye_core::expr::parse_json;
use rye_core::id::{ItemKind, ItemRef, Lsn, RunId, Seq};
use rye_core::model::{ApprovalAnswer, Durability, Limits, Object, Raised, Status, Verdict};
use rye_core::money::Usd;
use rye_proto::v1;
use serde_json::Value;
use tonic::{Request, Status as Refusal};

use super::encode::{cursors_of, spots_of};
use super::live::DeltaFilter;
use super::status::invalid;
use crate::callbacks::Program;
use crate::index::{FetchRequest, ItemFilter};
use crate::native::SignAsked;
use crate::supervisor::{ProgramCall, Start};
use rye_journal::{DeltaKind, Spot};

/// Most bytes of a reason or comment.
const REASON_BYTES: usize = 1000;

/// Splits a request into caller and message.
pub(super) fn open<T>(request: Request<T>) -> Result<(Layer, T), Refusal> {
    let caller = request
        .extensions()
        .get::<Layer>()
        .cloned()
        .ok_or_else(|| Refusal::internal("the call passed no guard"))?;
    Ok((caller, request.into_inner()))
}

/// The program that sends `request`, if a program does.
pub(super) fn program<T>(request: &Request<T>) -> Option<Arc<Program>> {
    request.extensions().get::<Arc<Program>>().cloned()
}

/// A start of `item` in `project` by `caller`, with defaults for the rest.
pub(super) fn start(
    caller: Layer,
    item: Option<v1::ItemRef>,
    project: String,
) -> Result<Start, Refusal> {
    Ok(Start::of(self::item(item)?, PathBuf::from(project), caller))
}

/// The call of an item by a program of a run.
pub(super) fn program_call(request: v1::ExecuteRequest) -> Result<ProgramCall, Refusal> {
    if request.dry_run || request.trace {
        let problem = "is for callers outside of runs";
        let field = if request.dry_run { "dry_run" } else { "trace" };
        return Err(invalid(field, problem));
    }
    Ok(ProgramCall {
        item: item(request.item)?,
        params: object("params_json", &request.params_json)?,
        key: given(&request.idempotency_key),
    })
}

pub(super) fn run_id(text: &str) -> Result<RunId, Refusal> {
    RunId::new(text).map_err(|error| invalid("run_id", error))
}

/// Returns `None` for an empty text.
pub(super) fn optional_run_id(field: &str, text: &str) -> Result<Option<RunId>, Refusal> {
    given(text)
        .map(RunId::new)
        .transpose()
        .map_err(|error| invalid(field, error))
}

/// Returns `None` for an empty text.
pub(super) fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn fetch(request: v1::FetchRequest) -> Result<FetchRequest, Refusal> {
    let texts = [
        ("item_id", given(&request.item_id)),
        ("source", given(&request.source)),
        ("destination", given(&request.destination)),
        ("query", request.query),
        ("scope", given(&request.scope)),
    ];
    let mut asked: Object = texts
        .into_iter()
        .filter_map(|(key, text)| Some((key.to_owned(), Value::from(text?))))
        .collect();
    if let Some(kind) = kind("item_type", request.item_type)? {
        asked.insert("item_type".to_owned(), Value::from(kind.as_str()));
    }
    for (key, number) in [("limit", request.limit), ("offset", request.offset)] {
        if let Some(number) = number {
            asked.insert(key.to_owned(), Value::from(number));
        }
    }
    for (key, flag) in [("replace", request.replace), ("parsed", request.parsed)] {
        asked.insert(key.to_owned(), Value::from(flag));
    }
    FetchRequest::read(asked).map_err(|error| invalid("FetchRequest", error))
}

pub(super) fn sign(request: &v1::SignRequest) -> Result<SignAsked, Refusal> {
    let kind = kind("item_type", request.item_type)?;
    let kind = kind.ok_or_else(|| invalid("item_type", "it is missing"))?;
    Ok(SignAsked {
        item_type: kind.as_str().to_owned(),
        item_id: given(&request.item_id),
        glob: given(&request.glob),
        source: given(&request.source),
    })
}

/// Parses a JSON object; an empty text is an empty object.
pub(super) fn object(field: &str, text: &str) -> Result<Object, Refusal> {
    if text.is_empty() {
        return Ok(Object::new());
    }
    match parse_json(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(invalid(field, "it is not a JSON object")),
        Err(error) => Err(invalid(field, error)),
    }
}

/// The caller and the reason, for the record. The caller comes first, so a reason cannot name another one.
pub(super) fn cause(caller: &Layer, reason: &str) -> Result<String, Refusal> {
    if reason.len() > REASON_BYTES {
        let problem = format!("it is longer than {REASON_BYTES} bytes");
        return Err(invalid("reason", problem));
    }
    Ok(match reason {
        "" => caller.source.clone(),
        reason => format!("{}: {reason}", caller.source),
    })
}

/// Converts a number of the wire to its enum. An unknown number is refused: the default could do something that the
/// caller did not request.
fn named<E: TryFrom<i32>>(field: &str, number: i32) -> Result<E, Refusal> {
    let unknown = || invalid(field, format!("{number} is no value of this contract"));
    E::try_from(number).map_err(|_unnamed| unknown())
}

/// The item that a request names; an absent type means a tool.
pub(super) fn item(item: Option<v1::ItemRef>) -> Result<ItemRef, Refusal> {
    let item = item.ok_or_else(|| invalid("item", "it is missing"))?;
    let kind = kind("item.type", item.r#type)?.unwrap_or(ItemKind::Tool);
    ItemRef::parse(&item.id, kind).map_err(|error| invalid("item.id", error))
}

/// Id and type of an item; the type may be unspecified.
pub(super) fn item_name(
    field: &str,
    item: Option<v1::ItemRef>,
) -> Result<(Option<ItemKind>, String), Refusal> {
    let item = item.ok_or_else(|| invalid(field, "it is missing"))?;
    Ok((kind(&format!("{field}.type"), item.r#type)?, item.id))
}

pub(super) fn item_filter(request: &v1::ListItemsRequest) -> Result<ItemFilter, Refusal> {
    let most = match request.page_size {
        0 => 100,
        size => usize::try_from(size).unwrap_or(usize::MAX).min(1000),
    };
    ItemFilter::new(
        kind("type", request.r#type)?,
        &request.pattern,
        &request.space,
        &request.page_token,
        most,
    )
    .map_err(|error| invalid("ListItemsRequest", error))
}

fn kind(field: &str, kind: i32) -> Result<Option<ItemKind>, Refusal> {
    Ok(named::<v1::ItemType>(field, kind)?.to_core())
}

pub(super) fn status(status: i32) -> Result<Status, Refusal> {
    let known = named::<v1::RunStatus>("statuses", status)?.to_core();
    known.ok_or_else(|| invalid("statuses", "a status is unspecified"))
}

pub(super) fn durability(durability: i32) -> Result<Option<Durability>, Refusal> {
    Ok(named::<v1::Durability>("durability", durability)?.to_core())
}

pub(super) fn limits(limits: Option<v1::Limits>) -> Result<Limits, Refusal> {
    let limits = limits.unwrap_or_default();
    let spend = limits.spend.map(|spend| amount("limits.spend", &spend));
    Ok(Limits {
        steps: limits.steps,
        depth: limits.depth,
        spawns: limits.spawns,
        turns: limits.turns,
        tokens: limits.tokens,
        duration_ms: limits.duration_ms,
        spend: spend.transpose()?,
    })
}

pub(super) fn amount(field: &str, text: &str) -> Result<Usd, Refusal> {
    Usd::parse(text).map_err(|error| invalid(field, error))
}

/// Returns the new limits of a resumed run, and its new spend limit.
pub(super) fn raise(raise: Option<v1::Limits>) -> Result<(Raised, Option<Usd>), Refusal> {
    let raise = limits(raise)?;
    Ok((Raised::of(&raise), raise.spend))
}

/// Verdicts on attempts of unknown outcome, by item.
pub(super) fn answers(
    answers: Vec<v1::UncertainAnswer>,
) -> Result<Vec<(String, Verdict)>, Refusal> {
    answers.into_iter().map(answer).collect()
}

fn answer(answer: v1::UncertainAnswer) -> Result<(String, Verdict), Refusal> {
    let verdict = named::<v1::Verdict>("answers.verdict", answer.verdict)?.to_core();
    let missing = || invalid("answers.verdict", "a verdict is unspecified");
    Ok((answer.item, verdict.ok_or_else(missing)?))
}

/// Parses JSON; an empty text is `None`.
pub(super) fn json(field: &'static str, text: &str) -> Result<Option<Arc<Value>>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let read = parse_json(text).map_err(|error| invalid(field, error))?;
    Ok(Some(Arc::new(read)))
}

/// The answer to an approval, without its id, which the question sets.
pub(super) fn approval_answer(
    caller: &Layer,
    request: &v1::AnswerRequest,
) -> Result<ApprovalAnswer, Refusal> {
    if request.comment.len() > REASON_BYTES {
        let problem = format!("it is longer than {REASON_BYTES} bytes");
        return Err(invalid("comment", problem));
    }
    let answer = json("answer_json", &request.answer_json)?;
    Ok(ApprovalAnswer {
        id: Arc::default(),
        approved: request.approved,
        answer,
        comment: given(&request.comment),
        by: caller.source.clone(),
    })
}

pub(super) fn format(format: i32) -> Result<Format, Refusal> {
    Ok(match named("format", format)? {
        v1::DiagramFormat::Unspecified | v1::DiagramFormat::Text => Format::Text,
        v1::DiagramFormat::Mermaid => Format::Mermaid,
        v1::DiagramFormat::Dot => Format::Dot,
    })
}

/// Decodes a cursor into the position in `run` after which a stream begins; see
/// [`encode::cursor`](super::encode::cursor).
pub(super) fn cursor(run: &RunId, text: &str) -> Result<Seq, Refusal> {
    if text.is_empty() {
        return Ok(Seq(0));
    }
    text.strip_prefix(&cursors_of(run))
        .and_then(|seq| seq.parse().ok())
        .map(Seq)
        .ok_or_else(|| invalid("cursor", format!("it is not a cursor of run `{run}`")))
}

/// The runs whose events a stream shows.
#[derive(Debug)]
pub(super) enum Streamed {
    One(RunId),
    Several(Group),
}

#[derive(Debug)]
pub(super) enum Group {
    /// A run and its descendants.
    Tree(RunId),
    /// The runs of a project, or of all for `None`.
    All(Option<String>),
}

/// Fails unless `request` names exactly one of run, project and all.
pub(super) fn streamed(request: &v1::StreamRequest) -> Result<Streamed, Refusal> {
    let project = given(&request.project);
    let id = request.run_id.as_str();
    let group = match (id.is_empty(), project, request.all) {
        (true, None, false) => {
            let text = "it is missing; or name a `project`, or ask for `all`";
            return Err(invalid("run_id", text));
        }
        (true, _, _) if request.tree => return Err(invalid("tree", "it needs a `run_id`")),
        (true, project, _) => Group::All(project),
        (false, None, false) if request.tree => Group::Tree(run_id(id)?),
        (false, None, false) => return Ok(Streamed::One(run_id(id)?)),
        (false, _, _) => {
            return Err(invalid(
                "run_id",
                "it goes with neither `project` nor `all`",
            ));
        }
    };
    if request.deltas {
        return Err(invalid("deltas", "they come only in the stream of one run"));
    }
    if !request.follow && request.cursor.is_empty() && matches!(group, Group::All(_)) {
        let text = "a stream of a project, or of all runs, begins with what comes: set it, or give a `cursor`";
        return Err(invalid("follow", text));
    }
    Ok(Streamed::Several(group))
}

/// Returns the kinds of deltas that a stream of one run shows; `None` without `deltas`.
pub(super) fn deltas(request: &v1::StreamRequest) -> Result<Option<DeltaFilter>, Refusal> {
    let asked = &request.delta_kinds;
    if !request.deltas && !asked.is_empty() {
        return Err(invalid("delta_kinds", "they come only with `deltas`"));
    }
    if !request.deltas {
        return Ok(None);
    }
    if !request.follow {
        return Err(invalid("deltas", "they come only with `follow`"));
    }
    let mut kinds = DeltaFilter {
        model_kinds: None,
        output: asked.is_empty(),
    };
    for kind in asked {
        let said = match named("delta_kinds", *kind)? {
            v1::DeltaKind::Unspecified => {
                return Err(invalid("delta_kinds", "a kind is unspecified"));
            }
            v1::DeltaKind::Text => Some(DeltaKind::Text),
            v1::DeltaKind::Thinking => Some(DeltaKind::Thinking),
            v1::DeltaKind::CallBegun => Some(DeltaKind::CallBegun),
            v1::DeltaKind::CallArgs => Some(DeltaKind::CallArgs),
            v1::DeltaKind::CallReady => Some(DeltaKind::CallReady),
            v1::DeltaKind::Reset => Some(DeltaKind::Reset),
            v1::DeltaKind::Output => None,
        };
        kinds.output |= said.is_none();
        kinds.model_kinds.get_or_insert_default().extend(said);
    }
    Ok(Some(kinds))
}

/// Decodes a cursor into the position in the log after which a stream of several runs begins; see
/// [`encode::spot`](super::encode::spot).
pub(super) fn spot(log: &str, text: &str) -> Result<Option<Spot>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let place = || {
        let (behind, more) = text.strip_prefix(&spots_of(log))?.split_once('.')?;
        Some(Spot {
            commit: Lsn(behind.parse().ok()?),
            more: more.parse().ok()?,
        })
    };
    let place = place().ok_or_else(|| {
        invalid(
            "cursor",
            "it is not a cursor of a stream over several runs of this daemon",
        )
    })?;
    Ok(Some(place))
}
