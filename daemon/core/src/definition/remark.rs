//! Remarks about uses of items, from a caller who knows the items.

/// A remark about one use of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
    pub about: About,
}

/// The part of the use that a remark concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    Item,
    /// The parameters as a whole.
    Params,
    /// One parameter.
    Param(String),
}
