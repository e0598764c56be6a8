//! The service `Runs`: starting, watching, steering and ending runs.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use rye_core::capability::Layer;
use rye_core::id::{ItemId, RunId};
use rye_core::model::{Kill, Run, Status as RunStatus};
use rye_process::KILL_GRACE;
use rye_proto::v1;
use rye_proto::v1::runs_server::Runs;
use tonic::{Request, Response, Status};

use super::decode::{Group, Streamed};
use super::live::LiveStream;
use super::status::{invalid, of_journal, with_reason};
use super::streams::Streams;
use super::texts::{Json, Texts};
use super::visible::visible;
use super::{decode, encode, logs, stream};
use crate::access::{Access, Actionable, Extent, Visible};
use crate::async_log::LineFilter;
use crate::exports::Exports;
use crate::port::Resume;
use crate::supervisor::{Error, Prune, PruneToken, Pruned, Reach, Step};
use rye_journal::{Extract, Filter, RemovedRun, Until};

/// Default size of a page, in runs.
const PAGE: u32 = 100;
const LONGEST_PAGE: u32 = 1000;
const MOST_WAITED: usize = 1000;
const FILES_PATIENCE: Duration = Duration::from_secs(2);
/// Child runs whose costs and continuations are looked up concurrently.
const SIDE_BY_SIDE: usize = 64;

type RpcResult<T> = Result<Response<T>, Status>;

#[derive(Debug)]
pub(super) struct RunsService {
    access: Access,
    exports: Arc<Exports>,
    streams: Streams,
    /// Fingerprint of the node's key; cursors of other daemons' logs are refused by it.
    log: Arc<str>,
}

impl RunsService {
    pub(super) fn new(access: Access, exports: Arc<Exports>, streams: Streams, log: &str) -> Self {
        Self {
            access,
            exports,
            streams,
            log: log.into(),
        }
    }

    async fn actionable<T>(
        &self,
        request: Request<T>,
        named: impl FnOnce(T) -> String,
    ) -> Result<Actionable, Status> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(&named(request))?;
        Ok(self.access.actionable(&caller, &id).await?)
    }

    /// Waits up to [`FILES_PATIENCE`]. Returns the ids of the runs, and true if some of their files remain.
    async fn removed(
        &self,
        removed: Vec<RemovedRun>,
        purge: bool,
    ) -> Result<(Vec<String>, bool), Status> {
        let files_remain = !self.exports.remove(&removed, FILES_PATIENCE).await;
        if purge {
            self.access.purge().await.map_err(of_journal)?;
        }
        let ids = removed.iter().map(|removed| removed.run.to_string());
        Ok((ids.collect(), files_remain))
    }

    async fn several(
        &self,
        caller: Layer,
        of: Group,
        request: v1::StreamRequest,
    ) -> RpcResult<<Self as Runs>::StreamStream> {
        let extent = Extent {
            since: decode::spot(&self.log, &request.cursor)?,
            follow: request.follow,
        };
        let place = self.streams.take(&caller)?;
        let events = match of {
            Group::Tree(root) => {
                let root = self.access.visible(&caller, &root).await?;
                root.watch_tree(caller, extent).await?
            }
            Group::All(project) => self
                .access
                .watch(caller, project, extent)
                .await
                .map_err(of_journal)?,
        };
        let events = stream::several(events, Arc::clone(&self.log));
        Ok(Response::new(Box::pin(place.held_by(events))))
    }
}

async fn encoded(run: &Visible, texts: &mut Texts) -> Result<v1::Run, Status> {
    let brief = encode::record(run, &run.extras().await?);
    Ok(texts.add(brief, run).await)
}

async fn answered<T>(run: &Visible, answer: impl FnOnce(v1::Run) -> T) -> RpcResult<T> {
    let mut texts = Texts::new(run.answer_memory());
    let run = encoded(run, &mut texts).await?;
    Ok(texts.reserved().held_by(answer(run)))
}

async fn settled(runs: &[Visible]) -> Result<(), Error> {
    for run in runs {
        run.settled().await?;
    }
    Ok(())
}

fn page_size(asked: u32) -> usize {
    let size = match asked {
        0 => PAGE,
        wanted => wanted.min(LONGEST_PAGE),
    };
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The cursor at which `run` resumed `before`; empty for a new run that continues it.
fn resumed_at(before: &Run, run: &Run) -> String {
    if run.id != before.id {
        String::new()
    } else if before.status() == RunStatus::Suspended {
        encode::cursor(&run.id, before.seq)
    } else {
        // It was suspended after `before` was read.
        encode::cursor(&run.id, run.seq)
    }
}

#[tonic::async_trait]
impl Runs for RunsService {
    async fn start(&self, request: Request<v1::StartRequest>) -> RpcResult<v1::StartResponse> {
        let (caller, request) = decode::open(request)?;
        let durability = decode::durability(request.durability)?;
        let mut start = decode::start(caller, request.item, request.project)?;
        start.inputs = decode::object("inputs_json", &request.inputs_json)?;
        start.text_inputs = request.text_inputs.into_iter().collect();
        start.capabilities = request.has_capabilities.then_some(request.capabilities);
        start.limits = decode::limits(request.limits)?;
        start.model = decode::given(&request.model);
        start.provider = decode::given(&request.provider);
        start.durability = durability;
        start.start_key = decode::given(&request.idempotency_key);
        let answer = match decode::optional_run_id("resume_run_id", &request.resume_run_id)? {
            None => {
                let started = self.access.start(start).await?;
                v1::StartResponse {
                    run_id: started.run.to_string(),
                    warnings: started.warnings,
                    existed: started.existed,
                    cursor: String::new(),
                }
            }
            Some(id) => {
                let old = self.access.actionable(&start.caller, &id).await?;
                let before = old.newest().await?;
                let run = old.start_again(start).await?;
                v1::StartResponse {
                    run_id: run.id.to_string(),
                    cursor: resumed_at(&before, &run),
                    ..v1::StartResponse::default()
                }
            }
        };
        Ok(Response::new(answer))
    }

    async fn wait(&self, request: Request<v1::WaitRequest>) -> RpcResult<v1::WaitResponse> {
        let (caller, request) = decode::open(request)?;
        if request.run_ids.is_empty() || request.run_ids.len() > MOST_WAITED {
            return Err(invalid("run_ids", format!("name 1 to {MOST_WAITED} runs")));
        }
        let ids = request
            .run_ids
            .iter()
            .map(|id| decode::run_id(id))
            .collect::<Result<Vec<_>, _>>()?;
        let mut waited = Vec::with_capacity(ids.len());
        for id in &ids {
            waited.push(self.access.visible(&caller, id).await?);
        }
        let all = settled(&waited);
        let timed_out = if request.timeout_ms == 0 {
            all.await?;
            false
        } else {
            match tokio::time::timeout(Duration::from_millis(request.timeout_ms), all).await {
                Ok(settled) => {
                    settled?;
                    false
                }
                Err(_) => true,
            }
        };
        let mut texts = Texts::new(self.access.answer_memory());
        let mut runs = Vec::with_capacity(waited.len());
        for run in &waited {
            runs.push(encoded(&run.reload().await?, &mut texts).await?);
        }
        let answer = v1::WaitResponse { runs, timed_out };
        Ok(texts.reserved().held_by(answer))
    }

    async fn cancel(&self, request: Request<v1::CancelRequest>) -> RpcResult<v1::CancelResponse> {
        let (caller, request) = decode::open(request)?;
        let cause = decode::cause(&caller, &request.reason)?;
        let id = decode::run_id(&request.run_id)?;
        let run = self.access.actionable(&caller, &id).await?;
        let run = run.cancel(&cause).await?;
        answered(&run, |run| v1::CancelResponse { run: Some(run) }).await
    }

    async fn kill(&self, request: Request<v1::KillRequest>) -> RpcResult<v1::KillResponse> {
        let (caller, request) = decode::open(request)?;
        let grace = request.grace_ms.map_or(KILL_GRACE, Duration::from_millis);
        let asked = Kill {
            tree: request.tree,
            ..Kill::new(&*caller.source, grace)
        };
        let id = decode::run_id(&request.run_id)?;
        let run = self.access.actionable(&caller, &id).await?;
        let (run, killed) = run.kill(asked).await?;
        let receipt = Some(encode::receipt(killed));
        let answer = |run| v1::KillResponse {
            run: Some(run),
            receipt,
        };
        answered(&run, answer).await
    }

    async fn remove(&self, request: Request<v1::RemoveRequest>) -> RpcResult<v1::RemoveResponse> {
        let (caller, request) = decode::open(request)?;
        let ids = request.run_ids.iter().map(|id| decode::run_id(id));
        let ids: Vec<RunId> = ids.collect::<Result<_, _>>()?;
        let removed = self.access.remove(&caller, &ids).await?;
        let (run_ids, files_remain) = self.removed(removed, request.purge).await?;
        Ok(Response::new(v1::RemoveResponse {
            run_ids,
            files_remain,
        }))
    }

    async fn prune(&self, request: Request<v1::PruneRequest>) -> RpcResult<v1::PruneResponse> {
        let (caller, request) = decode::open(request)?;
        let statuses = request.statuses.iter();
        let statuses = statuses.map(|status| decode::status(*status));
        let prune = Prune {
            filter: Filter {
                project: decode::given(&request.project),
                ..Filter::default()
            },
            older_than: Duration::from_millis(request.older_than_ms.unwrap_or_default()),
            keep: usize::try_from(request.keep.unwrap_or_default()).unwrap_or(usize::MAX),
            statuses: statuses.collect::<Result<_, _>>()?,
            dry_run: request.dry_run,
        };
        let token = match decode::given(&request.page_token) {
            None => PruneToken::default(),
            Some(token) => serde_json::from_str(&token).map_err(|error| {
                invalid("page_token", format!("not of an earlier answer: {error}"))
            })?,
        };
        let Pruned { runs, next } = self.access.prune(&caller, prune, token).await?;
        let (run_ids, files_remain) = if request.dry_run {
            let runs = runs.into_iter();
            (runs.map(|removed| removed.run.to_string()).collect(), false)
        } else {
            self.removed(runs, request.purge).await?
        };
        let next = next.map(|token| serde_json::to_string(&token).expect("a token is plain data"));
        Ok(Response::new(v1::PruneResponse {
            run_ids,
            files_remain,
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn suspend(
        &self,
        request: Request<v1::SuspendRequest>,
    ) -> RpcResult<v1::SuspendResponse> {
        let run = self.actionable(request, |request| request.run_id).await?;
        let run = run.suspend().await?;
        answered(&run, |run| v1::SuspendResponse { run: Some(run) }).await
    }

    async fn resume(&self, request: Request<v1::ResumeRequest>) -> RpcResult<v1::ResumeResponse> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(&request.run_id)?;
        let (raised, spend) = decode::raise(request.raise)?;
        let resume = Resume {
            by: decode::cause(&caller, &request.reason)?,
            raised,
            spend,
            verdicts: decode::answers(request.answers)?,
            result: decode::json("result_json", &request.result_json)?,
            approval: None,
            message: decode::given(&request.message),
            same_text: request.same_text,
            failed: request.failed,
            layers: vec![caller.clone()],
            caller_account: None,
        };
        let old = self.access.actionable(&caller, &id).await?;
        let before = old.newest().await?;
        let run = old.resume(resume).await?;
        let cursor = resumed_at(&before, &run);
        let answer = |run| v1::ResumeResponse {
            run: Some(run),
            cursor,
        };
        answered(&run, answer).await
    }

    async fn approvals(
        &self,
        request: Request<v1::ApprovalsRequest>,
    ) -> RpcResult<v1::ApprovalsResponse> {
        let (caller, request) = decode::open(request)?;
        let of_run = decode::optional_run_id("run_id", &request.run_id)?;
        let (asked, next) = if let Some(id) = of_run {
            let run = self.access.visible(&caller, &id).await?;
            let asked = run
                .open_approvals()
                .map(|asked| (id.clone(), asked.clone()));
            (asked.collect(), None)
        } else {
            let project = decode::given(&request.project);
            let token = decode::given(&request.page_token);
            let size = page_size(request.page_size);
            let asked = self.access.approvals(&caller, project, token, size);
            asked.await?
        };
        let approvals = asked.iter();
        Ok(Response::new(v1::ApprovalsResponse {
            approvals: approvals
                .map(|(run, asked)| encode::approval(run, asked))
                .collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn answer(&self, request: Request<v1::AnswerRequest>) -> RpcResult<v1::AnswerResponse> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(&request.run_id)?;
        let asked = decode::given(&request.approval_id);
        let answer = decode::approval_answer(&caller, &request)?;
        let verdicts = decode::answers(request.answers)?;
        let run = self.access.actionable(&caller, &id).await?;
        let run = run.answer(asked.as_deref(), answer, verdicts).await?;
        answered(&run, |run| v1::AnswerResponse { run: Some(run) }).await
    }

    async fn say(&self, request: Request<v1::SayRequest>) -> RpcResult<v1::SayResponse> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(&request.run_id)?;
        let run = self.access.actionable(&caller, &id).await?;
        let run = run.send_message(&request.message, &caller.source).await?;
        answered(&run, |run| v1::SayResponse { run: Some(run) }).await
    }

    async fn step(&self, request: Request<v1::StepRequest>) -> RpcResult<v1::StepResponse> {
        let (caller, request) = decode::open(request)?;
        if request.node.is_empty() {
            return Err(invalid("node", "it is missing"));
        }
        let mut start = decode::start(caller, request.item, request.project)?;
        start.inputs = decode::object("inputs_json", &request.inputs_json)?;
        start.text_inputs = request.text_inputs.into_iter().collect();
        start.capabilities = request.has_capabilities.then_some(request.capabilities);
        let step = Step {
            node: request.node,
            inject_state: decode::object("inject_state_json", &request.inject_state_json)?,
            resume_from: decode::optional_run_id("resume_from", &request.resume_from)?,
            verdicts: decode::answers(request.answers)?,
        };
        let (started, run) = self.access.step(start, step).await?;
        let answer = |record| v1::StepResponse {
            result_json: run.result().to_string(),
            run: Some(record),
            warnings: started.warnings,
        };
        answered(&run, answer).await
    }

    async fn validate(
        &self,
        request: Request<v1::ValidateRequest>,
    ) -> RpcResult<v1::ValidateResponse> {
        let request = request.into_inner();
        let item = decode::item(request.item)?;
        let inspector = self.access.inspector();
        let checked = inspector.validate(&item, Path::new(&request.project), request.strict);
        Ok(Response::new(encode::checked(checked.await?)))
    }

    async fn show(&self, request: Request<v1::ShowRequest>) -> RpcResult<v1::ShowResponse> {
        let (caller, request) = decode::open(request)?;
        let format = decode::format(request.format)?;
        let run = decode::optional_run_id("run_id", &request.run_id)?;
        let item = decode::item(request.item)?;
        let inspector = self.access.inspector();
        let text = match run {
            None => {
                inspector
                    .show(&item, request.project.as_ref(), format)
                    .await?
            }
            Some(run) => {
                let run = self.access.visible(&caller, &run).await?;
                let (record, walked) = (Arc::clone(&run), run.walked().await.map_err(of_journal)?);
                inspector.show_run(&item, format, record, walked).await?
            }
        };
        Ok(Response::new(v1::ShowResponse { text }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> RpcResult<v1::GetResponse> {
        let run = visible(&self.access, request, |request| request.run_id).await?;
        let brief = encode::record(&run, &run.extras_with_unknown().await?);
        let mut texts = Texts::new(run.answer_memory());
        let run = Some(texts.add(brief, &run).await);
        Ok(texts.reserved().held_by(v1::GetResponse { run }))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> RpcResult<v1::ListResponse> {
        let (caller, request) = decode::open(request)?;
        let filter = Filter {
            statuses: request
                .statuses
                .iter()
                .map(|status| decode::status(*status))
                .collect::<Result<_, _>>()?,
            project: decode::given(&request.project),
            parent: decode::optional_run_id("parent_id", &request.parent_id)?,
            item: decode::given(&request.item_id)
                .map(|id| ItemId::new(id).map_err(|error| invalid("item_id", error)))
                .transpose()?,
            ..Filter::default()
        };
        let size = page_size(request.page_size);
        let token = decode::given(&request.page_token);
        let listed = self.access.list(&caller, filter, token.as_deref(), size);
        let (runs, next) = listed.await?;
        Ok(Response::new(v1::ListResponse {
            runs: runs.iter().map(encode::listed).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn children(
        &self,
        request: Request<v1::ChildrenRequest>,
    ) -> RpcResult<v1::ChildrenResponse> {
        let (caller, request) = decode::open(request)?;
        let reach = if request.whole_tree {
            Reach::Tree
        } else {
            Reach::Children
        };
        let id = decode::run_id(&request.run_id)?;
        let below = self.access.visible(&caller, &id).await?;
        let below = below.below(reach).await?;
        let brief = async |run: Visible| {
            let beside = run.extras().await?;
            Ok::<_, Status>(encode::record(&run, &beside))
        };
        let runs = futures_util::stream::iter(below)
            .map(brief)
            .buffered(SIDE_BY_SIDE);
        let runs = runs.try_collect().await?;
        Ok(Response::new(v1::ChildrenResponse { runs }))
    }

    async fn steps(&self, request: Request<v1::StepsRequest>) -> RpcResult<v1::StepsResponse> {
        let run = visible(&self.access, request, |request| request.run_id).await?;
        let ended = run
            .steps()
            .await
            .map_err(of_journal)?
            .into_iter()
            .map(encode::step);
        let mut steps: Vec<v1::Step> = ended.collect();
        // The record is older than `steps`; the open step may have ended since.
        let last = steps.last().map_or(0, |step| step.step);
        let open = encode::open_step(&run, self.access.now());
        steps.extend(open.filter(|open| open.step > last));
        Ok(Response::new(v1::StepsResponse { steps }))
    }

    type StateStream = Pin<Box<dyn Stream<Item = Result<v1::StateResponse, Status>> + Send>>;

    async fn state(&self, request: Request<v1::StateRequest>) -> RpcResult<Self::StateStream> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(&request.run_id)?;
        let run = self.access.visible(&caller, &id).await?;
        let (json, lacking) = if request.output {
            (Json::output(&run), "it has no output")
        } else {
            (Json::state(&run), "only graph runs have a state")
        };
        let json = json.ok_or_else(|| {
            let text = format!("run `{id}`: {lacking}");
            with_reason(Status::failed_precondition(text), "precondition")
        })?;
        let (place, seq) = (self.streams.take(&caller)?, run.seq.0);
        let pieces = json.pieces(run.answer_memory()).map(move |piece| {
            let json = piece.to_vec();
            Ok(v1::StateResponse { json, seq })
        });
        Ok(Response::new(Box::pin(place.held_by(pieces))))
    }

    type TranscriptStream =
        Pin<Box<dyn Stream<Item = Result<v1::TranscriptResponse, Status>> + Send>>;

    async fn transcript(
        &self,
        request: Request<v1::TranscriptRequest>,
    ) -> RpcResult<Self::TranscriptStream> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(&request.run_id)?;
        let run = self.access.visible(&caller, &id).await?;
        let tail = request.tail.map(usize::try_from).transpose();
        let extract = Extract {
            tail: tail.unwrap_or(Some(usize::MAX)),
            verify: request.verify,
        };
        let place = self.streams.take(&caller)?;
        let reader = run.transcript(extract).await.map_err(of_journal)?;
        let lines = place.held_by(stream::transcript(reader));
        Ok(Response::new(Box::pin(lines)))
    }

    type LogsStream = Pin<Box<dyn Stream<Item = Result<v1::LogsResponse, Status>> + Send>>;

    async fn logs(&self, request: Request<v1::LogsRequest>) -> RpcResult<Self::LogsStream> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(&request.run_id)?;
        let run = self.access.visible(&caller, &id).await?;
        let wanted = LineFilter {
            node: decode::given(&request.node),
            item: decode::given(&request.item),
        };
        let place = self.streams.take(&caller)?;
        let reader = run.logs(wanted);
        let lines = logs::Lines::new(run, reader, request.tail, request.follow);
        Ok(Response::new(Box::pin(place.held_by(lines.into_stream()))))
    }

    type StreamStream = Pin<Box<dyn Stream<Item = Result<v1::StreamResponse, Status>> + Send>>;

    async fn stream(&self, request: Request<v1::StreamRequest>) -> RpcResult<Self::StreamStream> {
        let (caller, request) = decode::open(request)?;
        let id = match decode::streamed(&request)? {
            Streamed::One(id) => id,
            Streamed::Several(group) => return self.several(caller, group, request).await,
        };
        let run = Arc::new(self.access.visible(&caller, &id).await?);
        let from = decode::cursor(&id, &request.cursor)?;
        if let Some(kinds) = decode::deltas(&request)? {
            let place = self.streams.take(&caller)?;
            let live = run.listen(from).await.map_err(of_journal)?;
            let going = LiveStream::new(&run, live, kinds).await;
            let told = place.held_by(stream::live(run, going));
            return Ok(Response::new(Box::pin(told)));
        }
        let place = self.streams.take(&caller)?;
        let until = if request.follow {
            Until::Ended
        } else {
            Until::Now
        };
        let events = run.events(from, until).await.map_err(of_journal)?;
        let events = place.held_by(stream::events(Arc::clone(&run), events));
        Ok(Response::new(Box::pin(events)))
    }
}
