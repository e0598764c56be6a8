//! APIs of providers.

use serde::{Deserialize, Serialize};

/// Wire protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `POST /v1/messages` of Anthropic.
    Anthropic,
    /// `POST /chat/completions` of `OpenAI` and of many others.
    OpenaiChat,
}

impl Api {
    /// Returns the name used in provider files and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiChat => "openai_chat",
        }
    }
}
