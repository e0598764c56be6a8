//! The facets of an event: the states that allow it, the urgency of its sync, and the signing of the run's head.

/// The part of its life in which a run may take an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum While {
    /// While a task owns it.
    Running,
    /// While a task owns it, and no one has requested it to stop.
    NotCancelled,
    /// While it is suspended.
    Suspended,
    /// Before it has ended, and not while it is suspended.
    Active,
    /// Until it has ended.
    Live,
}

/// Urgency of syncing an event to disk, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Syncing {
    /// Immediately.
    Now,
    /// Together with the next event that is synced.
    Soon,
}

/// The properties of an event that depend on its type alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and none excludes all others"
)]
pub struct Facets {
    pub allowed: While,
    /// True if it begins work, or is no part of ending it; while the disk is full there is no space for such events.
    pub begins: bool,
    /// True if the head of the run is signed at it: at the end of each step, and when the run is suspended or ends.
    pub boundary: bool,
    pub sync: Syncing,
    /// True if something ended: a run that gets this far did not bring the daemon down with its first action.
    pub progress: bool,
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
pub(super) const BEGINS: Facets = Facets {
    begins: true,
    ..PLAIN
};
/// The beginning of an attempt. None is committed after a request to stop, however late the driver receives that
/// request.
pub(super) const ATTEMPT: Facets = BEGINS.during(While::NotCancelled);
/// The end of something smaller than a step.
pub(super) const PROGRESS: Facets = Facets {
    progress: true,
    ..PLAIN
};
/// An event at which the head of the run is signed.
pub(super) const BOUNDARY: Facets = Facets {
    boundary: true,
    ..PLAIN
};
/// The end of a step or a turn.
pub(super) const STEP_END: Facets = Facets {
    progress: true,
    ..BOUNDARY
};
pub(super) const ENDS: Facets = Facets {
    ends: true,
    ..BOUNDARY.during(While::Live)
};

impl Facets {
    /// Returns these facets, allowed while `allowed`.
    pub(super) const fn during(self, allowed: While) -> Self {
        Self { allowed, ..self }
    }

    /// Returns these facets, synced as `sync` requires.
    pub(super) const fn synced(self, sync: Syncing) -> Self {
        Self { sync, ..self }
    }
}
