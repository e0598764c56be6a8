//! Remarks of somebody who knows the items about their uses.

/// What somebody who knows the items says about one use of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// What it is, for programs.
    pub code: &'static str,
    /// What it is, for people.
    pub message: String,
    /// What of the use it concerns.
    pub about: About,
}

/// What of the use of an item a remark concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// The item itself.
    Item,
    /// Its parameters as a whole.
    Params,
    /// One of them.
    Param(String),
}
