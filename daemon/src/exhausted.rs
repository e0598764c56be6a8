//! Shortages that prevent an action from beginning: a resource of the host, or the project's directory.
//!
//! **Owns** their detection and their codes. An action that meets a shortage has not begun and has not failed: its run
//! is suspended, as on a full disk, and begins the action later.

use std::error::Error as StdError;
use std::io;

use nix::errno::Errno;
use rye_core::error::with_sources;
use rye_core::model::Failure;

/// The missing resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// File descriptors of the daemon, or of the host.
    Files,
    Memory,
    /// The directory of the project: it is gone or was replaced by another one.
    Project,
}

impl Exhausted {
    /// The shortage that `error` or one of its sources reports.
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            let os = error.downcast_ref().and_then(io::Error::raw_os_error);
            match os.map(Errno::from_raw) {
                Some(Errno::EMFILE | Errno::ENFILE) => return Some(Self::Files),
                Some(Errno::ENOMEM) => return Some(Self::Memory),
                Some(_) | None => next = error.source(),
            }
        }
        None
    }

    /// The shortage that a failure made by [`Exhausted::failure`] describes.
    pub fn of_failure(failure: &Failure) -> Option<Self> {
        Self::of_code(&failure.code)
    }

    /// The shortage with this [`code`](Self::code).
    pub fn of_code(code: &str) -> Option<Self> {
        [Self::Files, Self::Memory, Self::Project]
            .into_iter()
            .find(|lack| code == lack.code())
    }

    /// Name for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Files => "open files",
            Self::Memory => "memory",
            Self::Project => "the directory of its project",
        }
    }

    /// Code for programs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Files => "too_many_files",
            Self::Memory => "out_of_memory",
            Self::Project => "project_gone",
        }
    }

    /// Failure of an action that has not begun.
    pub fn failure(self, error: &(dyn StdError + 'static)) -> Failure {
        Failure {
            retryable: true,
            ..Failure::permanent(self.code(), with_sources(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to open it")]
    struct Wrapped(#[source] io::Error);

    #[test]
    fn exhausted_parses_from_its_code() {
        for lack in [Exhausted::Files, Exhausted::Memory, Exhausted::Project] {
            assert_eq!(Exhausted::of_code(lack.code()), Some(lack));
        }
        assert_eq!(Exhausted::of_code("memory_exceeded"), None);
    }

    #[test]
    fn exhausted_is_found_anywhere_in_error_chain() {
        let of = |errno: Errno| Exhausted::of(&Wrapped(errno.into()));
        assert_eq!(of(Errno::EMFILE), Some(Exhausted::Files));
        assert_eq!(of(Errno::ENFILE), Some(Exhausted::Files));
        assert_eq!(of(Errno::ENOMEM), Some(Exhausted::Memory));
        assert_eq!(of(Errno::EACCES), None);
        let failure = Exhausted::Files.failure(&Wrapped(Errno::EMFILE.into()));
        assert_eq!(Exhausted::of_failure(&failure), Some(Exhausted::Files));
        let other = Failure::permanent("timeout", "");
        assert_eq!(Exhausted::of_failure(&other), None);
    }
}
