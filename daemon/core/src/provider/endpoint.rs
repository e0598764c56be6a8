//! Address, headers and secrets of a provider: the part of a provider file that a call needs.
//!
//! It is part of the record of a thread. So it holds names of secrets and variables, and never their values.

use serde::{Deserialize, Serialize};

use super::url;

/// Target of calls, with their headers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Space of the provider file; it decides where secrets and variables are looked up.
    pub owner: Owner,
    pub base_url: BaseUrl,
    /// Path appended to the base URL; `{model}` is replaced by the model.
    pub path: String,
    /// Headers of each request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, HeaderValue)>,
    /// Authentication methods; the first one with an existing secret is used. An empty list means that none is
    /// required.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auth: Vec<Auth>,
    /// Largest number of concurrent calls.
    pub max_concurrent: u32,
    pub timeouts: Timeouts,
}

/// Space of a provider file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Space of the system or the user: the daemon's secrets and variables apply.
    User,
    /// Space of a project, which is not trusted: only the project's secrets and variables apply.
    Project,
}

/// Address of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseUrl {
    /// Variable that overrides the default, if it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Address without the variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// True if plain HTTP is allowed beyond this machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderValue {
    Text(String),
    /// Value of this variable; if it is unset, the header is omitted.
    Env(String),
}

/// An authentication method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    pub header: String,
    /// Text in front of the secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Name of the secret.
    pub secret: String,
}

/// Timeouts in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    pub connect: u32,
    pub headers: u32,
    pub first_event: u32,
    /// Timeout between two events.
    pub idle: u32,
}

impl Endpoint {
    /// Returns the names of its secrets, in order of preference.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.auth.iter().map(|auth| auth.secret.as_str())
    }

    /// Returns true if the endpoint requires no secret or one of them exists.
    pub fn is_usable(&self, has_secret: &dyn Fn(Owner, &str) -> bool) -> bool {
        self.auth.is_empty() || self.secrets().any(|name| has_secret(self.owner, name))
    }

    /// Returns the missing secrets, with the way to set one.
    pub fn missing_secrets(&self) -> String {
        let secrets: Vec<&str> = self.secrets().collect();
        let how = match self.owner {
            Owner::User => {
                "set it in the environment of the daemon, or put it in a file of that name below `rye/secrets` of your configuration"
            }
            Owner::Project => "set it in the `.env` of the project",
        };
        format!("the secret {}: {how}", secrets.join(" or "))
    }

    /// Returns the URL for a call of `model`. The error names the fault of the address.
    pub fn url(
        &self,
        model: &str,
        env: impl FnOnce(&str) -> Option<String>,
    ) -> Result<String, String> {
        let base = self.base_url.resolve(env)?;
        let path = self.path.replace("{model}", &url::encode(model));
        Ok(format!("{base}{path}"))
    }
}

impl BaseUrl {
    fn resolve(&self, env: impl FnOnce(&str) -> Option<String>) -> Result<String, String> {
        let set = self.env.as_deref().and_then(env);
        let set = set.filter(|address| !address.trim().is_empty());
        let Some(address) = set.or_else(|| self.default.clone()) else {
            let name = self.env.as_deref().unwrap_or_default();
            return Err(format!(
                "the variable `{name}` is not set, and `base_url` has no default"
            ));
        };
        let address = address.trim().trim_end_matches('/');
        url::check(address, self.insecure)?;
        Ok(address.to_owned())
    }
}
