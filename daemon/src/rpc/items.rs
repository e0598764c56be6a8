//! The service `Items`: running an item for its answer.

use rye_core::id::ItemRef;
use rye_core::model::Object;
use rye_proto::v1;
use rye_proto::v1::items_server::Items;
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use super::decode;
use crate::dispatch::Trace;
use crate::supervisor::{Executed, Supervisor, launched};

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
        let (caller, request) = decode::open(request)?;
        let mut start = decode::start(caller, request.item, request.project)?;
        start.inputs = decode::object("params_json", &request.params_json)?;
        let item = start.item.clone();
        let trace = if request.trace {
            Trace::Kept
        } else {
            Trace::Dropped
        };
        let (document, run_id) = match self.supervisor.execute(start, trace).await? {
            Executed::Tool(envelope, run) => (envelope.to_json(), run.to_string()),
            Executed::Run(run) => (envelope(&run.birth.item, run.result()), run.id.to_string()),
            Executed::Launched(run) => {
                let data = launched(&run);
                (envelope(&run.birth.item, data), run.id.to_string())
            }
            Executed::Document(data) => (envelope(&item, data), String::new()),
        };
        Ok(Response::new(v1::ExecuteResponse {
            envelope_json: document.to_string(),
            run_id,
        }))
    }
}

/// The envelope of what was not a tool call: a document as its data.
fn envelope(item: &ItemRef, data: Value) -> Value {
    let success = data["success"] == json!(true);
    let error = (!success).then(|| data["error"].clone());
    let status = if success { "success" } else { "error" };
    let mut document = Object::new();
    let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
    put("status", json!(status));
    put("type", json!(item.kind.as_str()));
    put("item_id", json!(item.id));
    put("data", data);
    put("chain", json!([]));
    put("metadata", json!({}));
    if let Some(error) = error {
        put("error", error);
    }
    Value::Object(document)
}
