//! The model as wire types.

use rye_core::clock::Timestamp;
use rye_core::id::{ItemKind, ItemRef, RunId};
use rye_core::model::{
    Durability, Failure, KillReceipt, Limits, Outcome, Phase, Run, RunKind, Status, Suspension,
};
use rye_core::money::Usd;
use rye_proto::v1;
use serde_json::Value;
use tonic::Status as Refusal;

use super::status::invalid;
use crate::journal::Summary;

pub(super) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let nanos = i32::try_from(at.ms().rem_euclid(1000)).expect("less than a second") * 1_000_000;
    prost_types::Timestamp {
        seconds: at.seconds(),
        nanos,
    }
}

pub(super) fn item(item: &ItemRef) -> v1::ItemRef {
    let kind = match item.kind {
        ItemKind::Tool => v1::ItemType::Tool,
        ItemKind::Directive => v1::ItemType::Directive,
        ItemKind::Knowledge => v1::ItemType::Knowledge,
        ItemKind::Config => v1::ItemType::Config,
    };
    v1::ItemRef {
        r#type: kind.into(),
        id: item.id.to_string(),
    }
}

/// The item a request names; an absent type means a tool.
pub(super) fn read_item(item: Option<v1::ItemRef>) -> Result<ItemRef, Refusal> {
    let item = item.ok_or_else(|| invalid("item", "it is missing"))?;
    let kind = match item.r#type() {
        v1::ItemType::Unspecified | v1::ItemType::Tool => ItemKind::Tool,
        v1::ItemType::Directive => ItemKind::Directive,
        v1::ItemType::Knowledge => ItemKind::Knowledge,
        v1::ItemType::Config => ItemKind::Config,
    };
    ItemRef::parse(&item.id, kind).map_err(|error| invalid("item.id", error))
}

pub(super) fn status(status: Status) -> v1::RunStatus {
    match status {
        Status::Created => v1::RunStatus::Created,
        Status::Running => v1::RunStatus::Running,
        Status::Suspended => v1::RunStatus::Suspended,
        Status::Completed => v1::RunStatus::Completed,
        Status::CompletedWithErrors => v1::RunStatus::CompletedWithErrors,
        Status::Error => v1::RunStatus::Error,
        Status::Cancelled => v1::RunStatus::Cancelled,
        Status::Killed => v1::RunStatus::Killed,
    }
}

pub(super) fn read_status(status: v1::RunStatus) -> Result<Status, Refusal> {
    Ok(match status {
        v1::RunStatus::Unspecified => return Err(invalid("statuses", "a status is unspecified")),
        v1::RunStatus::Created => Status::Created,
        v1::RunStatus::Running => Status::Running,
        v1::RunStatus::Suspended => Status::Suspended,
        v1::RunStatus::Completed => Status::Completed,
        v1::RunStatus::CompletedWithErrors => Status::CompletedWithErrors,
        v1::RunStatus::Error => Status::Error,
        v1::RunStatus::Cancelled => Status::Cancelled,
        v1::RunStatus::Killed => Status::Killed,
    })
}

pub(super) fn read_durability(durability: v1::Durability) -> Option<Durability> {
    match durability {
        v1::Durability::Unspecified => None,
        v1::Durability::Strict => Some(Durability::Strict),
        v1::Durability::Relaxed => Some(Durability::Relaxed),
    }
}

pub(super) fn read_limits(limits: Option<v1::Limits>) -> Limits {
    Limits {
        steps: limits.and_then(|limits| limits.steps),
        depth: None,
    }
}

/// A record, whole.
pub(super) fn run(run: &Run) -> v1::Run {
    let progress = &run.progress;
    let (error, suspend) = match &run.phase {
        Phase::Ended {
            outcome: Outcome::Error { error },
        } => (Some(failure(error)), None),
        Phase::Suspended { why, .. } => (None, Some(suspension(why))),
        Phase::Created | Phase::Running { .. } | Phase::Ended { .. } => (None, None),
    };
    v1::Run {
        state_json: match run.birth.kind {
            RunKind::Graph => progress.state.to_string(),
            RunKind::Tool => String::new(),
        },
        output_json: output(run).map(ToString::to_string).unwrap_or_default(),
        error,
        errors: progress
            .suppressed
            .iter()
            .map(|error| v1::SuppressedError {
                step: error.step,
                node: error.node.clone(),
                error: error.error.clone(),
            })
            .collect(),
        suspend,
        continuation_of: text(run.birth.continuation_of.as_ref()),
        seq: run.seq.0,
        epoch: run.epoch.0,
        layers: run
            .birth
            .layers
            .iter()
            .map(|layer| v1::CapabilityLayer {
                source: layer.source.clone(),
                patterns: layer.patterns.clone(),
            })
            .collect(),
        nodes: run.birth.graph.as_ref().map_or(0, |graph| graph.nodes),
        ..summary(&Summary::of(run))
    }
}

/// A record as a line of a list.
pub(super) fn summary(run: &Summary) -> v1::Run {
    v1::Run {
        run_id: run.id.to_string(),
        item: Some(item(&run.item)),
        kind: match run.kind {
            RunKind::Graph => v1::RunKind::Graph,
            RunKind::Tool => v1::RunKind::Tool,
        }
        .into(),
        status: status(run.status).into(),
        parent_id: text(run.parent.as_ref()),
        project: run.project.clone(),
        steps: run.steps,
        cost: Some(v1::Cost {
            turns: 0,
            input_tokens: 0,
            output_tokens: 0,
            spend: Usd::ZERO.to_string(),
        }),
        created_at: Some(timestamp(run.created_at)),
        started_at: run.started_at.map(timestamp),
        ended_at: run.ended_at.map(timestamp),
        principal: run.principal.clone(),
        ..v1::Run::default()
    }
}

fn text(id: Option<&RunId>) -> String {
    id.map(ToString::to_string).unwrap_or_default()
}

/// What a run returned, or what a failed tool gave back all the same.
fn output(run: &Run) -> Option<&Value> {
    match &run.phase {
        Phase::Ended {
            outcome: Outcome::Completed { output } | Outcome::CompletedWithErrors { output },
        } => Some(output),
        Phase::Created | Phase::Running { .. } | Phase::Suspended { .. } | Phase::Ended { .. } => {
            run.progress
                .result
                .as_ref()
                .filter(|result| !result.is_null())
        }
    }
}

fn failure(error: &Failure) -> v1::RunError {
    v1::RunError {
        message: error.message.clone(),
        node: error.node.clone().unwrap_or_default(),
        code: error.code.clone(),
        retryable: error.retryable,
    }
}

fn suspension(why: &Suspension) -> v1::Suspension {
    v1::Suspension {
        reason: why.reason.as_str().to_owned(),
        code: why.code.clone().unwrap_or_default(),
        current: String::new(),
        max: String::new(),
        node: why.node.clone().unwrap_or_default(),
    }
}

pub(super) fn receipt(run: &Run) -> v1::KillReceipt {
    let empty = KillReceipt::default();
    let receipt = match &run.phase {
        Phase::Ended {
            outcome: Outcome::Killed { receipt },
        } => receipt,
        Phase::Created | Phase::Running { .. } | Phase::Suspended { .. } | Phase::Ended { .. } => {
            &empty
        }
    };
    v1::KillReceipt {
        processes: receipt
            .processes
            .iter()
            .map(|process| v1::EndedProcess {
                pid: process.pid,
                comm: process.comm.clone(),
                signal: process.signal,
                exit: process.exit,
            })
            .collect(),
        survivors: receipt.survivors.clone(),
    }
}
