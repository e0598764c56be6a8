//! Apis by which providers are talked to.

use serde::{Deserialize, Serialize};

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
