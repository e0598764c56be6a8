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

/// What depends on an event alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and none excludes all others"
)]
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
    /// True if it ends the run.
    pub ends: bool,
}

/// A note about a running run.
pub(super) const PLAIN: Facets = Facets {
    allowed: While::Running,
    begins: false,
    boundary: false,
    sync: Syncing::Now,
    progress: false,
    ends: false,
};
/// The beginning of work.
pub(super) const BEGINS: Facets = Facets {
    begins: true,
    ..PLAIN
};
/// The beginning of an attempt. None is committed behind a request to stop, however late the driver hears of that.
pub(super) const ATTEMPT: Facets = BEGINS.during(While::Wanted);
/// The end of something smaller than a step.
pub(super) const PROGRESS: Facets = Facets {
    progress: true,
    ..PLAIN
};
/// A place at which the head of the run is signed.
pub(super) const BOUNDARY: Facets = Facets {
    boundary: true,
    ..PLAIN
};
/// The end of a step or a turn.
pub(super) const STEP_END: Facets = Facets {
    progress: true,
    ..BOUNDARY
};
/// The end of the run.
pub(super) const ENDS: Facets = Facets {
    ends: true,
    ..BOUNDARY.during(While::Live)
};

impl Facets {
    /// The same, while `allowed`.
    pub(super) const fn during(self, allowed: While) -> Self {
        Self { allowed, ..self }
    }

    /// The same, on disk as soon as `sync` says.
    pub(super) const fn synced(self, sync: Syncing) -> Self {
        Self { sync, ..self }
    }
}
