//! Answers about items.

use rye_proto::v1;
use rye_proto::v1::items_server::Items;
use tonic::{Request, Response, Status};

use super::{Answers, RUN};

#[tonic::async_trait]
impl Items for Answers {
    async fn execute(
        &self,
        request: Request<v1::ExecuteRequest>,
    ) -> Result<Response<v1::ExecuteResponse>, Status> {
        self.0
            .record_request(format!("execute {}", request.into_inner().params_json));
        Ok(Response::new(v1::ExecuteResponse {
            envelope_json: self.0.envelope.clone(),
            run_id: RUN.to_owned(),
        }))
    }

    async fn fetch(
        &self,
        request: Request<v1::FetchRequest>,
    ) -> Result<Response<v1::FetchResponse>, Status> {
        let request = request.into_inner();
        self.0
            .record_request(format!("fetch {}{:?}", request.item_id, request.query));
        Ok(Response::new(v1::FetchResponse {
            result_json: r#"{"results":[],"total":0}"#.to_owned(),
        }))
    }

    async fn progress(
        &self,
        _request: Request<v1::ProgressRequest>,
    ) -> Result<Response<v1::ProgressResponse>, Status> {
        Err(Status::unimplemented("no command asks for this"))
    }

    async fn sign(
        &self,
        _request: Request<v1::SignRequest>,
    ) -> Result<Response<v1::SignResponse>, Status> {
        Err(Status::unimplemented("no command asks for this"))
    }

    async fn models(
        &self,
        _request: Request<v1::ModelsRequest>,
    ) -> Result<Response<v1::ModelsResponse>, Status> {
        Ok(Response::new(self.0.models.clone()))
    }

    async fn lock(
        &self,
        request: Request<v1::LockRequest>,
    ) -> Result<Response<v1::LockResponse>, Status> {
        let item = request.into_inner().item.unwrap_or_default();
        self.0.record_request(format!("lock {}", item.id));
        Ok(Response::new(v1::LockResponse {
            tool_id: item.id,
            version: "1.0.0".to_owned(),
            lock_json: "{}".to_owned(),
            ..v1::LockResponse::default()
        }))
    }

    async fn list(
        &self,
        request: Request<v1::ListItemsRequest>,
    ) -> Result<Response<v1::ListItemsResponse>, Status> {
        let request = request.into_inner();
        let (kind, pattern) = (request.r#type, &request.pattern);
        self.0
            .record_request(format!("list items {kind} {pattern}"));
        let page = |id: &str, next: &str| v1::ListItemsResponse {
            items: vec![item(request.r#type, id)],
            next_page_token: next.to_owned(),
        };
        // The list has two pages.
        Ok(Response::new(match request.page_token.as_str() {
            "" => page("app/a", "more"),
            _ => page("app/b", ""),
        }))
    }

    async fn describe(
        &self,
        request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::DescribeResponse>, Status> {
        let named = request.into_inner().item.unwrap_or_default();
        self.0
            .record_request(format!("describe {} {}", named.r#type, named.id));
        let schema = r#"{"type":"object","required":["who"],"properties":{"who":{"type":"string","description":"Whom."},
            "times":{"type":"integer","default":3}}}"#;
        Ok(Response::new(v1::DescribeResponse {
            item: Some(item(1, &named.id)),
            inputs_schema_json: schema.to_owned(),
            has_permissions: true,
            permissions: vec!["rye.execute.tool.*".to_owned()],
            ..v1::DescribeResponse::default()
        }))
    }

    async fn verify(
        &self,
        _request: Request<v1::VerifyRequest>,
    ) -> Result<Response<v1::VerifyResponse>, Status> {
        Ok(Response::new(v1::VerifyResponse::default()))
    }

    async fn preview(
        &self,
        request: Request<v1::PreviewRequest>,
    ) -> Result<Response<v1::PreviewResponse>, Status> {
        self.0
            .record_request(format!("preview {:?}", request.into_inner().text_inputs));
        Ok(Response::new(self.0.preview.clone()))
    }

    async fn risks(
        &self,
        request: Request<v1::RisksRequest>,
    ) -> Result<Response<v1::RisksResponse>, Status> {
        let permissions = request.into_inner().permissions.into_iter();
        let risks = permissions.map(|permission| v1::PermissionRisk {
            permission,
            risk: "elevated".to_owned(),
            policy: "acknowledge_required".to_owned(),
        });
        Ok(Response::new(v1::RisksResponse {
            risks: risks.collect(),
        }))
    }
}

/// Makes a signed item of a project.
fn item(kind: i32, id: &str) -> v1::Item {
    v1::Item {
        item: Some(v1::ItemRef {
            r#type: kind,
            id: id.to_owned(),
        }),
        space: "project".to_owned(),
        path: format!("/p/.ai/tools/{id}.yaml"),
        verdict: "full".to_owned(),
        owner: "self".to_owned(),
        fingerprint: "0123456789abcdef".to_owned(),
        description: "Does a thing.".to_owned(),
        ..v1::Item::default()
    }
}
