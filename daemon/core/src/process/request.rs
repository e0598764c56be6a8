//! A request to start a managed process, and its checks: one for tools, calls and the command line.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::probes::{self, HealthRequest, PortValue, ReadyRequest, milliseconds};
use super::slots;
use super::watch_request::{WatchRequest, watch_rules};
use crate::model::{Isolation, Object, ProcessSpec, Resources, RestartPolicy};

const DEFAULT_READY_SECONDS: f64 = 30.0;
const DEFAULT_GRACE_SECONDS: f64 = 5.0;
const DEFAULT_RESTARTS: u32 = 5;
const MOST_RESTARTS: u32 = 1000;

/// A request as it was made; what is not given has a default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProcessRequest {
    pub command: String,
    pub args: Option<Vec<String>>,
    pub cwd: Option<String>,
    pub env: Object,
    pub name: Option<String>,
    pub ready_pattern: Option<String>,
    pub ready_port: Option<PortValue>,
    pub ready: Option<ReadyRequest>,
    pub ports: Option<BTreeMap<String, PortValue>>,
    pub healthy: Option<HealthRequest>,
    /// Seconds.
    pub ready_timeout: Option<f64>,
    pub restart: Option<String>,
    pub max_restarts: Option<u32>,
    /// Seconds.
    pub grace: Option<f64>,
    pub isolation: Option<String>,
    pub resources: Option<Value>,
    pub survive: Option<bool>,
    pub watch: Option<Vec<WatchRequest>>,
}

impl ProcessRequest {
    /// Returns the command, if every value is one that it may have. The error names the key.
    pub fn checked(self) -> Result<ProcessSpec, String> {
        if self.command.trim().is_empty() {
            return Err("`command` is missing: it is the program, or a shell command".to_owned());
        }
        let texts = self.args.iter().flatten().chain([&self.command]);
        if texts.chain(&self.cwd).any(|text| text.contains('\0')) {
            return Err("`command`, `args` and `cwd` hold no NUL byte".to_owned());
        }
        let name = match self.name {
            Some(name) if !ProcessSpec::is_name(&name) => {
                let most = ProcessSpec::MOST_NAME;
                return Err(format!(
                    "`name` has 1 to {most} characters of A-Z a-z 0-9 . _ - and does not begin with a dot or dash, not {name:?}"
                ));
            }
            Some(name) => name,
            None => default_name(&self.command),
        };
        let ports = probes::ports(self.ports)?;
        let short = (self.ready_pattern, self.ready_port);
        let ready = probes::readiness(self.ready, short, &ports)?;
        let healthy = self.healthy.map(|given| probes::health(given, &ports));
        let restart = match self.restart.as_deref() {
            None => RestartPolicy::No,
            Some(word) => RestartPolicy::parse(word).ok_or_else(|| {
                let words = RestartPolicy::ALL.map(RestartPolicy::as_str).join(" or ");
                format!("`restart` is {words}, not {word:?}")
            })?,
        };
        let max_restarts = self.max_restarts.unwrap_or(DEFAULT_RESTARTS);
        if max_restarts > MOST_RESTARTS {
            return Err(format!(
                "`max_restarts` is a number from 0 to {MOST_RESTARTS}, not {max_restarts}"
            ));
        }
        let isolation = self.isolation.map(|word| {
            Isolation::parse(&word).ok_or_else(|| {
                let words = Isolation::ALL.map(Isolation::as_str).join(", ");
                format!("`isolation` is one of {words}, not {word:?}")
            })
        });
        let resources = self.resources.as_ref().map(Resources::from_json);
        let spec = ProcessSpec {
            name,
            command: self.command,
            args: self.args,
            cwd: self.cwd,
            env: variables(self.env)?,
            ready,
            ready_timeout_ms: milliseconds(
                "ready_timeout",
                self.ready_timeout.unwrap_or(DEFAULT_READY_SECONDS),
                0.1,
            )?,
            restart,
            max_restarts,
            grace_ms: milliseconds("grace", self.grace.unwrap_or(DEFAULT_GRACE_SECONDS), 0.0)?,
            isolation: isolation.transpose()?,
            resources: resources.transpose()?.unwrap_or_default(),
            survive: self.survive.unwrap_or_default(),
            ports,
            healthy: healthy.transpose()?,
            mcp: None,
            watch: watch_rules(self.watch.unwrap_or_default())?,
        };
        slots::check(&spec)?;
        Ok(spec)
    }
}

fn variables(given: Object) -> Result<BTreeMap<String, String>, String> {
    let text = |(name, value): (String, Value)| {
        let text = match &value {
            Value::String(text) => Some(text.clone()),
            Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        let text = text.ok_or_else(|| format!("`env.{name}` is a text, not {value}"))?;
        Ok((name, text))
    };
    given.into_iter().map(text).collect()
}

/// Returns a name made of the first words of `command`.
fn default_name(command: &str) -> String {
    let mut name = String::new();
    let base = command.trim_start();
    let program = base.split_whitespace().next().unwrap_or_default();
    let directory = program.rfind('/').map_or(0, |at| at + 1);
    for c in base[directory..].chars().take(40) {
        let c = if c.is_ascii_alphanumeric() || c == '_' || c == '.' {
            c
        } else {
            '-'
        };
        if !(c == '-' && (name.is_empty() || name.ends_with('-'))) {
            name.push(c);
        }
    }
    let name = name.trim_start_matches('.').trim_end_matches('-');
    if ProcessSpec::is_name(name) {
        name.to_owned()
    } else {
        "process".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{PortRef, Readiness};

    fn checked(request: Value) -> Result<ProcessSpec, String> {
        let request: ProcessRequest = serde_json::from_value(request).unwrap();
        request.checked()
    }

    #[test]
    fn what_is_not_given_has_a_default() {
        let spec = checked(json!({"command": "npm run dev"})).unwrap();
        assert_eq!(spec.name, "npm-run-dev");
        assert_eq!(
            (&spec.args, &spec.cwd, &spec.ready),
            (&None, &None, &Readiness::Alive)
        );
        assert_eq!((spec.ready_timeout_ms, spec.grace_ms), (30_000, 5_000));
        assert_eq!((spec.restart, spec.max_restarts), (RestartPolicy::No, 5));
        for (command, name) in [
            ("/usr/bin/python3 -m http.server", "python3-m-http.server"),
            ("./serve", "serve"),
            ("  ..", "process"),
            ("ÄÖ", "process"),
            ("\"$X\"; y", "X-y"),
        ] {
            assert_eq!(checked(json!({"command": command})).unwrap().name, name);
        }
    }

    #[test]
    fn every_given_value_is_kept() {
        let spec = checked(json!({
            "command": "serve", "args": ["-p", "1"], "cwd": "web", "env": {"A": "b", "N": 1, "T": true}, "name": "web.1_x-y",
            "ready_port": 8080, "ready_timeout": 0.5, "restart": "on-failure", "max_restarts": 0, "grace": 0,
        }))
        .unwrap();
        assert_eq!(spec.env["N"], "1");
        assert_eq!(spec.env["T"], "true");
        assert_eq!(spec.ready, Readiness::Port(PortRef::Number(8080)));
        assert_eq!((spec.ready_timeout_ms, spec.grace_ms), (500, 0));
        assert_eq!(
            (spec.restart, spec.max_restarts),
            (RestartPolicy::OnFailure, 0)
        );
    }

    #[test]
    fn wrong_value_is_refused_by_its_key() {
        for (key, value) in [
            ("command", json!("  ")),
            ("command", json!("a\0b")),
            ("name", json!("a/b")),
            ("name", json!("..")),
            ("name", json!("-x")),
            ("name", json!("a\nb")),
            ("name", json!("")),
            ("name", json!("x".repeat(65))),
            ("ready_pattern", json!("a(")),
            ("ready_pattern", json!("a".repeat(1025))),
            ("ready_port", json!(0)),
            ("ready_port", json!(65536)),
            ("ready_timeout", json!(0.05)),
            ("ready_timeout", json!(3601)),
            ("restart", json!("always")),
            ("max_restarts", json!(1001)),
            ("grace", json!(-1)),
            ("resources", json!(5)),
            ("resources", json!({"pids": 0})),
            ("env", json!({"A": [1]})),
            ("ports", json!({"A": 1})),
            ("watch", json!([{"id": "a b", "match": "x"}])),
        ] {
            let mut request = json!({"command": "x"});
            request[key] = value.clone();
            let problem = checked(request).unwrap_err();
            assert!(
                problem.contains(&format!("`{key}")),
                "{key} {value}: {problem}"
            );
        }
        let both = json!({"command": "x", "ready_pattern": "a", "ready_port": 1});
        assert!(checked(both).unwrap_err().contains("exclude"));
        for (key, value) in [
            ("command", json!("serve {port.db}")),
            ("args", json!(["{port.db}"])),
            ("env", json!({"A": "{port.db}"})),
            ("env", json!({"PORT_HTTP": "1"})),
        ] {
            let mut request = json!({"command": "x", "ports": {"http": "auto"}});
            request[key] = value.clone();
            let problem = checked(request).unwrap_err();
            assert!(problem.contains(&format!("`{key}")), "{value}: {problem}");
        }
    }
}
