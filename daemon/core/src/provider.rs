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
pub mod failure;
mod file;
mod model;
mod quirks;
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
pub use model::{Model, Reasoning, Reseed};
pub use quirks::{
    CacheMarks, EndMark, IdRule, IndexRule, MaxTokensField, Quirks, ReasoningReplay, SystemRole,
    UsageReport,
};
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

/// A provider.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Its name, which is the stem of its file.
    pub name: String,
    /// How it is talked to.
    pub api: Api,
    /// Where it is.
    pub base_url: BaseUrl,
    /// What is appended to it; `{model}` stands for the model.
    pub path: String,
    /// Headers of each request.
    pub headers: Vec<(String, HeaderValue)>,
    /// How it knows us: the first of which there is a secret. None at all: it asks for none.
    pub auth: Vec<Auth>,
    /// Most calls at once.
    pub max_concurrent: u32,
    /// How long its answers are waited for.
    pub timeouts: Timeouts,
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

/// Where a provider is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// The variable of the daemon's environment that says so, if it is set.
    pub env: Option<String>,
    /// The address if there is none.
    pub default: Option<String>,
    /// Whether it may be plain HTTP beyond this machine.
    pub insecure: bool,
}

impl BaseUrl {
    /// The address, given the value of the variable. The error says what is wrong with it.
    pub fn resolve(&self, env: impl FnOnce(&str) -> Option<String>) -> Result<String, String> {
        let set = self.env.as_deref().and_then(env);
        let set = set.filter(|address| !address.trim().is_empty());
        let Some(address) = set.or_else(|| self.default.clone()) else {
            let name = self.env.as_deref().unwrap_or_default();
            return Err(format!(
                "the variable `{name}` is not set, and `base_url` has no default"
            ));
        };
        let address = address.trim().trim_end_matches('/');
        url::check(address, self.insecure)?;
        Ok(address.to_owned())
    }
}

/// The value of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValue {
    /// This one.
    Text(String),
    /// What a variable of the daemon's environment holds; without it the header is left out.
    Env(String),
}

/// A way to say who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// The header.
    pub header: String,
    /// What stands before the secret.
    pub prefix: String,
    /// The name of the secret.
    pub secret: String,
}

/// How long an answer is waited for, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the connection.
    pub connect: u32,
    /// For the headers.
    pub headers: u32,
    /// For the first event.
    pub first_event: u32,
    /// Between two events.
    pub idle: u32,
}

/// In which space a provider file lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The system's or the user's own.
    User,
    /// That of a project, which may be anybody's.
    Project,
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

    /// The names of the secrets that it may be given.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.auth.iter().map(|auth| auth.secret.as_str())
    }

    /// Whether it can be called: it asks for no secret, or one of them exists.
    pub fn is_usable(&self, has_secret: &dyn Fn(&str) -> bool) -> bool {
        self.auth.is_empty() || self.secrets().any(has_secret)
    }

    /// Whether what the file says is so old that somebody should look at it again.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        const DAY: i64 = 86_400;
        self.as_of
            .is_some_and(|as_of| now.seconds().saturating_sub(as_of.seconds()) > FRESH_DAYS * DAY)
    }

    /// Where a call of `model` goes, given the address of the provider.
    pub fn endpoint(&self, base: &str, model: &str) -> String {
        let model = url::encode(model);
        format!("{base}{}", self.path.replace("{model}", &model))
    }
}

#[cfg(test)]
mod tests;
