//! Address and headers of a call, and the secrets among them.

use std::time::Duration;

use bytes::Bytes;
use rye_core::provider::{Endpoint, HeaderValue, Owner, ResolvedModel};

use super::NoAccess;
use super::secrets::{Given, ProjectEnv, Refused, Secret, Secrets};
use crate::http::{self, Patience, Request};

const USER_AGENT: &str = concat!("rye/", env!("CARGO_PKG_VERSION"));
/// Headers of every call; they override those of the provider file.
const OURS: [(&str, &str); 4] = [
    ("user-agent", USER_AGENT),
    ("accept", "text/event-stream"),
    ("accept-encoding", "identity"),
    ("content-type", "application/json"),
];

/// All of a request except its body.
pub(super) struct Access {
    /// Name of the secret that it uses.
    pub(super) secret: Option<String>,
    url: String,
    owner: Owner,
    patience: Patience,
    headers: Vec<(String, String)>,
    private_headers: Vec<(String, Secret)>,
    /// Values that must not occur in any shown text.
    hidden: Vec<Secret>,
}

impl Access {
    /// Looks up the variables that `model` names. Blocks, because it reads files.
    pub(super) fn of(
        model: &ResolvedModel,
        secrets: &Secrets,
        project: &ProjectEnv,
    ) -> Result<Self, NoAccess> {
        let (endpoint, provider) = (&model.endpoint, || model.provider.clone());
        let given = secrets.of(endpoint.owner, project);
        let variable = |name: &str| Some(given.variable(name)?.reveal().to_owned());
        let mut access = Self {
            secret: None,
            url: endpoint
                .url(&model.id, variable)
                .map_err(|problem| NoAccess::BadAddress {
                    provider: provider(),
                    problem,
                })?,
            owner: endpoint.owner,
            patience: Patience {
                connect: seconds(endpoint.timeouts.connect),
                headers: seconds(endpoint.timeouts.headers),
            },
            headers: Vec::new(),
            private_headers: Vec::new(),
            hidden: Vec::new(),
        };
        access.take_headers(endpoint, given);
        let taken = access.take_secret(endpoint, given);
        let taken = taken.map_err(|source| NoAccess::BadSecret {
            provider: provider(),
            source,
        })?;
        if taken || endpoint.auth.is_empty() {
            return Ok(access);
        }
        Err(NoAccess::NoSecret {
            provider: provider(),
            lacking: endpoint.missing_secrets(),
        })
    }

    /// Adds the headers of the provider file; those whose variable is unset are left out.
    fn take_headers(&mut self, endpoint: &Endpoint, given: Given<'_>) {
        for (name, value) in &endpoint.headers {
            match value {
                HeaderValue::Text(text) => self.headers.push((name.clone(), text.clone())),
                HeaderValue::Env(variable) => {
                    if let Some(value) = given.variable(variable) {
                        self.private_headers.push((name.clone(), value.clone()));
                        self.hidden.push(value);
                    }
                }
            }
        }
    }

    /// Adds the first secret that exists. Returns false if there is none.
    fn take_secret(&mut self, endpoint: &Endpoint, given: Given<'_>) -> Result<bool, Refused> {
        for auth in &endpoint.auth {
            if let Some(secret) = given.secret(&auth.secret)? {
                let value = secret.with_prefix(&auth.prefix);
                self.private_headers.push((auth.header.clone(), value));
                self.hidden.push(secret);
                self.secret = Some(auth.secret.clone());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a request with `body`.
    pub(super) fn request(&self, body: Bytes) -> Result<Request, http::Failure> {
        let mut request = Request::post(&self.url, body, self.patience)?;
        if self.owner == Owner::User {
            request = request.to_any_network();
        }
        for (name, value) in &self.headers {
            request = request.header(name, value)?;
        }
        for (name, value) in OURS {
            request = request.header(name, value)?;
        }
        for (name, value) in &self.private_headers {
            request = request.secret_header(name, value.reveal())?;
        }
        Ok(request)
    }

    /// Values that must not occur in any shown text.
    pub(super) fn hidden(&self) -> Vec<&str> {
        self.hidden.iter().map(Secret::reveal).collect()
    }
}

/// Converts a time of a provider file.
pub(super) fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}
