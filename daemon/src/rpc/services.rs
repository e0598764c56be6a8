//! The services: each method decodes, calls the supervisor, encodes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use nix::unistd::Pid;
use rye_core::capability::Layer;
use rye_core::clock::Timestamp;
use rye_core::id::{Epoch, ItemId, RunId, Seq};
use rye_core::model::{Object, Run, RunKind};
use rye_proto::v1;
use rye_proto::v1::{items_server::Items, node_server::Node, runs_server::Runs};
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use super::encode;
use super::status::{invalid, of};
use crate::dispatch::Trace;
use crate::journal::{Filter, Line, StepLine, Storage};
use crate::supervisor::{Beginning, Start, Supervisor};

/// Time between TERM and KILL where the caller names none (design §12).
const KILL_GRACE: Duration = Duration::from_secs(3);
/// Runs of one page where the caller names no number, and the most it may name.
const PAGE: (u32, u32) = (100, 1000);
/// Most runs one call may wait for.
const MOST_WAITED: usize = 1000;

/// What this daemon is.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The user it serves.
    pub uid: u32,
    /// The process that adopts orphans; its descendants, and the daemon's own, are runs.
    pub parent: Pid,
    /// Its life.
    pub epoch: Epoch,
    /// When it started.
    pub started_at: Timestamp,
    /// Its state directory.
    pub state_dir: PathBuf,
    /// Its socket.
    pub socket: PathBuf,
    /// Fingerprint of its node key.
    pub node_fingerprint: String,
}

#[derive(Debug)]
pub(super) struct RunsService {
    supervisor: Supervisor,
}

impl RunsService {
    pub(super) fn new(supervisor: Supervisor) -> Self {
        Self { supervisor }
    }
}

fn run_id(text: &str) -> Result<RunId, Status> {
    RunId::new(text).map_err(|error| invalid("run_id", error))
}

fn caller<T>(request: &Request<T>) -> Result<Layer, Status> {
    request
        .extensions()
        .get::<Layer>()
        .cloned()
        .ok_or_else(|| Status::internal("the call passed no guard"))
}

fn object(field: &str, text: &str) -> Result<Object, Status> {
    if text.is_empty() {
        return Ok(Object::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(invalid(field, "it is not a JSON object")),
        Err(error) => Err(invalid(field, error)),
    }
}

#[tonic::async_trait]
impl Runs for RunsService {
    async fn start(
        &self,
        request: Request<v1::StartRequest>,
    ) -> Result<Response<v1::StartResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let durability = encode::read_durability(request.durability());
        let start = Start {
            item: encode::read_item(request.item)?,
            directory: PathBuf::from(request.project),
            inputs: object("inputs_json", &request.inputs_json)?,
            text_inputs: request.text_inputs.into_iter().collect(),
            capabilities: request.has_capabilities.then_some(request.capabilities),
            limits: encode::read_limits(request.limits),
            durability,
            start_key: Some(request.idempotency_key).filter(|key| !key.is_empty()),
            caller,
            beginning: Beginning::Start,
            lineage: None,
        };
        let started = self
            .supervisor
            .start(start)
            .await
            .map_err(|error| of(&error))?;
        Ok(Response::new(v1::StartResponse {
            run_id: started.run.to_string(),
            warnings: started.warnings,
            existed: started.existed,
        }))
    }

    async fn wait(
        &self,
        request: Request<v1::WaitRequest>,
    ) -> Result<Response<v1::WaitResponse>, Status> {
        let request = request.into_inner();
        if request.run_ids.is_empty() || request.run_ids.len() > MOST_WAITED {
            return Err(invalid("run_ids", format!("name 1 to {MOST_WAITED} runs")));
        }
        let ids = request
            .run_ids
            .iter()
            .map(|id| run_id(id))
            .collect::<Result<Vec<_>, _>>()?;
        for id in &ids {
            self.supervisor
                .run_of(id)
                .await
                .map_err(|error| of(&error))?;
        }
        let all = async {
            for id in &ids {
                self.supervisor.settled(id).await?;
            }
            Ok::<_, crate::supervisor::Error>(())
        };
        let timed_out = if request.timeout_ms == 0 {
            all.await.map_err(|error| of(&error))?;
            false
        } else {
            match tokio::time::timeout(Duration::from_millis(request.timeout_ms), all).await {
                Ok(settled) => {
                    settled.map_err(|error| of(&error))?;
                    false
                }
                Err(_) => true,
            }
        };
        let mut runs = Vec::with_capacity(ids.len());
        for id in &ids {
            let run = self
                .supervisor
                .run_of(id)
                .await
                .map_err(|error| of(&error))?;
            runs.push(encode::run(&run));
        }
        Ok(Response::new(v1::WaitResponse { runs, timed_out }))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let cause = if request.reason.is_empty() {
            caller.source
        } else {
            request.reason
        };
        let run = self
            .supervisor
            .cancel(&run_id(&request.run_id)?, &cause)
            .await
            .map_err(|error| of(&error))?;
        Ok(Response::new(v1::CancelResponse {
            run: Some(encode::run(&run)),
        }))
    }

    async fn kill(
        &self,
        request: Request<v1::KillRequest>,
    ) -> Result<Response<v1::KillResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let grace = request.grace_ms.map_or(KILL_GRACE, Duration::from_millis);
        let run = self
            .supervisor
            .kill(&run_id(&request.run_id)?, &caller.source, grace)
            .await
            .map_err(|error| of(&error))?;
        let receipt = encode::receipt(&run);
        Ok(Response::new(v1::KillResponse {
            run: Some(encode::run(&run)),
            receipt: Some(receipt),
        }))
    }

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        let id = run_id(&request.into_inner().run_id)?;
        let run = self
            .supervisor
            .run_of(&id)
            .await
            .map_err(|error| of(&error))?;
        Ok(Response::new(v1::GetResponse {
            run: Some(encode::run(&run)),
        }))
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        let request = request.into_inner();
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let filter = Filter {
            statuses: request
                .statuses()
                .map(encode::read_status)
                .collect::<Result<_, _>>()?,
            project: some(&request.project),
            parent: some(&request.parent_id).map(|id| run_id(&id)).transpose()?,
            item: some(&request.item_id)
                .map(|id| ItemId::new(id).map_err(|error| invalid("item_id", error)))
                .transpose()?,
            ..Filter::default()
        };
        let size = match request.page_size {
            0 => PAGE.0,
            wanted => wanted.min(PAGE.1),
        };
        let page = self
            .supervisor
            .journal()
            .list(
                &filter,
                some(&request.page_token).as_deref(),
                usize::try_from(size).unwrap_or(usize::MAX),
            )
            .await
            .map_err(|error| of(&error))?;
        Ok(Response::new(v1::ListResponse {
            runs: page.runs.iter().map(encode::summary).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn steps(
        &self,
        request: Request<v1::StepsRequest>,
    ) -> Result<Response<v1::StepsResponse>, Status> {
        let id = run_id(&request.into_inner().run_id)?;
        self.supervisor
            .run_of(&id)
            .await
            .map_err(|error| of(&error))?;
        let steps = self
            .supervisor
            .journal()
            .steps(&id)
            .await
            .map_err(|error| of(&error))?;
        Ok(Response::new(v1::StepsResponse {
            steps: steps.into_iter().map(step).collect(),
        }))
    }

    async fn state(
        &self,
        request: Request<v1::StateRequest>,
    ) -> Result<Response<v1::StateResponse>, Status> {
        let id = run_id(&request.into_inner().run_id)?;
        let run = self
            .supervisor
            .run_of(&id)
            .await
            .map_err(|error| of(&error))?;
        if run.birth.kind != RunKind::Graph {
            return Err(Status::failed_precondition(format!(
                "run `{id}` is a tool run and has no state"
            )));
        }
        Ok(Response::new(v1::StateResponse {
            state_json: run.progress.state.to_string(),
            seq: run.seq.0,
        }))
    }

    type StreamStream = Pin<Box<dyn Stream<Item = Result<v1::StreamResponse, Status>> + Send>>;

    async fn stream(
        &self,
        request: Request<v1::StreamRequest>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let request = request.into_inner();
        let id = run_id(&request.run_id)?;
        let run = self
            .supervisor
            .run_of(&id)
            .await
            .map_err(|error| of(&error))?;
        let from = read_cursor(&request.cursor)?;
        let journal = self.supervisor.journal();
        let feed = journal
            .subscribe(&id, from.next())
            .await
            .map_err(|error| of(&error))?;
        let events = futures_util::stream::unfold(feed, |mut feed| async move {
            feed.next().await.map(|line| (line, feed))
        });
        let events = events.map(move |line| match line {
            Ok(line) => Ok(v1::StreamResponse {
                event: Some(event(&id, line)),
            }),
            Err(error) => Err(of(&error)),
        });
        if request.follow {
            return Ok(Response::new(Box::pin(events)));
        }
        // What there was when the call came, and not one event more.
        let count = usize::try_from(run.seq.0.saturating_sub(from.0)).unwrap_or(usize::MAX);
        Ok(Response::new(Box::pin(events.take(count))))
    }
}

/// The cursor of the wire: opaque to clients, the seq of the event it came with to us.
fn cursor(seq: Seq) -> String {
    format!("1.{seq}")
}

fn read_cursor(text: &str) -> Result<Seq, Status> {
    if text.is_empty() {
        return Ok(Seq(0));
    }
    text.strip_prefix("1.")
        .and_then(|seq| seq.parse().ok())
        .map(Seq)
        .ok_or_else(|| invalid("cursor", "it is not a cursor this daemon gave out"))
}

fn event(run: &RunId, line: Line) -> v1::Event {
    v1::Event {
        cursor: cursor(line.seq),
        seq: line.seq.0,
        run_id: run.to_string(),
        timestamp: Some(encode::timestamp(line.timestamp)),
        event_type: line.event_type,
        payload_json: line.payload.to_string(),
    }
}

fn step(step: StepLine) -> v1::Step {
    v1::Step {
        step: step.step,
        node: step.node,
        status: step.status.as_str().to_owned(),
        elapsed_ms: step.elapsed_ms,
        cache_hit: step.cache_hit,
        error: step.error,
    }
}

#[derive(Debug)]
pub(super) struct ItemsService {
    supervisor: Supervisor,
}

impl ItemsService {
    pub(super) fn new(supervisor: Supervisor) -> Self {
        Self { supervisor }
    }
}

#[tonic::async_trait]
impl Items for ItemsService {
    async fn execute(
        &self,
        request: Request<v1::ExecuteRequest>,
    ) -> Result<Response<v1::ExecuteResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let item = encode::read_item(request.item)?;
        let trace = if request.trace {
            Trace::Kept
        } else {
            Trace::Dropped
        };
        let start = Start {
            item: item.clone(),
            directory: PathBuf::from(request.project),
            inputs: object("params_json", &request.params_json)?,
            text_inputs: BTreeMap::new(),
            capabilities: None,
            limits: rye_core::model::Limits::default(),
            durability: None,
            start_key: None,
            caller,
            beginning: Beginning::Start,
            lineage: None,
        };
        let (id, envelope) = self
            .supervisor
            .execute(start, trace)
            .await
            .map_err(|error| of(&error))?;
        let document = if let Some(envelope) = envelope {
            envelope.to_json()
        } else {
            let run = self
                .supervisor
                .run_of(&id)
                .await
                .map_err(|error| of(&error))?;
            run_envelope(&run)
        };
        Ok(Response::new(v1::ExecuteResponse {
            envelope_json: document.to_string(),
            run_id: id.to_string(),
        }))
    }
}

/// The envelope of an item that ran as a run of its own: its result as data.
fn run_envelope(run: &Run) -> Value {
    let data = run.result();
    let success = data["success"] == json!(true);
    let mut document = json!({
        "status": if success { "success" } else { "error" },
        "type": run.birth.item.kind.as_str(),
        "item_id": run.birth.item.id.as_str(),
        "data": data,
        "chain": [],
        "metadata": {},
    });
    if !success {
        document["error"] = document["data"]["error"].clone();
    }
    document
}

#[derive(Debug)]
pub(super) struct NodeService {
    supervisor: Supervisor,
    facts: Arc<Facts>,
}

impl NodeService {
    pub(super) fn new(supervisor: Supervisor, facts: Arc<Facts>) -> Self {
        Self { supervisor, facts }
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn info(
        &self,
        _request: Request<v1::InfoRequest>,
    ) -> Result<Response<v1::InfoResponse>, Status> {
        let facts = &self.facts;
        Ok(Response::new(v1::InfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: facts.epoch.0,
            pid: nix::unistd::getpid().as_raw(),
            parent_pid: facts.parent.as_raw(),
            started_at: Some(encode::timestamp(facts.started_at)),
            state_dir: facts.state_dir.to_string_lossy().into_owned(),
            socket: facts.socket.to_string_lossy().into_owned(),
            node_fingerprint: facts.node_fingerprint.clone(),
            isolation: v1::Isolation::Scoped.into(),
            containment: crate::process::CONTAINMENT
                .iter()
                .map(ToString::to_string)
                .collect(),
            live_runs: u32::try_from(self.supervisor.live_count()).unwrap_or(u32::MAX),
            storage: match *self.supervisor.journal().storage().borrow() {
                Storage::Ok => "ok",
                Storage::Full => "full",
            }
            .to_owned(),
        }))
    }

    async fn drain(
        &self,
        _request: Request<v1::DrainRequest>,
    ) -> Result<Response<v1::DrainResponse>, Status> {
        tracing::info!("asked to drain");
        self.supervisor.stop();
        Ok(Response::new(v1::DrainResponse {}))
    }
}
