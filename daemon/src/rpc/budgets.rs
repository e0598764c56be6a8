//! The service `Budgets`: limits and spending of runs.

use rye_proto::v1;
use rye_proto::v1::budgets_server::Budgets;
use tonic::{Request, Response, Status};

use super::visible::visible;
use super::{decode, encode};
use crate::access::Access;

#[derive(Debug)]
pub(super) struct BudgetsService {
    access: Access,
}

impl BudgetsService {
    pub(super) const fn new(access: Access) -> Self {
        Self { access }
    }
}

#[tonic::async_trait]
impl Budgets for BudgetsService {
    async fn get(
        &self,
        request: Request<v1::GetBudgetRequest>,
    ) -> Result<Response<v1::GetBudgetResponse>, Status> {
        let run = visible(&self.access, request, |request| request.run_id).await?;
        let path = run.budget_path().await?;
        let meters = run.meters();
        let meters = meters.iter().map(encode::meter);
        Ok(Response::new(v1::GetBudgetResponse {
            path: path.iter().map(encode::budget).collect(),
            meters: meters.collect(),
        }))
    }

    async fn tree(
        &self,
        request: Request<v1::BudgetTreeRequest>,
    ) -> Result<Response<v1::BudgetTreeResponse>, Status> {
        let run = visible(&self.access, request, |request| request.run_id).await?;
        let accounts = run.budget_tree().await?.into_iter();
        let accounts = accounts.map(|(depth, account)| v1::BudgetNode {
            budget: Some(encode::budget(&account)),
            depth,
        });
        Ok(Response::new(v1::BudgetTreeResponse {
            accounts: accounts.collect(),
        }))
    }

    async fn raise(
        &self,
        request: Request<v1::RaiseBudgetRequest>,
    ) -> Result<Response<v1::RaiseBudgetResponse>, Status> {
        let (caller, request) = decode::open(request)?;
        let id = decode::run_id(&request.run_id)?;
        let to = decode::amount("spend", &request.spend)?;
        let by = decode::cause(&caller, "")?;
        let run = self.access.actionable(&caller, &id).await?;
        let raised = run.raise_budget(to, request.through, &by).await?;
        Ok(Response::new(v1::RaiseBudgetResponse {
            raised: raised.iter().map(encode::budget).collect(),
        }))
    }
}
