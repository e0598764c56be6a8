//! What runs ask people, and the answers.

use rye_proto::v1;

use crate::Error;
use crate::client::Client;

impl Client {
    /// What is asked and nobody has answered.
    pub async fn approvals(
        &self,
        request: v1::ApprovalsRequest,
    ) -> Result<Vec<v1::Approval>, Error> {
        let asked = self.runs().approvals(request).await;
        Ok(self.answer(asked)?.approvals)
    }

    /// Answers what a run asks; the run right behind that.
    pub async fn answer_approval(&self, request: v1::AnswerRequest) -> Result<v1::Run, Error> {
        let answered = self.runs().answer(request).await;
        let run = self.answer(answered)?.run;
        run.ok_or_else(|| Error::Malformed {
            what: "an answer without its run".to_owned(),
        })
    }
}
