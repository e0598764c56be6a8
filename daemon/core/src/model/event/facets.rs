//! The facets of an event: when it may happen, how soon it is on disk, and whether the head of the run is signed at it.

/// In which part of its life a run may take an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum While {
    /// While a task owns it.
    Running,
    /// While a task owns it and nobody has asked it to stop.
    Wanted,
    /// While it is suspended.
    Suspended,
    /// Before it has ended, and not while it is suspended.
    Active,
    /// Until it has ended.
    Live,
}

/// How soon an event has to be on disk, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Syncing {
    /// At once.
    Now,
    /// With the next one that is.
    Soon,
}

/// What everybody beside the model asks of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facets {
    /// When the run may take it.
    pub allowed: While,
    /// Whether it begins work, or is no part of ending it; while the disk is full there is space for neither.
    pub begins: bool,
    /// Whether the head of the run is signed at it: at the end of each step, and when the run is suspended or ends.
    pub boundary: bool,
    /// How soon it has to be on disk.
    pub sync: Syncing,
    /// Whether something ended: whatever brings the daemon down, it is not the first thing the run does.
    pub progress: bool,
}

impl Facets {
    /// A note about a running run.
    pub(super) const PLAIN: Self = Self {
        allowed: While::Running,
        begins: false,
        boundary: false,
        sync: Syncing::Now,
        progress: false,
    };
    /// The beginning of work.
    pub(super) const BEGINS: Self = Self {
        begins: true,
        ..Self::PLAIN
    };
    /// The beginning of an attempt. None is committed behind a request to stop, however late the driver hears of that.
    pub(super) const ATTEMPT: Self = Self {
        allowed: While::Wanted,
        ..Self::BEGINS
    };
    /// The end of something smaller than a step.
    pub(super) const PROGRESS: Self = Self {
        progress: true,
        ..Self::PLAIN
    };
    /// The end of the run.
    pub(super) const ENDS: Self = Self {
        allowed: While::Live,
        boundary: true,
        ..Self::PLAIN
    };
}
