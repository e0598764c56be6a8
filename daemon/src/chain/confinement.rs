//! Isolation and limits of the processes of a call.

use std::path::{Path, PathBuf};

use rye_core::model::{Isolation, Resources};
use rye_item::system;
use rye_process::{Confinement, SandboxView};

use super::error::Error;
use super::origin::CallOrigin;
use super::verified::Chain;
use crate::config::Config;
use crate::trees;

/// Returns the confinement of processes that declare `declared`. The stricter one of that and of the setting
/// `isolation.least` is in force. The error names the level that is not available, and the reason.
pub(super) fn confinement(
    declared: Option<Isolation>,
    origin: &CallOrigin,
    config: &Config,
) -> Result<Confinement, (Isolation, String)> {
    Ok(match level(declared, config)? {
        Isolation::None => Confinement::None,
        Isolation::Scoped => Confinement::Scoped,
        Isolation::Sandbox | Isolation::User => Confinement::Sandbox(view(origin, config)),
    })
}

/// Fails if the isolation that the tool of `chain` declares is not available here.
pub fn check_isolation(chain: &Chain, config: &Config) -> Result<(), Error> {
    let checked = level(chain.tool().metadata.isolation, config);
    checked
        .map(drop)
        .map_err(|unavailable| of_item(chain, unavailable))
}

/// Returns the limits of processes that declare `declared`, with those of the setting `resources.default`.
pub(super) fn requested(declared: Option<Resources>, config: &Config) -> Resources {
    declared.unwrap_or_default().or(config.resources.default)
}

/// Returns the limits that the processes of the tool of `chain` have.
pub fn requested_resources(chain: &Chain, config: &Config) -> Resources {
    requested(chain.tool().metadata.resources, config)
}

/// Error of the tool of `chain`.
pub(super) fn of_item(chain: &Chain, (level, cause): (Isolation, String)) -> Error {
    let item = chain.tool().item.clone();
    Error::NoIsolation { item, level, cause }
}

/// Level that is in force.
fn level(declared: Option<Isolation>, config: &Config) -> Result<Isolation, (Isolation, String)> {
    let least = config.least_isolation;
    if declared == Some(Isolation::None) && least > Isolation::None {
        let least = least.as_str();
        let why = format!("the setting `isolation.least` of the daemon is `{least}`");
        return Err((Isolation::None, why));
    }
    match declared.unwrap_or_default().max(least) {
        level @ (Isolation::None | Isolation::Scoped | Isolation::Sandbox) => Ok(level),
        Isolation::User => {
            let why = "this daemon serves one user, whose id all tools have";
            Err((Isolation::User, why.to_owned()))
        }
    }
}

/// A sandbox hides the state of the daemon and the keys of the user, and shows the copies of tools.
fn view(origin: &CallOrigin, config: &Config) -> SandboxView {
    let base = config.env.base.iter();
    let path = base.filter(|(name, _)| name == "PATH");
    let search = path.map(|(_, value)| value.clone()).next();
    let keys = config.user_space.join(".ai/config/keys");
    let hidden = [config.state_dir.clone(), keys];
    let shown: [PathBuf; 2] = [
        system::root(&config.state_dir),
        trees::folder(&config.state_dir),
    ];
    SandboxView {
        // A directory that is not there cannot be covered, and has nothing to hide.
        hidden: hidden.into_iter().filter(|path| path.is_dir()).collect(),
        shown: shown.into(),
        project: Path::new(&origin.spec.project).to_owned(),
        socket: None,
        search: search.unwrap_or_default(),
    }
}
