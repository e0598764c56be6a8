//! Providers of models, as data: what their files say, what a call costs, what is sent, and what an answer means.
//!
//! **Owns** provider files (`.ai/config/agent/providers/*.yaml`) and `agent.yaml`, the choice of a model, sizes and prices of calls,
//! the bodies of requests, the reading of streams, and what a failed call means. **Never** opens a connection, reads a clock, a
//! variable or a secret: it knows the *names* of secrets only.
//!
//! ```text
//! provider files + agent.yaml ──resolve──► ResolvedModel ──size──► what to hold
//!                                            └──► Wire (bytes that were sent stay) ──► body
//! bytes of an answer ──sse::Splitter──► events ──Decoder──► Signals
//! a failed call ──failure::classify──► Verdict
//! ```
//!
//! What an api asks for is code, what varies among its providers is data (`quirks`); no code asks for the name of a provider.
//!
//! **Failure.** All findings of a provider file are reported with line and column. A stream is hostile: every part of it is bounded,
//! and one that breaks a rule ends in [`Signal::Broken`](stream::Signal::Broken), never in a panic.

mod agent;
mod api;
mod choice;
mod endpoint;
pub mod failure;
mod field;
mod file;
mod half;
mod model;
mod quirks;
mod received;
mod size;
pub mod sse;
pub mod stream;
mod url;
mod usage;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::definition::{Finding, Severity};
use crate::directive::CallStart;
use crate::id::ItemId;
use crate::yaml;

pub use agent::Agent;
pub use api::{Decoder, Wire, assemble};
pub use choice::{Asked, ResolvedModel, Thinking, Unresolved, resolve};
pub use endpoint::{Auth, BaseUrl, Endpoint, HeaderValue, Owner, Timeouts};
pub use model::{Model, Reasoning};
pub use quirks::{
    CacheMarks, EndMark, IdRule, IndexRule, MaxTokensField, Quirks, ReasoningReplay, SystemRole,
    UsageReport,
};
pub use received::{KnownCost, Received};
pub use size::{Ahead, Size, TooSmall};
pub use usage::{Prices, Tier, Tokens};

/// Days after which what a file says about a vendor should be looked at again.
const FRESH_DAYS: i64 = 90;

/// The means by which a provider is talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `POST /v1/messages` of Anthropic.
    Anthropic,
    /// `POST /chat/completions` of `OpenAI` and of many others.
    OpenaiChat,
}

impl Api {
    /// As provider files and records have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiChat => "openai_chat",
        }
    }
}

/// A provider.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Its name, which is the stem of its file.
    pub name: String,
    /// How it is talked to.
    pub api: Api,
    /// What a call needs of it.
    pub endpoint: Endpoint,
    /// What it does unlike others of its api.
    pub quirks: Quirks,
    /// When a call that a stream brings starts.
    pub start: CallStart,
    /// Most calls of one message at once.
    pub max_parallel: u32,
    /// When what the file says was looked up.
    pub as_of: Option<Timestamp>,
    /// Whether models that are not listed are taken as well.
    pub open: bool,
    models: Vec<Model>,
    /// What is known of a model that is not listed.
    profiles: Vec<model::Profile>,
}

impl Provider {
    /// Reads the provider file `id`, which belongs to `owner`: the provider with warnings, or all errors and warnings.
    pub fn parse(
        text: &str,
        id: &ItemId,
        owner: Owner,
    ) -> Result<(Self, Vec<Finding>), Vec<Finding>> {
        let document = yaml::parse(text).map_err(|fault| vec![Finding::of_yaml(fault)])?;
        let (provider, findings) = file::read(&document, id, owner);
        match provider {
            Some(provider) if findings.iter().all(|f| f.severity == Severity::Warning) => {
                Ok((provider, findings))
            }
            Some(_) | None => Err(findings),
        }
    }

    /// Its models, in the order of the file.
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// The model of that id or alias. An open provider has any; of one that is not listed only its profiles tell.
    pub fn model(&self, name: &str) -> Option<Model> {
        let listed = self.listed(name).cloned();
        listed.or_else(|| {
            self.open
                .then(|| Model::unlisted(name, &self.profiles, self.api))
                .flatten()
        })
    }

    /// The model that is listed under that id or alias.
    pub fn listed(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.is_called(name))
    }

    /// Whether what the file says is so old that somebody should look at it again.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        const DAY: i64 = 86_400;
        self.as_of
            .is_some_and(|as_of| now.seconds().saturating_sub(as_of.seconds()) > FRESH_DAYS * DAY)
    }
}

#[cfg(test)]
mod tests;
