//! Model providers, as data: their files, the cost of a call, the requests, and the meaning of answers.
//!
//! **Owns** provider files (`.ai/config/agent/providers/*.yaml`) and `agent.yaml`, the choice of a model, sizes and
//! prices of calls, request bodies, the decoding of streams, and the classification of failed calls. **Never** opens a
//! connection or reads a clock, a variable or a secret: it knows only the *names* of secrets.
//!
//! ```text
//! provider files + agent.yaml ──resolve──► ResolvedModel ──size──► amount to hold
//!                                            └──► Wire (sent bytes never change) ──► body
//! bytes of an answer ──sse::Splitter──► events ──Decoder──► Signals
//! a failed call ──failure::classify──► Verdict
//! ```
//!
//! Each API has code. Differences between providers of one API are data (`quirks`); no code depends on the name of a
//! provider.
//!
//! **Failure.** All findings of a provider file are reported with line and column. A stream is hostile input: every
//! part of it is bounded, and a violation ends in [`StreamSignal::Broken`](stream::StreamSignal::Broken), never in a panic.

mod api_error;
mod half;
mod protocol;
mod quirks;
pub mod sse;
mod url;
mod usage;

mod endpoint;
mod model;
pub mod stream;

pub mod failure;
mod field;
mod vendor;

mod file;

mod agent;

mod choice;

mod api;
mod received;
mod size;

/// The folder of provider files.
pub const PROVIDERS: &str = "agent/providers";
/// The configuration of tiers, aliases and the default model.
pub const AGENT: &str = "agent/agent";

pub use self::agent::Agent;
pub use self::api::{Decoder, Wire, assemble};
pub use self::choice::{ModelRequest, ResolvedModel, Thinking, Unresolved, resolve};
pub use self::endpoint::{Auth, BaseUrl, Endpoint, HeaderValue, Owner, Timeouts};
pub use self::model::{Model, Reasoning};
pub use self::protocol::Api;
pub use self::quirks::{
    CacheMarks, EndMark, IdRule, IndexRule, MaxTokensField, Quirks, ReasoningReplay, SystemRole,
    UsageReport,
};
pub use self::received::{KnownCost, Received};
pub use self::size::{CallContext, Size, TooSmall};
pub use self::usage::{Prices, Tier, Tokens};
pub use self::vendor::Provider;

#[cfg(test)]
mod tests;
