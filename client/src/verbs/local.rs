//! Context of the verbs that need no daemon: the user's key, the spaces, and the time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_client::Error;
use rye_core::clock::{Clock, Timestamp, Uptime};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::seal::{Fingerprint, SecretKey};
use rye_item::keys::KeyDir;
use rye_item::spaces::Space;
use rye_item::trust::OWN;
use rye_item::{Library, Spaces, TrustStore, sign, system};

use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::Output;
use crate::session::Session;
use crate::testing::Signer;

/// The user's key and the spaces of one invocation.
#[derive(Debug)]
pub(super) struct Local {
    /// Directory whose `.ai` is the user space.
    pub(super) user: PathBuf,
    /// The user's own key pair.
    pub(super) keys: KeyDir,
    /// Spaces, with the project of the current directory.
    pub(super) spaces: Spaces,
    /// Working directory of the command; empty if it was removed.
    current_dir: PathBuf,
    /// Time at which the command began.
    pub(super) now: Timestamp,
}

impl Local {
    pub(super) fn of(session: &Session) -> Result<Self, Failure> {
        let environment = &session.environment;
        let user = environment.user_root().ok_or(Error::NoUserSpace)?;
        let project = session.found_project()?;
        let state_dir = session.choice().state_dir(environment)?;
        Ok(Self {
            user: user.to_owned(),
            keys: KeyDir::of_user(user),
            spaces: Spaces::new(project, user.to_owned(), system::root(&state_dir)),
            current_dir: environment.current_dir.clone().unwrap_or_default(),
            now: environment.now,
        })
    }

    pub(super) fn key(&self) -> Result<SecretKey, Failure> {
        Ok(self.keys.load()?)
    }

    /// Resolves `target` to a file or to a typed name. The id of an item, or a pattern, gets its type. `system` decides
    /// whether items of the system count.
    pub(super) fn target(&self, target: &str, system: SystemItems) -> Result<String, Failure> {
        let word = target.split_once(':').map(|(word, _)| word);
        if word.is_some_and(|word| word.parse::<ItemKind>().is_ok())
            || self.current_dir.join(target).symlink_metadata().is_ok()
        {
            return Ok(target.to_owned());
        }
        if let Some(word) = word.filter(|word| !word.contains('/')) {
            return Err(no_type(word, target).into());
        }
        let library = self.library();
        let is_there = |kind: &ItemKind| {
            let id = || ItemId::new(target).ok();
            let built_in = || {
                library
                    .verify(&ItemRef {
                        kind: *kind,
                        id: id()?,
                    })
                    .ok()
            };
            sign::targets(&self.spaces, &format!("{kind}:{target}")).is_ok()
                || system == SystemItems::Count && built_in().is_some()
        };
        let named = ItemKind::ALL.into_iter().filter(is_there);
        let named: Vec<String> = named.map(|kind| format!("{kind}:{target}")).collect();
        match named.as_slice() {
            [] => Err(no_file(target).into()),
            [one] => Ok(one.clone()),
            several => Err(LocalError::usage(format!(
                "`{target}` is several items: {}; say which",
                several.join(", ")
            ))
            .into()),
        }
    }

    /// Returns the owner to show for an entry. Only the user's own key is shown as the user's.
    pub(super) fn owner<'o>(&self, fingerprint: &Fingerprint, owner: &'o str) -> &'o str {
        let own = || self.keys.load().ok();
        if owner == OWN && own().is_none_or(|own| own.public().fingerprint() != fingerprint) {
            "unknown"
        } else {
            owner
        }
    }

    /// Warns if the user's key is not trusted, because then nothing that it signs runs.
    pub(super) fn warn_of_untrusted(&self, fingerprint: &Fingerprint, output: &mut Output) {
        let trusted = self.trust().key(fingerprint);
        if trusted.is_none_or(|key| key.revoked_at.is_some()) {
            output.warning(&format!(
                "your key {fingerprint} is not trusted: what it signs does not run; `ryectl key trust {}` trusts it",
                self.keys.public_path().display()
            ));
        }
    }

    /// Returns the keys whose signatures count.
    pub(super) fn trust(&self) -> TrustStore {
        TrustStore::open(&self.spaces)
    }

    /// Opens the items that are visible in the project.
    pub(super) fn library(&self) -> Library {
        let clock = Arc::new(Invocation(self.now));
        Library::open(self.spaces.clone(), Arc::new(self.trust()), clock)
    }
}

/// Reports a target that names no item and no file.
pub(super) fn no_file(target: &str) -> LocalError {
    LocalError::not_found(format!("there is no item and no file `{target}`"))
}

/// Reports a target whose `word` before the colon is no type.
pub(super) fn no_type(word: &str, target: &str) -> LocalError {
    LocalError::usage(format!(
        "`{word}` in `{target}` is not a type of item; use tool, directive, knowledge or config"
    ))
}

impl From<Local> for Signer {
    fn from(local: Local) -> Self {
        let system = local.spaces.root(Space::System).unwrap_or(Path::new(""));
        Self {
            system: system.to_owned(),
            user: local.user,
            now: local.now,
        }
    }
}

/// Selects whether items of the system count as targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SystemItems {
    Count,
    /// They do not count, because only the daemon signs them.
    Out,
}

/// Clock of one invocation. It always shows the time at which the command began.
#[derive(Debug)]
struct Invocation(Timestamp);

impl Clock for Invocation {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn up(&self) -> Uptime {
        Uptime::default()
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("the kernel gives random bits once it has booted")
    }
}
