//! Closed lists of elements and attributes.

/// The permitted content of one element.
pub(super) struct Shape {
    pub(super) attributes: &'static [&'static str],
    pub(super) elements: &'static [&'static str],
    /// Elements that may occur more than once.
    pub(super) repeated: &'static [&'static str],
    pub(super) content: Content,
}

/// The content of an element besides elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing but blanks.
    Nothing,
    Text,
    /// A text without effect, as in older files.
    Ignored,
    /// Text and elements of any name.
    Anything,
}

const fn shape(attributes: &'static [&'static str], elements: &'static [&'static str]) -> Shape {
    Shape {
        attributes,
        elements,
        repeated: &[],
        content: Content::Nothing,
    }
}

const fn text(attributes: &'static [&'static str]) -> Shape {
    Shape {
        content: Content::Text,
        ..shape(attributes, &[])
    }
}

pub(super) const DIRECTIVE: Shape = shape(
    &["name", "version", "extends"],
    &["metadata", "inputs", "outputs", "actions"],
);

pub(super) const METADATA: Shape = shape(
    &[],
    &[
        "description",
        "author",
        "category",
        "callers",
        "tags",
        "model",
        "model_class",
        "limits",
        "permissions",
        "hooks",
        "context",
        "tools",
        "continuation_directive",
        "cost",
    ],
);

pub(super) const LABEL: Shape = text(&[]);

/// An older element without effect.
pub(super) const COST: Shape = Shape {
    content: Content::Anything,
    ..shape(&[], &[])
};

pub(super) const MODEL: Shape = Shape {
    content: Content::Ignored,
    ..shape(
        &[
            "id",
            "tier",
            "provider",
            "effort",
            "max_output",
            "temperature",
            "fallback",
            "fallback_id",
            "parallel",
        ],
        &[],
    )
};

pub(super) const LIMITS: Shape = shape(
    &[
        "turns",
        "tokens",
        "spend",
        "spawns",
        "depth",
        "duration_seconds",
        "spend_currency",
        "max_turns",
        "max_tokens",
        "max_spend",
        "max_spawns",
        "duration",
    ],
    &[],
);

const PRIMARIES: &[&str] = &["execute", "fetch", "sign", "approve", "acknowledge"];

pub(super) const PERMISSIONS: Shape = Shape {
    repeated: PRIMARIES,
    content: Content::Text,
    ..shape(&[], PRIMARIES)
};

const ITEM_TYPES: &[&str] = &["tool", "directive", "knowledge", "config"];

pub(super) const PRIMARY: Shape = Shape {
    repeated: ITEM_TYPES,
    content: Content::Text,
    ..shape(&["effect", "resource", "action"], ITEM_TYPES)
};

pub(super) const PERMITTED: Shape = text(&[]);

pub(super) const ACKNOWLEDGE: Shape = text(&["risk"]);

pub(super) const CONTEXT: Shape = Shape {
    repeated: &["system", "before", "after", "suppress"],
    ..shape(&[], &["system", "before", "after", "suppress"])
};

pub(super) const TOOLS: Shape = shape(&["mode", "start", "max_parallel"], &[]);

pub(super) const INPUTS: Shape = Shape {
    repeated: &["input"],
    ..shape(&[], &["input"])
};

pub(super) const INPUT: Shape = text(&["name", "type", "required", "default", "enum"]);

/// Other elements of `outputs` are ignored with a warning, as older files have them.
pub(super) const OUTPUTS: Shape = Shape {
    repeated: &["output"],
    content: Content::Anything,
    ..shape(&[], &["output"])
};

pub(super) const OUTPUT: Shape = text(&["name", "type", "required", "enum", "items"]);

pub(super) const ACTIONS: Shape = Shape {
    content: Content::Anything,
    ..shape(&[], &[])
};
