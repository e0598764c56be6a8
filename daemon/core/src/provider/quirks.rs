//! Differences between providers of one API.

use serde::{Deserialize, Serialize};

/// Differences of a provider from its API. The first value of each is the behaviour of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Quirks {
    /// End of a message.
    #[serde(skip_serializing_if = "is_default")]
    pub end: EndMark,
    /// Use of cache breakpoints in requests.
    #[serde(skip_serializing_if = "is_default")]
    pub cache: CacheMarks,
    /// Reports of token usage.
    #[serde(skip_serializing_if = "is_default")]
    pub usage: UsageReport,
    /// Presence of ids in calls.
    #[serde(skip_serializing_if = "is_default")]
    pub tool_ids: IdRule,
    /// Rule that assigns parts to calls.
    #[serde(skip_serializing_if = "is_default")]
    pub tool_index: IndexRule,
    /// Role of the system prompt.
    #[serde(skip_serializing_if = "is_default")]
    pub system: SystemRole,
    /// Name of the field for the output limit.
    #[serde(skip_serializing_if = "is_default")]
    pub max_tokens_field: MaxTokensField,
    /// Reasoning that the provider accepts in requests.
    #[serde(skip_serializing_if = "is_default")]
    pub reasoning_replay: ReasoningReplay,
}

/// Returns true if a quirk is omitted from stored records.
fn is_default<T: Default + PartialEq>(quirk: &T) -> bool {
    *quirk == T::default()
}

/// Declares a quirk with the names of its values in files; the first one is the default.
macro_rules! quirk {
    ($(#[$about:meta])* $name:ident { $(#[$first_about:meta])* $first:ident = $first_word:literal $(, $(#[$value_about:meta])* $value:ident = $word:literal)* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $(#[$first_about])*
            #[default]
            $first,
            $($(#[$value_about])* $value,)*
        }

        impl $name {
            /// Names in files with their values.
            pub(super) const WORDS: &'static [(&'static str, Self)] =
                &[($first_word, Self::$first) $(, ($word, Self::$value))*];
        }
    };
}

quirk! {
    /// End of a message.
    EndMark {
        /// Exactly as the API defines it.
        Strict = "strict",
        /// A stop reason or the end event alone suffices, too.
        Lenient = "lenient",
    }
}

quirk! {
    /// Use of cache breakpoints in requests.
    CacheMarks {
        Marked = "marked",
        None = "none",
    }
}

quirk! {
    /// Reports of token usage.
    UsageReport {
        /// A request must ask for the report.
        Requested = "requested",
        /// A request must not ask for it.
        Unsupported = "unsupported",
    }
}

quirk! {
    /// Presence of ids in calls. The value has no effect: a call without an id is given one.
    IdRule {
        Required = "required",
        Optional = "optional",
    }
}

quirk! {
    /// Rule that assigns parts to calls.
    IndexRule {
        /// By their index; without one, by their id or their order.
        Index = "index",
        /// By their id, too: another id, or a name without an index, always begins another call.
        Id = "id",
    }
}

quirk! {
    /// Role of the system prompt.
    SystemRole {
        System = "system",
        Developer = "developer",
    }
}

quirk! {
    /// Name of the field for the output limit.
    MaxTokensField {
        MaxCompletionTokens = "max_completion_tokens",
        MaxTokens = "max_tokens",
    }
}

quirk! {
    /// Reasoning that the provider accepts in requests.
    ReasoningReplay {
        None = "none",
        Raw = "raw",
        ReasoningContent = "reasoning_content",
        Reasoning = "reasoning",
    }
}
