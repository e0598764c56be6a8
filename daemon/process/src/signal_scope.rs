//! The signal scope: a process of an attempt, whatever its user, cannot signal a process outside the attempt.
//!
//! **Owns** the rule set of the kernel (Landlock). **Never** restricts files, networks or sockets: a domain that does
//! takes `mount` away, and with it `bwrap` and `podman` in tools. **Order.** The rule set is made once; each child
//! restricts itself with it, after it can gain no privileges, and so has a domain of its own. A debugger of another
//! domain is refused too.

use std::os::fd::{AsRawFd as _, OwnedFd};

use landlock::{CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetError, Scope};
use nix::errno::Errno;

/// Reason why attempts have no signal scope.
#[derive(Debug, thiserror::Error)]
pub enum NoScope {
    #[error("the setting `containment.signals` is `off`")]
    Off,
    #[error("Linux 6.12 or later with Landlock enabled is needed ({0})")]
    Missing(#[from] RulesetError),
    #[error("Linux 6.12 or later with Landlock enabled is needed")]
    Unsupported,
}

#[derive(Debug)]
pub struct SignalScope(OwnedFd);

impl SignalScope {
    pub fn prepare() -> Result<Self, NoScope> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::Signal)?
            .create()?;
        let rules: Option<OwnedFd> = rules.into();
        rules.map(Self).ok_or(NoScope::Unsupported)
    }

    /// Restricts this process and all that it starts. Allocates nothing.
    #[expect(unsafe_code, reason = "the library allocates, and a child may not")]
    pub(super) fn restrict_self(&self) -> Result<(), Errno> {
        let rules = self.0.as_raw_fd();
        // SAFETY: the descriptor is open; the call changes only what this process may do.
        let restricted = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) };
        Errno::result(restricted).map(drop)
    }
}
