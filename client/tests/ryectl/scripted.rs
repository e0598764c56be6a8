//! A daemon that answers from a script, on a real socket.

mod items;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use rye_proto::v1;
use rye_proto::v1::budgets_server::{Budgets, BudgetsServer};
use rye_proto::v1::items_server::ItemsServer;
use rye_proto::v1::node_server::{Node, NodeServer};
use rye_proto::v1::objects_server::{Objects, ObjectsServer};
use rye_proto::v1::runs_server::{Runs, RunsServer};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// The run of every script.
pub(crate) const RUN: &str = "x-g-1-aaaaaaaaaa";

/// End of one stream of events.
#[derive(Debug, Clone)]
pub(crate) enum StreamEnd {
    Closed,
    Failed(Status),
    /// Stays open until the run is cancelled.
    Held,
}

/// Answers of the daemon.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Status with which `Start` is refused, if it is.
    pub(crate) refusal: Mutex<Option<Status>>,
    pub(crate) run: Mutex<v1::Run>,
    /// Events of the run.
    pub(crate) events: Vec<v1::Event>,
    /// Deltas, each sent before the event with this number to clients that request deltas.
    pub(crate) deltas: Vec<(u64, v1::Delta)>,
    /// For each stream that is opened: number of events before its end, and the end. The default is all events, then
    /// `Closed`.
    pub(crate) streams: Mutex<VecDeque<(usize, StreamEnd)>>,
    /// Names of the requests so far.
    pub(crate) requests: Mutex<Vec<String>>,
    pub(crate) started: Mutex<Option<v1::StartRequest>>,
    /// Descendants of the run.
    pub(crate) below: Vec<v1::Run>,
    pub(crate) others: Vec<v1::Run>,
    pub(crate) resumed: Mutex<Option<v1::ResumeRequest>>,
    pub(crate) raised: Mutex<Option<v1::RaiseBudgetRequest>>,
    pub(crate) stepped: Mutex<Option<v1::StepRequest>>,
    /// Answer to `Step`.
    pub(crate) result_json: String,
    /// Answer to `Validate`.
    pub(crate) report: v1::ValidateResponse,
    /// Answer to `Models`.
    pub(crate) models: v1::ModelsResponse,
    /// Answer to `Preview`.
    pub(crate) preview: v1::PreviewResponse,
    /// Envelope in the answer to `Execute`.
    pub(crate) envelope: String,
    /// Status with which `Cancel` is refused, if it is.
    pub(crate) cancel_refusal: Option<Status>,
    /// Answer to `Transcript`.
    pub(crate) transcript: Vec<v1::TranscriptResponse>,
    pub(crate) read: Mutex<Option<v1::TranscriptRequest>>,
    /// Notified when a client requests the cancellation of the run.
    pub(crate) cancelled: Notify,
}

impl Script {
    fn record_request(&self, call: impl Into<String>) {
        self.requests.lock().unwrap().push(call.into());
    }

    fn record(&self, run_id: &str) -> Result<v1::Run, Status> {
        let run = self.run.lock().unwrap().clone();
        let mut known = std::iter::once(&run).chain(&self.others);
        let found = known.find(|run| run.run_id == run_id).cloned();
        found.ok_or_else(|| Status::not_found(format!("there is no run `{run_id}`")))
    }
}

/// Makes the record of a graph run of `x/g` that ended with `status`.
pub(crate) fn run(status: v1::RunStatus) -> v1::Run {
    v1::Run {
        run_id: RUN.to_owned(),
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Tool.into(),
            id: "x/g".to_owned(),
        }),
        kind: v1::RunKind::Graph.into(),
        status: status.into(),
        project: "/p".to_owned(),
        state_json: r#"{"a":1,"inputs":{}}"#.to_owned(),
        output_json: r#"{"n":1}"#.to_owned(),
        steps: 2,
        nodes: 2,
        ..v1::Run::default()
    }
}

pub(crate) fn event(seq: u64, event_type: &str, payload: &Value) -> v1::Event {
    v1::Event {
        cursor: format!("c{seq}"),
        seq,
        run_id: RUN.to_owned(),
        event_type: event_type.to_owned(),
        payload_json: payload.to_string(),
        ..v1::Event::default()
    }
}

fn step(seq: u64, step: u32, node: &str) -> v1::Event {
    let payload = json!({"step": step, "node": node, "status": "ok", "elapsed_ms": 1200, "next_node": null,
                         "assigned": {node: 1}});
    event(seq, "step_completed", &payload)
}

/// Makes the events of a run of two steps up to `end`. One event between them has a type that no client knows.
pub(crate) fn two_steps(end: (&str, &Value)) -> Vec<v1::Event> {
    let started = json!({"graph_id": "x/g", "graph_run_id": RUN, "start_node": "one", "state": {}});
    vec![
        event(1, "graph_started", &started),
        step(2, 1, "one"),
        event(3, "moon_landed", &json!({})),
        step(4, 2, "two"),
        event(5, end.0, end.1),
    ]
}

/// Makes the final event of a successful graph.
pub(crate) fn completed() -> (&'static str, Value) {
    let payload =
        json!({"status": "completed", "steps": 2, "elapsed_ms": 2400, "output": {"n": 1}});
    ("graph_completed", payload)
}

/// Makes `count` long events, for readers that stop early.
pub(crate) fn many(count: u64) -> Vec<v1::Event> {
    let padding = json!({"text": "x".repeat(1000)});
    (1..=count)
        .map(|seq| event(seq, "moon_landed", &padding))
        .collect()
}

/// A scripted daemon that serves until it is dropped.
pub(crate) struct Daemon {
    pub(crate) script: Arc<Script>,
    pub(crate) dir: tempfile::TempDir,
    _server: JoinSet<()>,
}

impl Daemon {
    pub(crate) fn serve(script: Script) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = Arc::new(script);
        let server = serve_on(&dir.path().join("ryed.sock"), &script);
        Self {
            script,
            dir,
            _server: server,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("ryed.sock")
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.script.requests.lock().unwrap().clone()
    }
}

/// Listens when it returns. It serves until the returned set is dropped.
pub(crate) fn serve_on(socket: &Path, script: &Arc<Script>) -> JoinSet<()> {
    let listener = UnixListener::bind(socket).unwrap();
    let script = Arc::clone(script);
    let mut server = JoinSet::new();
    server.spawn(async move {
        Server::builder()
            .add_service(RunsServer::new(Answers(Arc::clone(&script))))
            .add_service(ItemsServer::new(Answers(Arc::clone(&script))))
            .add_service(ObjectsServer::new(Answers(Arc::clone(&script))))
            .add_service(BudgetsServer::new(Answers(Arc::clone(&script))))
            .add_service(NodeServer::new(Answers(script)))
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await
            .unwrap();
    });
    server
}

struct Answers(Arc<Script>);

/// `run` without texts of more than 100 bytes, as a daemon omits those of some megabytes.
fn without_long_texts(mut run: v1::Run) -> v1::Run {
    let omitted = |text: &mut String| {
        let is_long = text.len() > 100;
        if is_long {
            text.clear();
        }
        is_long
    };
    run.state_omitted = omitted(&mut run.state_json);
    run.output_omitted = omitted(&mut run.output_json);
    run
}

type EventStream = Pin<Box<dyn Stream<Item = Result<v1::StreamResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Runs for Answers {
    type StateStream = Pin<Box<dyn Stream<Item = Result<v1::StateResponse, Status>> + Send>>;
    type StreamStream = EventStream;
    type TranscriptStream =
        Pin<Box<dyn Stream<Item = Result<v1::TranscriptResponse, Status>> + Send>>;

    async fn transcript(
        &self,
        request: Request<v1::TranscriptRequest>,
    ) -> Result<Response<Self::TranscriptStream>, Status> {
        *self.0.read.lock().unwrap() = Some(request.into_inner());
        let pieces: Vec<_> = self.0.transcript.iter().cloned().map(Ok).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }

    type LogsStream = Pin<Box<dyn Stream<Item = Result<v1::LogsResponse, Status>> + Send>>;

    async fn logs(
        &self,
        _request: Request<v1::LogsRequest>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::empty())))
    }

    async fn approvals(
        &self,
        _request: Request<v1::ApprovalsRequest>,
    ) -> Result<Response<v1::ApprovalsResponse>, Status> {
        Ok(Response::new(v1::ApprovalsResponse::default()))
    }

    async fn answer(
        &self,
        _request: Request<v1::AnswerRequest>,
    ) -> Result<Response<v1::AnswerResponse>, Status> {
        Err(Status::unimplemented("nothing is asked here"))
    }

    async fn start(
        &self,
        request: Request<v1::StartRequest>,
    ) -> Result<Response<v1::StartResponse>, Status> {
        self.0.record_request("start");
        *self.0.started.lock().unwrap() = Some(request.into_inner());
        match self.0.refusal.lock().unwrap().clone() {
            Some(refusal) => Err(refusal),
            None => Ok(Response::new(v1::StartResponse {
                run_id: RUN.to_owned(),
                warnings: vec!["the input `z` is not declared".to_owned()],
                existed: false,
                cursor: String::new(),
            })),
        }
    }

    async fn wait(
        &self,
        request: Request<v1::WaitRequest>,
    ) -> Result<Response<v1::WaitResponse>, Status> {
        self.0.record_request("wait");
        let runs = request
            .into_inner()
            .run_ids
            .iter()
            .map(|run_id| self.0.record(run_id))
            .collect::<Result<Vec<_>, _>>()?;
        let timed_out = runs
            .iter()
            .any(|run| run.status() == v1::RunStatus::Running);
        Ok(Response::new(v1::WaitResponse { runs, timed_out }))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        self.0.record_request("cancel");
        if let Some(refusal) = &self.0.cancel_refusal {
            self.0.cancelled.notify_one();
            return Err(refusal.clone());
        }
        let run = self.0.record(&request.into_inner().run_id)?;
        self.0.run.lock().unwrap().status = v1::RunStatus::Cancelled.into();
        self.0.cancelled.notify_one();
        Ok(Response::new(v1::CancelResponse { run: Some(run) }))
    }

    async fn kill(
        &self,
        request: Request<v1::KillRequest>,
    ) -> Result<Response<v1::KillResponse>, Status> {
        let request = request.into_inner();
        self.0
            .record_request(format!("kill {:?}", request.grace_ms));
        let run = self.0.record(&request.run_id)?;
        let receipt = v1::KillReceipt {
            processes: vec![v1::EndedProcess {
                pid: 7,
                comm: "sleep".to_owned(),
                signal: Some(15),
                exit: None,
            }],
            survivors: vec![],
            run_id: run.run_id.clone(),
            below: vec![],
            complete: true,
            adopted: vec![],
        };
        Ok(Response::new(v1::KillResponse {
            run: Some(run),
            receipt: Some(receipt),
        }))
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveRequest>,
    ) -> Result<Response<v1::RemoveResponse>, Status> {
        let v1::RemoveRequest { run_ids, purge } = request.into_inner();
        self.0
            .record_request(format!("remove {} purge={purge}", run_ids.join(" ")));
        Ok(Response::new(v1::RemoveResponse {
            run_ids,
            files_remain: true,
        }))
    }

    async fn prune(
        &self,
        request: Request<v1::PruneRequest>,
    ) -> Result<Response<v1::PruneResponse>, Status> {
        let request = request.into_inner();
        self.0.record_request(format!(
            "prune older={:?} keep={:?} statuses={} dry={} from={}",
            request.older_than_ms,
            request.keep,
            request.statuses.len(),
            request.dry_run,
            request.page_token
        ));
        let is_first = request.page_token.is_empty();
        let (run, next) = if is_first {
            ("run-1", "more")
        } else {
            ("run-2", "")
        };
        Ok(Response::new(v1::PruneResponse {
            run_ids: vec![run.to_owned()],
            files_remain: false,
            next_page_token: next.to_owned(),
        }))
    }

    async fn suspend(
        &self,
        request: Request<v1::SuspendRequest>,
    ) -> Result<Response<v1::SuspendResponse>, Status> {
        let run = Some(self.0.record(&request.into_inner().run_id)?);
        Ok(Response::new(v1::SuspendResponse { run }))
    }

    async fn resume(
        &self,
        request: Request<v1::ResumeRequest>,
    ) -> Result<Response<v1::ResumeResponse>, Status> {
        self.0.record_request("resume");
        *self.0.resumed.lock().unwrap() = Some(request.into_inner());
        Ok(Response::new(v1::ResumeResponse {
            run: Some(self.0.record(RUN)?),
            cursor: "c2".to_owned(),
        }))
    }

    async fn say(
        &self,
        request: Request<v1::SayRequest>,
    ) -> Result<Response<v1::SayResponse>, Status> {
        let request = request.into_inner();
        self.0.record_request(format!("say {}", request.message));
        let run = Some(self.0.record(&request.run_id)?);
        Ok(Response::new(v1::SayResponse { run }))
    }

    async fn step(
        &self,
        request: Request<v1::StepRequest>,
    ) -> Result<Response<v1::StepResponse>, Status> {
        *self.0.stepped.lock().unwrap() = Some(request.into_inner());
        Ok(Response::new(v1::StepResponse {
            run: Some(self.0.record(RUN)?),
            result_json: self.0.result_json.clone(),
            warnings: vec![],
        }))
    }

    async fn validate(
        &self,
        _request: Request<v1::ValidateRequest>,
    ) -> Result<Response<v1::ValidateResponse>, Status> {
        Ok(Response::new(self.0.report.clone()))
    }

    async fn show(
        &self,
        request: Request<v1::ShowRequest>,
    ) -> Result<Response<v1::ShowResponse>, Status> {
        let request = request.into_inner();
        let text = format!("{:?} {}\n", request.format(), request.run_id);
        Ok(Response::new(v1::ShowResponse { text }))
    }

    async fn children(
        &self,
        request: Request<v1::ChildrenRequest>,
    ) -> Result<Response<v1::ChildrenResponse>, Status> {
        assert!(request.into_inner().whole_tree);
        let runs = self.0.below.clone();
        Ok(Response::new(v1::ChildrenResponse { runs }))
    }

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        let run = self.0.record(&request.into_inner().run_id)?;
        Ok(Response::new(v1::GetResponse {
            run: Some(without_long_texts(run)),
        }))
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        let request = request.into_inner();
        self.0.record_request(format!(
            "list {:?} {}",
            request.statuses, request.page_token
        ));
        let run = v1::Run {
            state_json: String::new(),
            ..self.0.run.lock().unwrap().clone()
        };
        let next = if request.page_token.is_empty() {
            "p2"
        } else {
            ""
        };
        Ok(Response::new(v1::ListResponse {
            runs: vec![run],
            next_page_token: next.to_owned(),
        }))
    }

    async fn steps(
        &self,
        request: Request<v1::StepsRequest>,
    ) -> Result<Response<v1::StepsResponse>, Status> {
        self.0.record(&request.into_inner().run_id)?;
        let step = v1::Step {
            step: 1,
            node: "one".to_owned(),
            status: "ok".to_owned(),
            elapsed_ms: 1200,
            cache_hit: false,
            error: None,
            process: None,
            items: None,
            command: None,
        };
        Ok(Response::new(v1::StepsResponse { steps: vec![step] }))
    }

    async fn state(
        &self,
        request: Request<v1::StateRequest>,
    ) -> Result<Response<Self::StateStream>, Status> {
        let request = request.into_inner();
        let run = self.0.record(&request.run_id)?;
        let text = if request.output {
            run.output_json
        } else {
            run.state_json
        };
        let pieces = text.as_bytes().chunks(7).map(|piece| {
            Ok(v1::StateResponse {
                json: piece.to_vec(),
                seq: 5,
            })
        });
        let pieces: Vec<_> = pieces.collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }

    async fn stream(
        &self,
        request: Request<v1::StreamRequest>,
    ) -> Result<Response<EventStream>, Status> {
        let request = request.into_inner();
        self.0
            .record_request(format!("stream from `{}`", request.cursor));
        let behind = self
            .0
            .events
            .iter()
            .position(|event| event.cursor == request.cursor);
        let rest = &self.0.events[behind.map_or(0, |at| at + 1)..];
        let script = self.0.streams.lock().unwrap().pop_front();
        let (count, end) = script.unwrap_or((rest.len(), StreamEnd::Closed));
        let events: Vec<_> = rest
            .iter()
            .take(count)
            .flat_map(|event| {
                let told = self
                    .0
                    .deltas
                    .iter()
                    .filter(|(before, _)| *before == event.seq);
                let told = told.filter(|_| request.deltas).map(|(_, delta)| {
                    Ok(v1::StreamResponse {
                        delta: Some(delta.clone()),
                        ..v1::StreamResponse::default()
                    })
                });
                let event = Ok(v1::StreamResponse {
                    event: Some(event.clone()),
                    ..v1::StreamResponse::default()
                });
                told.chain([event])
            })
            .collect();
        let events = tokio_stream::iter(events);
        Ok(Response::new(match end {
            StreamEnd::Closed => Box::pin(events),
            StreamEnd::Failed(status) => Box::pin(events.chain(tokio_stream::once(Err(status)))),
            StreamEnd::Held => {
                let script = Arc::clone(&self.0);
                let (told, hold) = tokio::sync::mpsc::channel(1);
                let mut holder = JoinSet::new();
                holder.spawn(async move {
                    script.cancelled.notified().await;
                    drop(told);
                });
                holder.detach_all();
                let hold = tokio_stream::wrappers::ReceiverStream::new(hold);
                Box::pin(events.chain(hold))
            }
        }))
    }
}

#[tonic::async_trait]
impl Objects for Answers {
    async fn get(
        &self,
        request: Request<v1::GetObjectRequest>,
    ) -> Result<Response<v1::GetObjectResponse>, Status> {
        let object_json = format!(
            r#"{{"kind":"state","hash":"{}"}}"#,
            request.into_inner().hash
        );
        Ok(Response::new(v1::GetObjectResponse { object_json }))
    }

    async fn list_cache(
        &self,
        _request: Request<v1::ListCacheRequest>,
    ) -> Result<Response<v1::ListCacheResponse>, Status> {
        let entry = v1::CacheEntry {
            key: "k1".to_owned(),
            node: "fetch".to_owned(),
            result_hash: "r1".to_owned(),
            cached_at: None,
            trusted: true,
        };
        let entries = vec![
            entry,
            v1::CacheEntry {
                key: "k2".to_owned(),
                ..v1::CacheEntry::default()
            },
        ];
        Ok(Response::new(v1::ListCacheResponse { entries }))
    }

    async fn drop_cache(
        &self,
        request: Request<v1::DropCacheRequest>,
    ) -> Result<Response<v1::DropCacheResponse>, Status> {
        let request = request.into_inner();
        self.0
            .record_request(format!("drop {:?} {}", request.keys, request.all));
        let dropped = if request.all { 2 } else { 1 };
        Ok(Response::new(v1::DropCacheResponse { dropped }))
    }
}

/// Makes the account of `run_id`, half of which is used.
fn budget(run_id: &str, max: Option<&str>) -> v1::Budget {
    let amount = |text: &str| text.to_owned();
    v1::Budget {
        run_id: run_id.to_owned(),
        account: run_id.to_owned(),
        max: max.map(amount),
        reserved: amount("0.000000000"),
        held: amount("0.000000000"),
        own: amount("0.500000000"),
        actual: amount("0.500000000"),
        remaining: max.map(|_| amount("0.500000000")),
        overrun: amount("0.000000000"),
        state: amount("open"),
        used: amount("0.500000000"),
        ..v1::Budget::default()
    }
}

#[tonic::async_trait]
impl Budgets for Answers {
    async fn get(
        &self,
        request: Request<v1::GetBudgetRequest>,
    ) -> Result<Response<v1::GetBudgetResponse>, Status> {
        self.0.record(&request.into_inner().run_id)?;
        Ok(Response::new(v1::GetBudgetResponse {
            path: vec![budget(RUN, None), budget("above", Some("1.000000000"))],
            meters: vec![],
        }))
    }

    async fn tree(
        &self,
        request: Request<v1::BudgetTreeRequest>,
    ) -> Result<Response<v1::BudgetTreeResponse>, Status> {
        self.0.record(&request.into_inner().run_id)?;
        let node = |run_id, depth| v1::BudgetNode {
            budget: Some(budget(run_id, None)),
            depth,
        };
        Ok(Response::new(v1::BudgetTreeResponse {
            accounts: vec![node(RUN, 0), node("below", 1)],
        }))
    }

    async fn raise(
        &self,
        request: Request<v1::RaiseBudgetRequest>,
    ) -> Result<Response<v1::RaiseBudgetResponse>, Status> {
        let request = request.into_inner();
        *self.0.raised.lock().unwrap() = Some(request.clone());
        if let Some(refusal) = self.0.refusal.lock().unwrap().clone() {
            return Err(refusal);
        }
        let raised = ["above", RUN].map(|run_id| budget(run_id, Some(&request.spend)));
        Ok(Response::new(v1::RaiseBudgetResponse {
            raised: raised.into(),
        }))
    }
}

#[tonic::async_trait]
impl Node for Answers {
    async fn info(
        &self,
        _request: Request<v1::InfoRequest>,
    ) -> Result<Response<v1::InfoResponse>, Status> {
        Ok(Response::new(v1::InfoResponse {
            version: "0.1.0".to_owned(),
            pid: 42,
            isolation: v1::Isolation::Scoped.into(),
            ..v1::InfoResponse::default()
        }))
    }

    async fn keys(
        &self,
        request: Request<v1::KeysRequest>,
    ) -> Result<Response<v1::KeysResponse>, Status> {
        self.0
            .record_request(format!("keys {}", request.into_inner().project));
        Ok(Response::new(v1::KeysResponse::default()))
    }

    async fn rebuild(
        &self,
        _request: Request<v1::RebuildRequest>,
    ) -> Result<Response<v1::RebuildResponse>, Status> {
        Err(Status::unimplemented("not asked by the client"))
    }

    async fn drain(
        &self,
        _request: Request<v1::DrainRequest>,
    ) -> Result<Response<v1::DrainResponse>, Status> {
        Err(Status::permission_denied("not yours"))
    }
}
