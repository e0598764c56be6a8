//! Calls of models.
//!
//! **Owns** the lookup of secrets, the queues for calls of a provider, and one call: its request, the signals of its
//! answer, and the classification of its failure. **Never** decides on a retry, on money, or on the handling of a
//! message. **Never** shows a secret or a body.
//!
//! ```text
//! join ──► QueuedCall ──progress──► CallPermit: secret, address, a slot in the queue ──call──► Call ──next──► signals …, then the message or a failure
//! ```
//!
//! The destination of a call is part of the record of its thread (`ResolvedModel::endpoint`). The variables it names
//! are looked up for each call: for a file of the user in the environment of the daemon, for a file of a project in
//! that project's `.env`.
//!
//! **Order.** Calls with one secret of one provider share a queue, in the order of arrival. A provider that requests a
//! pause closes the queue for all of them. Nothing is read from the provider before the next signal is requested.
//! **Failure.** A missing secret is reported before anything is sent. A failure states its meaning and the progress of
//! the call. Dropping a call closes its connection and frees its slot.

mod access;
mod call;
mod call_queue;
mod secrets;

use std::fmt;
use std::sync::{Arc, OnceLock};

use rye_core::error::{ErrorKind, Kinded};
use rye_core::provider::failure::ErrorRows;
use rye_core::provider::{Owner, ResolvedModel};
use rye_process::masking::{KnownSecrets, Masker};

use crate::config::{Environment, Networks};
use crate::http::{BadRoots, Client};
use rye_host::clock::Timer;
use rye_host::task;

use access::Access;
pub use call::{Call, CallProgress, Failure, Message, Trouble};
pub use call_queue::Wait;
use call_queue::{CallQueues, Key, Pass, Progress, Waiter};
use secrets::Secrets;
pub use secrets::{ProjectEnv, Refused, Secret, names};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAccess {
    #[error("the provider `{provider}` needs {lacking}")]
    NoSecret {
        provider: String,
        /// Names of its secrets, and instructions to set one.
        lacking: String,
    },
    /// A secret exists but cannot be used.
    #[error("the provider `{provider}` cannot be called")]
    BadSecret { provider: String, source: Refused },
    /// The address is invalid or depends on a missing variable.
    #[error("the provider `{provider}` cannot be called: {problem}")]
    BadAddress { provider: String, problem: String },
    /// The certificate authorities cannot be loaded.
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

/// Access to all providers.
#[derive(Debug)]
pub struct Providers {
    /// Made by the first call, because it reads the certificates of this host.
    client: Arc<OnceLock<Arc<Client>>>,
    environment: Environment,
    networks: Networks,
    secrets: Arc<Secrets>,
    /// Secrets found so far, which are masked in what tools print.
    known: Arc<KnownSecrets>,
    queues: CallQueues,
    clock: Arc<dyn Timer>,
}

impl Providers {
    /// `environment` is the daemon's; it locates the secrets. The values of variables that match `masked`, and the files
    /// of secrets, which are read here, are masked from the beginning.
    pub fn new(
        environment: &Environment,
        masked: &[String],
        networks: Networks,
        clock: Arc<dyn Timer>,
    ) -> Self {
        let secrets = Secrets::new(environment);
        let known = KnownSecrets::default();
        for value in environment.matching(masked) {
            known.learn(None, value);
        }
        for secret in secrets.in_all_files() {
            known.learn(None, secret.reveal());
        }
        Self {
            client: Arc::default(),
            environment: environment.clone(),
            networks,
            secrets: Arc::new(secrets),
            known: Arc::new(known),
            queues: CallQueues::new(Arc::clone(&clock)),
            clock,
        }
    }

    /// True if there is a secret `name` for files of `owner`, even one that would be refused: the call then reports the
    /// problem. Blocks, because it reads files.
    pub fn has_secret(&self, owner: Owner, name: &str, project: &ProjectEnv) -> bool {
        let found = self.secrets.of(owner, project).secret(name);
        if let Ok(Some(secret)) = &found {
            self.known.learn(scope(owner, project), secret.reveal());
        }
        !matches!(found, Ok(None))
    }

    /// Masker of the secrets that a tool of `project` may find.
    pub fn masker(&self, project: &str) -> Arc<Masker> {
        self.known.masker(project)
    }

    /// Shared client for calls to other hosts.
    pub async fn client(&self) -> Result<Arc<Client>, BadRoots> {
        let (made, environment) = (Arc::clone(&self.client), self.environment.clone());
        let networks = self.networks;
        let read = move || client(&made, &environment, networks);
        task::blocking("read certificates", read).await
    }

    /// Joins the queue of calls of `model` for a thread of `project`. Cancel safe.
    pub async fn join(
        &self,
        model: &ResolvedModel,
        project: &ProjectEnv,
    ) -> Result<QueuedCall, NoAccess> {
        let endpoint = &model.endpoint;
        let (client, access) = self.access(model, project).await?;
        let key = Key {
            project: scope(endpoint.owner, project).map(ToOwned::to_owned),
            provider: model.provider.clone(),
            secret: access.secret.clone(),
        };
        Ok(QueuedCall {
            client,
            clock: Arc::clone(&self.clock),
            access,
            waiter: self.queues.join(key, endpoint.max_concurrent),
        })
    }

    async fn access(
        &self,
        model: &ResolvedModel,
        project: &ProjectEnv,
    ) -> Result<(Arc<Client>, Access), NoAccess> {
        let (secrets, clients) = (Arc::clone(&self.secrets), Arc::clone(&self.client));
        let known = Arc::clone(&self.known);
        let (environment, networks) = (self.environment.clone(), self.networks);
        let (model, project) = (model.clone(), project.clone());
        let look_up = move || {
            let access = Access::of(&model, &secrets, &project)?;
            let scope = scope(model.endpoint.owner, &project);
            for secret in access.hidden() {
                known.learn(scope, secret);
            }
            Ok((client(&clients, &environment, networks)?, access))
        };
        task::blocking("look up secrets", look_up).await
    }
}

/// Project whose tools may find secrets of `owner`; `None` for all.
fn scope(owner: Owner, project: &ProjectEnv) -> Option<&str> {
    match owner {
        Owner::User => None,
        Owner::Project => Some(project.project()),
    }
}

/// Returns the client; the first call makes it.
fn client(
    made: &OnceLock<Arc<Client>>,
    environment: &Environment,
    networks: Networks,
) -> Result<Arc<Client>, BadRoots> {
    if let Some(client) = made.get() {
        return Ok(Arc::clone(client));
    }
    let client = Arc::new(Client::new(environment, networks)?);
    Ok(Arc::clone(made.get_or_init(|| client)))
}

/// A call that waits for its permit. Dropping it leaves the queue.
pub struct QueuedCall {
    client: Arc<Client>,
    clock: Arc<dyn Timer>,
    access: Access,
    waiter: Waiter,
}

/// Progress of a [`QueuedCall`].
#[derive(Debug)]
pub enum Admission {
    Granted(CallPermit),
    /// The call has a long wait, which was not reported before. It keeps its place in the queue.
    Queued(QueuedCall, Wait),
}

impl QueuedCall {
    /// Waits for the permit, or for a wait to report. Dropping the future leaves the queue.
    pub async fn progress(mut self) -> Admission {
        match self.waiter.next().await {
            Progress::Waiting(wait) => Admission::Queued(self, wait),
            Progress::Granted(pass) => Admission::Granted(CallPermit {
                client: self.client,
                clock: self.clock,
                access: self.access,
                pass,
            }),
        }
    }
}

impl fmt::Debug for QueuedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedCall").finish_non_exhaustive()
    }
}

/// Permit for one call. The slot is freed when the permit is dropped or its call ends.
pub struct CallPermit {
    client: Arc<Client>,
    clock: Arc<dyn Timer>,
    access: Access,
    pass: Pass,
}

impl CallPermit {
    /// Calls `model`, for which the permit was acquired, in turn `turn` of its thread. `errors` classifies its errors.
    /// Nothing is sent before the first [`Call::next`].
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

impl fmt::Debug for CallPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
