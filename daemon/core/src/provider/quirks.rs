//! What a provider does unlike others of its api.

use serde::{Deserialize, Serialize};

/// What a provider does unlike others of its api. The first of each kind is what the api does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Quirks {
    /// How a message ends.
    #[serde(skip_serializing_if = "is_default")]
    pub end: EndMark,
    /// Whether parts of a request are marked for its cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cache: CacheMarks,
    /// Whether it says what a call used.
    #[serde(skip_serializing_if = "is_default")]
    pub usage: UsageReport,
    /// Whether its calls have ids.
    #[serde(skip_serializing_if = "is_default")]
    pub tool_ids: IdRule,
    /// By what the parts of a call are known.
    #[serde(skip_serializing_if = "is_default")]
    pub tool_index: IndexRule,
    /// Who says the system prompt.
    #[serde(skip_serializing_if = "is_default")]
    pub system: SystemRole,
    /// Where the most tokens of an answer stand.
    #[serde(skip_serializing_if = "is_default")]
    pub max_tokens_field: MaxTokensField,
    /// What it takes back of reasoning.
    #[serde(skip_serializing_if = "is_default")]
    pub reasoning_replay: ReasoningReplay,
}

/// Whether a quirk is left out of what is stored.
fn is_default<T: Default + PartialEq>(quirk: &T) -> bool {
    *quirk == T::default()
}

/// Declares a quirk with the names that its values have in files; the first is the default.
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
            /// The names in files, and what they stand for.
            pub(super) const WORDS: &'static [(&'static str, Self)] =
                &[($first_word, Self::$first) $(, ($word, Self::$value))*];
        }
    };
}

quirk! {
    /// How a message ends.
    EndMark {
        /// With the mark of the api.
        Strict = "strict",
        /// With a reason to stop, or with the mark.
        Lenient = "lenient",
    }
}

quirk! {
    /// Whether parts of a request are marked for a cache.
    CacheMarks {
        /// They are.
        Marked = "marked",
        /// They are not.
        None = "none",
    }
}

quirk! {
    /// Whether a provider says what a call used.
    UsageReport {
        /// If it is asked.
        Requested = "requested",
        /// It is not to be asked.
        Unsupported = "unsupported",
    }
}

quirk! {
    /// Whether calls have ids. It makes no difference: a call that has none is given one.
    IdRule {
        /// They do.
        Required = "required",
        /// They may have none.
        Optional = "optional",
    }
}

quirk! {
    /// By what the parts of a call are known.
    IndexRule {
        /// By their index, or by their id or their order where there is none.
        Index = "index",
        /// By their id, too: another id, or a name without an index, always begins another call.
        Id = "id",
    }
}

quirk! {
    /// Who says the system prompt.
    SystemRole {
        /// `system`.
        System = "system",
        /// `developer`.
        Developer = "developer",
    }
}

quirk! {
    /// Where the most tokens of an answer stand.
    MaxTokensField {
        /// In `max_completion_tokens`.
        MaxCompletionTokens = "max_completion_tokens",
        /// In `max_tokens`.
        MaxTokens = "max_tokens",
    }
}

quirk! {
    /// What a provider takes back of reasoning.
    ReasoningReplay {
        /// Nothing.
        None = "none",
        /// All of it.
        Raw = "raw",
        /// The field `reasoning_content`.
        ReasoningContent = "reasoning_content",
        /// The field `reasoning`.
        Reasoning = "reasoning",
    }
}
