//! Calls of models.
//!
//! **Owns** where secrets are looked up, who may call a provider and when, and one call: its request, the signals of its answer, and
//! what its failure means. **Never** decides on another try, on money, or on what follows from a message. **Never** shows a secret or
//! a body.
//!
//! ```text
//! enter ──► Place: secret, address, a place in the line ──call──► Call ──next──► signals … then one end: the message, or a failure
//! ```
//!
//! Where a call goes is part of the record of its thread (`ResolvedModel::endpoint`); what that names is looked up for each call: for a
//! file of the user in the environment of the daemon, for a file of a project in that project's `.env`.
//!
//! **Order.** Calls with one secret of one provider wait in one line, in the order of arrival; a provider that asks for a pause closes
//! the line for all of them. Nothing is read from the provider before somebody asks for the next signal. **Failure.** A secret that is
//! missing is told before anything is sent. A failure says what it means and how far the call had come; dropping a call closes its
//! connection and gives its place back.

mod access;
mod call;
mod gate;
mod secrets;

use std::fmt;
use std::sync::{Arc, OnceLock};

use rye_core::error::{ErrorKind, Kinded};
use rye_core::provider::failure::ErrorRows;
use rye_core::provider::{Owner, ResolvedModel};

use crate::config::Environment;
use crate::http::{BadRoots, Client};
use rye_host::clock::Timer;
use rye_host::task;

use access::Access;
pub use call::{Call, Failure, Heard, Message, Trouble};
use gate::{Gates, Key, Pass};
use secrets::Secrets;
pub use secrets::{ProjectEnv, Refused, Secret, names};

/// Why a provider cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAccess {
    /// There is no secret for it.
    #[error("the provider `{provider}` needs {lacking}")]
    NoSecret {
        /// The provider.
        provider: String,
        /// The names of its secrets, and how to give one.
        lacking: String,
    },
    /// A secret that is there cannot be taken.
    #[error("the provider `{provider}` cannot be called")]
    BadSecret {
        /// The provider.
        provider: String,
        /// What is wrong with it.
        source: Refused,
    },
    /// It is not known where it is.
    #[error("the provider `{provider}` cannot be called: {problem}")]
    BadAddress {
        /// The provider.
        provider: String,
        /// What is wrong with its address.
        problem: String,
    },
    /// No certificate can be checked.
    #[error("no provider can be called")]
    NoRoots(#[from] BadRoots),
}

impl Kinded for NoAccess {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSecret { .. }
            | Self::BadSecret { .. }
            | Self::BadAddress { .. }
            | Self::NoRoots(_) => ErrorKind::Precondition,
        }
    }
}

/// All providers.
#[derive(Debug)]
pub struct Providers {
    /// Made by the first who calls: it reads the certificates of this host.
    client: Arc<OnceLock<Arc<Client>>>,
    environment: Environment,
    secrets: Arc<Secrets>,
    gates: Gates,
    clock: Arc<dyn Timer>,
}

impl Providers {
    /// Providers that are called with the secrets that `environment`, which is the daemon's, leads to.
    pub fn new(environment: &Environment, clock: Arc<dyn Timer>) -> Self {
        Self {
            client: Arc::default(),
            environment: environment.clone(),
            secrets: Arc::new(Secrets::new(environment)),
            gates: Gates::new(Arc::clone(&clock)),
            clock,
        }
    }

    /// Whether there is a secret `name` for files of `owner`. One that would be refused is there: the call says what is wrong with
    /// it. Reads files, and so blocks.
    pub fn has_secret(&self, owner: Owner, name: &str, project: &ProjectEnv) -> bool {
        !matches!(self.secrets.of(owner, project).secret(name), Ok(None))
    }

    /// The client by which everybody calls other hosts.
    pub async fn client(&self) -> Result<Arc<Client>, BadRoots> {
        let (made, environment) = (Arc::clone(&self.client), self.environment.clone());
        task::blocking("read certificates", move || client(&made, &environment)).await
    }

    /// Waits until `model` may be called for a thread of `project`. Cancel safe.
    pub async fn enter(
        &self,
        model: &ResolvedModel,
        project: &ProjectEnv,
    ) -> Result<Place, NoAccess> {
        let endpoint = &model.endpoint;
        let (client, access) = self.access(model, project).await?;
        let key = Key {
            project: match endpoint.owner {
                Owner::User => None,
                Owner::Project => Some(project.project().to_owned()),
            },
            provider: model.provider.clone(),
            secret: access.secret.clone(),
        };
        let pass = self.gates.enter(key, endpoint.max_concurrent).await;
        Ok(Place {
            client,
            clock: Arc::clone(&self.clock),
            access,
            pass,
        })
    }

    async fn access(
        &self,
        model: &ResolvedModel,
        project: &ProjectEnv,
    ) -> Result<(Arc<Client>, Access), NoAccess> {
        let (secrets, clients) = (Arc::clone(&self.secrets), Arc::clone(&self.client));
        let environment = self.environment.clone();
        let (model, project) = (model.clone(), project.clone());
        let look_up = move || {
            let access = Access::of(&model, &secrets, &project)?;
            Ok((client(&clients, &environment)?, access))
        };
        task::blocking("look up secrets", look_up).await
    }
}

/// The client, which the first who asks makes.
fn client(
    made: &OnceLock<Arc<Client>>,
    environment: &Environment,
) -> Result<Arc<Client>, BadRoots> {
    if let Some(client) = made.get() {
        return Ok(Arc::clone(client));
    }
    let client = Arc::new(Client::new(environment)?);
    Ok(Arc::clone(made.get_or_init(|| client)))
}

/// The right to make one call, now. It is given back when it is dropped, or when its call ends.
pub struct Place {
    client: Arc<Client>,
    clock: Arc<dyn Timer>,
    access: Access,
    pass: Pass,
}

impl Place {
    /// Calls `model`, the one that it was entered for, in that turn of its thread; `errors` say what its errors mean. Nothing is sent
    /// before the first [`Call::next`].
    pub fn call(
        self,
        model: &ResolvedModel,
        errors: &Arc<ErrorRows>,
        turn: u32,
        body: String,
    ) -> Call {
        Call::new(self, model, Arc::clone(errors), turn, body)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
