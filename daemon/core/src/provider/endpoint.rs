//! Where a provider is and how it is called: what a call needs of a provider file.
//!
//! It is part of the record of a thread, so it holds names of secrets and variables, and never a value of one.

use serde::{Deserialize, Serialize};

use super::url;

/// Where calls go, and what they bring along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Whose file says so, which decides where its secrets and variables are looked up.
    pub owner: Owner,
    /// Where the provider is.
    pub base_url: BaseUrl,
    /// What is appended to it; `{model}` stands for the model.
    pub path: String,
    /// Headers of each request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, HeaderValue)>,
    /// How it knows us: the first of which there is a secret. None at all: it asks for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auth: Vec<Auth>,
    /// Most calls at once.
    pub max_concurrent: u32,
    /// How long its answers are waited for.
    pub timeouts: Timeouts,
}

/// In which space a provider file lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The system's or the user's own: secrets and variables are those of the daemon.
    User,
    /// That of a project, which may be anybody's: secrets and variables are those of the project.
    Project,
}

/// Where a provider is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseUrl {
    /// The variable that says so, if it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The address if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether it may be plain HTTP beyond this machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

/// The value of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderValue {
    /// This one.
    Text(String),
    /// What this variable holds; without it the header is left out.
    Env(String),
}

/// A way to say who calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    /// The header.
    pub header: String,
    /// What stands before the secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The name of the secret.
    pub secret: String,
}

/// How long an answer is waited for, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// For the connection.
    pub connect: u32,
    /// For the headers.
    pub headers: u32,
    /// For the first event.
    pub first_event: u32,
    /// Between two events.
    pub idle: u32,
}

impl Endpoint {
    /// The names of the secrets that it may be given, the one to take first of all first.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.auth.iter().map(|auth| auth.secret.as_str())
    }

    /// Whether it can be called: it asks for no secret, or one of them exists.
    pub fn is_usable(&self, has_secret: &dyn Fn(Owner, &str) -> bool) -> bool {
        self.auth.is_empty() || self.secrets().any(|name| has_secret(self.owner, name))
    }

    /// What it lacks if it has none of its secrets, and how to give it one.
    pub fn lacking(&self) -> String {
        let secrets: Vec<&str> = self.secrets().collect();
        let how = match self.owner {
            Owner::User => {
                "set it in the environment of the daemon, or put it in a file of that name below `rye/secrets` of your configuration"
            }
            Owner::Project => "set it in the `.env` of the project",
        };
        format!("the secret {}: {how}", secrets.join(" or "))
    }

    /// Where a call of `model` goes, given the variables. The error says what is wrong with the address.
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
