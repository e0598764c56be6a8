//! Questions that runs ask people, and their answers.

use rye_proto::v1;

use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Returns all open approvals, from the page of `request` on.
    pub async fn approvals(
        &self,
        mut request: v1::ApprovalsRequest,
    ) -> Result<Vec<v1::Approval>, Error> {
        let mut all = Vec::new();
        loop {
            let asked = self.runs().approvals(request.clone()).await;
            let page = self.answer(asked)?;
            all.extend(page.approvals);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Answers an approval. Returns the run right after the answer.
    pub async fn answer_approval(&self, request: v1::AnswerRequest) -> Result<v1::Run, Error> {
        let answered = self.runs().answer(request).await;
        self.whole(self.answer(answered)?.run).await
    }
}
