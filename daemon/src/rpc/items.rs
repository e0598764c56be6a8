//! The service `Items`: running, fetching and signing items, and previewing threads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::capability::normalise;
use rye_core::id::ItemRef;
use rye_core::model::{Failure, Run};
use rye_proto::v1;
use rye_proto::v1::items_server::Items;
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use super::status::{invalid, with_reason};
use super::{decode, encode, models, texts};
use crate::access::Access;
use crate::port::launched;
use crate::services::{Envelope, TraceMode};
use crate::supervisor::{Executed, Lookup};

/// Most items per call of `Verify`.
const MOST_VERIFIED: usize = 1000;

#[derive(Debug)]
pub(super) struct ItemsService {
    access: Access,
}

impl ItemsService {
    pub(super) fn new(access: Access) -> Self {
        Self { access }
    }

    async fn answered(
        &self,
        item: ItemRef,
        executed: Executed,
        found: Lookup,
    ) -> Response<v1::ExecuteResponse> {
        let (envelope, run_id) = match executed {
            Executed::NoRun(envelope) => (*envelope, String::new()),
            Executed::Tool(envelope, run) => (*envelope, run.to_string()),
            Executed::Run(run) => (of_run(&run, run.result(), found), run.id.to_string()),
            Executed::Launched(run) => (of_run(&run, launched(&run), found), run.id.to_string()),
            Executed::Document(data) => {
                (envelope(item, data, Duration::ZERO, found), String::new())
            }
        };
        let (envelope_json, reserved) =
            texts::whole(&self.access.answer_memory(), envelope.to_json()).await;
        drop(envelope);
        reserved.held_by(v1::ExecuteResponse {
            envelope_json,
            run_id,
        })
    }
}

#[tonic::async_trait]
impl Items for ItemsService {
    async fn execute(
        &self,
        request: Request<v1::ExecuteRequest>,
    ) -> Result<Response<v1::ExecuteResponse>, Status> {
        if let Some(program) = decode::program(&request) {
            let call = decode::program_call(request.into_inner())?;
            let item = call.item.clone();
            let (executed, found) = self.access.call_back(program, call).await?;
            return Ok(self.answered(item, executed, found).await);
        }
        let (caller, request) = decode::open(request)?;
        if !request.idempotency_key.is_empty() {
            let problem = "is for programs of runs; a start has a key of its own";
            return Err(invalid("idempotency_key", problem));
        }
        let mut start = decode::start(caller, request.item, request.project)?;
        start.inputs = decode::object("params_json", &request.params_json)?;
        let item = start.item.clone();
        let trace = if request.trace {
            TraceMode::On
        } else {
            TraceMode::Off
        };
        let (executed, found) = if request.dry_run {
            self.access.rehearse(start).await?
        } else {
            self.access.execute(start, trace).await?
        };
        Ok(self.answered(item, executed, found).await)
    }

    async fn fetch(
        &self,
        request: Request<v1::FetchRequest>,
    ) -> Result<Response<v1::FetchResponse>, Status> {
        let result = if let Some(program) = decode::program(&request) {
            let asked = decode::fetch(request.into_inner())?;
            self.access.fetch_for(&program, asked).await?
        } else {
            let (caller, request) = decode::open(request)?;
            let project = PathBuf::from(&request.project);
            let asked = decode::fetch(request)?;
            self.access.fetch(caller, &project, asked).await?
        };
        Ok(Response::new(v1::FetchResponse {
            result_json: result.to_string(),
        }))
    }

    async fn progress(
        &self,
        request: Request<v1::ProgressRequest>,
    ) -> Result<Response<v1::ProgressResponse>, Status> {
        let Some(program) = decode::program(&request) else {
            let text = "only a program of a run reports progress";
            return Err(with_reason(
                Status::failed_precondition(text),
                "not_a_program",
            ));
        };
        let v1::ProgressRequest { fraction, message } = request.into_inner();
        let noted = self.access.note_progress(&program, fraction, message);
        let recorded = noted?;
        Ok(Response::new(v1::ProgressResponse { recorded }))
    }

    async fn sign(
        &self,
        request: Request<v1::SignRequest>,
    ) -> Result<Response<v1::SignResponse>, Status> {
        let (caller, request) = decode::open(request)?;
        let project = PathBuf::from(&request.project);
        let asked = decode::sign(&request)?;
        let result = self.access.sign(caller, &project, asked).await?;
        Ok(Response::new(v1::SignResponse {
            result_json: result.to_string(),
        }))
    }

    async fn models(
        &self,
        request: Request<v1::ModelsRequest>,
    ) -> Result<Response<v1::ModelsResponse>, Status> {
        let request = request.into_inner();
        let listing = self.access.models(Path::new(&request.project)).await?;
        Ok(Response::new(models::listing(listing)))
    }

    async fn lock(
        &self,
        request: Request<v1::LockRequest>,
    ) -> Result<Response<v1::LockResponse>, Status> {
        let (caller, request) = decode::open(request)?;
        let item = decode::item(request.item)?;
        let project = PathBuf::from(request.project);
        let draft = self.access.lock(caller, &project, item).await?;
        Ok(Response::new(encode::lock(draft)))
    }

    async fn list(
        &self,
        request: Request<v1::ListItemsRequest>,
    ) -> Result<Response<v1::ListItemsResponse>, Status> {
        let (caller, request) = decode::open(request)?;
        let wanted = decode::item_filter(&request)?;
        let project = Path::new(&request.project);
        let (items, next) = self.access.items(caller, project, wanted).await?;
        Ok(Response::new(v1::ListItemsResponse {
            items: items.iter().map(encode::items::entry).collect(),
            next_page_token: next.map(|item| item.to_string()).unwrap_or_default(),
        }))
    }

    async fn describe(
        &self,
        request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::DescribeResponse>, Status> {
        let (caller, request) = decode::open(request)?;
        let name = decode::item_name("item", request.item)?;
        let project = Path::new(&request.project);
        let described = self.access.describe(caller, project, name).await?;
        Ok(Response::new(encode::items::described(described)))
    }

    async fn verify(
        &self,
        request: Request<v1::VerifyRequest>,
    ) -> Result<Response<v1::VerifyResponse>, Status> {
        let (caller, request) = decode::open(request)?;
        if request.items.is_empty() || request.items.len() > MOST_VERIFIED {
            let problem = format!("name from 1 to {MOST_VERIFIED} items");
            return Err(invalid("items", problem));
        }
        let project = Path::new(&request.project);
        let mut items = Vec::with_capacity(request.items.len());
        for item in request.items {
            let name = decode::item_name("items", Some(item))?;
            let found = self.access.describe(caller.clone(), project, name).await?;
            items.push(encode::items::entry(&found.entry));
        }
        Ok(Response::new(v1::VerifyResponse { items }))
    }

    async fn preview(
        &self,
        request: Request<v1::PreviewRequest>,
    ) -> Result<Response<v1::PreviewResponse>, Status> {
        let (caller, request) = decode::open(request)?;
        let mut start = decode::start(caller, request.item, request.project)?;
        start.inputs = decode::object("inputs_json", &request.inputs_json)?;
        start.text_inputs = request.text_inputs.into_iter().collect();
        start.capabilities = request.has_capabilities.then_some(request.capabilities);
        start.limits = decode::limits(request.limits)?;
        start.model = decode::given(&request.model);
        start.provider = decode::given(&request.provider);
        let preview = self.access.preview(start).await?;
        Ok(Response::new(models::preview(preview)))
    }

    async fn risks(
        &self,
        request: Request<v1::RisksRequest>,
    ) -> Result<Response<v1::RisksResponse>, Status> {
        let request = request.into_inner();
        let project = Path::new(&request.project);
        let permissions = request.permissions.iter();
        let permissions = permissions.map(|permission| normalise(permission));
        let risks = self.access.risks(project, permissions.collect()).await?;
        Ok(Response::new(v1::RisksResponse {
            risks: models::risks(risks),
        }))
    }
}

fn of_run(run: &Run, data: Value, found: Lookup) -> Envelope {
    let elapsed = run.updated_at.ms_since(run.created_at);
    let elapsed = Duration::from_millis(elapsed);
    envelope(run.spec.item.clone(), data, elapsed, found)
}

/// The envelope of a result without a tool call. `data` states success, status, error and code itself.
fn envelope(item: ItemRef, data: Value, elapsed: Duration, found: Lookup) -> Envelope {
    let text = |key: &str| data[key].as_str().map(str::to_owned);
    let failure = (data["success"] != json!(true)).then(|| {
        let status = text("status").unwrap_or_else(|| "invalid".to_owned());
        let message = text("error").unwrap_or_else(|| format!("it is {status}"));
        Failure::permanent(&text("code").unwrap_or(status), message)
    });
    Envelope {
        data,
        failure,
        chain: found.chain,
        trace: found.trace,
        elapsed,
        ..Envelope::of(item)
    }
}
