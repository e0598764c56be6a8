//! Ports and probes of a request, and their checks.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::LinePattern;
use crate::clock;
use crate::model::{HealthCheck, HttpProbe, PortChoice, PortRef, Probe, Readiness};

const MOST_SECONDS: f64 = 3600.0;
const MOST_PORTS: usize = 16;
const MOST_PORT_NAME: usize = 31;
const MOST_PATH: usize = 2048;
const MOST_STATUS: usize = 32;
const MOST_FAILURES: u32 = 20;

/// Sign by which a process is ready, as requested: one of the three.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadyRequest {
    pub pattern: Option<String>,
    pub port: Option<PortValue>,
    pub http: Option<HttpRequest>,
}

/// A number, or a word: `auto`, or the name of a port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum PortValue {
    Number(u64),
    Word(String),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRequest {
    pub path: Option<String>,
    pub port: PortValue,
    pub status: Option<Vec<u16>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthRequest {
    pub http: Option<HttpRequest>,
    pub port: Option<PortValue>,
    pub every: Option<Period>,
    pub timeout: Option<Period>,
    pub failures: Option<u32>,
}

/// A time: a number of seconds, or a text such as `1m30s`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Period {
    Seconds(f64),
    Text(String),
}

impl Period {
    /// Returns the time in milliseconds, if it has at least `least` seconds.
    fn milliseconds(&self, key: &str, least: f64) -> Result<u64, String> {
        let seconds = match self {
            Self::Seconds(seconds) => *seconds,
            Self::Text(text) => {
                let time = clock::duration(text);
                let time = time.ok_or_else(|| {
                    format!("`{key}` is a time, such as 10 or \"1m30s\", not {text:?}")
                })?;
                time.as_secs_f64()
            }
        };
        milliseconds(key, seconds, least)
    }
}

/// Returns `seconds` in milliseconds, if they are between `least` and [`MOST_SECONDS`].
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number of seconds is checked first"
)]
pub(super) fn milliseconds(key: &str, seconds: f64, least: f64) -> Result<u64, String> {
    if (least..=MOST_SECONDS).contains(&seconds) {
        Ok((seconds * 1000.0).round() as u64)
    } else {
        Err(format!(
            "`{key}` is a number of seconds from {least} to {MOST_SECONDS}, not {seconds}"
        ))
    }
}

/// Returns the ports of a request.
pub(super) fn ports(
    given: Option<BTreeMap<String, PortValue>>,
) -> Result<BTreeMap<String, PortChoice>, String> {
    let given = given.unwrap_or_default();
    if given.len() > MOST_PORTS {
        return Err(format!(
            "`ports` has at most {MOST_PORTS} ports, not {}",
            given.len()
        ));
    }
    let mut ports = BTreeMap::new();
    for (name, value) in given {
        if !is_port_name(&name) {
            return Err(format!(
                "`ports`: {name:?} is no name of a port: it begins with a-z, and has a-z 0-9 _, at most {MOST_PORT_NAME}"
            ));
        }
        let choice = match value {
            PortValue::Word(word) if word == "auto" => PortChoice::Auto,
            value @ (PortValue::Word(_) | PortValue::Number(_)) => match number(&value) {
                Some(number) => PortChoice::Fixed(number),
                None => {
                    return Err(format!(
                        "`ports.{name}` is `auto` or a number from 1 to 65535"
                    ));
                }
            },
        };
        ports.insert(name, choice);
    }
    Ok(ports)
}

fn is_port_name(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= MOST_PORT_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(is_known)
}

/// Number of a port; a text of digits is one, too.
fn number(value: &PortValue) -> Option<u16> {
    let number = match value {
        PortValue::Number(number) => u16::try_from(*number).ok(),
        PortValue::Word(word) => word.parse().ok(),
    };
    number.filter(|number| *number > 0)
}

type Ports = BTreeMap<String, PortChoice>;

fn port(key: &str, value: &PortValue, ports: &Ports) -> Result<PortRef, String> {
    if let Some(number) = number(value) {
        return Ok(PortRef::Number(number));
    }
    match value {
        PortValue::Word(name) if ports.contains_key(name) => Ok(PortRef::Named(name.clone())),
        PortValue::Word(name) => Err(format!(
            "`{key}`: `ports` has no port {name:?}; it is one of those names, or a number from 1 to 65535"
        )),
        PortValue::Number(_) => Err(format!("`{key}` is a number from 1 to 65535")),
    }
}

fn http(key: &str, given: HttpRequest, ports: &Ports) -> Result<HttpProbe, String> {
    let path = given.path.unwrap_or_else(|| "/".to_owned());
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
    if !path.starts_with('/') || path.len() > MOST_PATH || !is_plain {
        return Err(format!(
            "`{key}.path` begins with `/`, and has at most {MOST_PATH} printable ASCII characters without spaces"
        ));
    }
    let status = given.status.unwrap_or_else(|| vec![200]);
    let are_codes = status.iter().all(|code| (100..=599).contains(code));
    if status.is_empty() || status.len() > MOST_STATUS || !are_codes {
        return Err(format!(
            "`{key}.status` is a list of 1 to {MOST_STATUS} status codes from 100 to 599"
        ));
    }
    Ok(HttpProbe {
        port: port(&format!("{key}.port"), &given.port, ports)?,
        path,
        status,
    })
}

/// Returns the sign by which the process is ready. `pattern` and `number` are the short forms `ready_pattern` and
/// `ready_port`.
pub(super) fn readiness(
    given: Option<ReadyRequest>,
    (pattern, short_port): (Option<String>, Option<PortValue>),
    ports: &Ports,
) -> Result<Readiness, String> {
    let is_short = pattern.is_some() || short_port.is_some();
    if is_short && given.is_some() {
        return Err(
            "`ready` excludes `ready_pattern` and `ready_port`, its short forms".to_owned(),
        );
    }
    let is_long = given.is_some();
    let given = given.unwrap_or(ReadyRequest {
        pattern,
        port: short_port,
        http: None,
    });
    let key = |long: &'static str, short: &'static str| if is_short { short } else { long };
    match (given.pattern, given.port, given.http) {
        (Some(pattern), None, None) => {
            let key = key("ready.pattern", "ready_pattern");
            LinePattern::parse(&pattern).map_err(|why| format!("`{key}` {why}"))?;
            Ok(Readiness::Pattern(pattern))
        }
        (None, Some(value), None) => {
            let key = key("ready.port", "ready_port");
            Ok(Readiness::Port(port(key, &value, ports)?))
        }
        (None, None, Some(given)) => Ok(Readiness::Http(http("ready.http", given, ports)?)),
        (None, None, None) if !is_long => Ok(Readiness::Alive),
        (None, None, None) => Err("`ready` is {pattern}, {port} or {http}".to_owned()),
        _ if is_short => Err("`ready_pattern` and `ready_port` exclude each other".to_owned()),
        _ => Err("`ready`: `pattern`, `port` and `http` exclude each other".to_owned()),
    }
}

pub(super) fn health(given: HealthRequest, ports: &Ports) -> Result<HealthCheck, String> {
    let probe = match (given.port, given.http) {
        (Some(value), None) => Probe::Port(port("healthy.port", &value, ports)?),
        (None, Some(given)) => Probe::Http(http("healthy.http", given, ports)?),
        (None, None) | (Some(_), Some(_)) => {
            return Err("`healthy` has one of `port` and `http`".to_owned());
        }
    };
    let failures = given.failures.unwrap_or(3);
    if !(1..=MOST_FAILURES).contains(&failures) {
        return Err(format!(
            "`healthy.failures` is a number from 1 to {MOST_FAILURES}, not {failures}"
        ));
    }
    let period = |given: Option<Period>, default| given.unwrap_or(Period::Seconds(default));
    Ok(HealthCheck {
        probe,
        every_ms: period(given.every, 10.0).milliseconds("healthy.every", 1.0)?,
        timeout_ms: period(given.timeout, 2.0).milliseconds("healthy.timeout", 0.1)?,
        failures,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::model::{HealthCheck, HttpProbe, PortChoice, PortRef, Probe, Readiness};
    use crate::process::ProcessRequest;

    fn checked(more: &Value) -> Result<crate::model::ProcessSpec, String> {
        let mut request = json!({"command": "serve"});
        let more = more.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(more);
        let request: ProcessRequest =
            serde_json::from_value(request).map_err(|error| error.to_string())?;
        request.checked()
    }

    #[test]
    fn ports_and_probes_are_kept() {
        let spec = checked(&json!({
            "ports": {"http": "auto", "admin": 9000},
            "ready": {"http": {"path": "/health", "port": "http", "status": [200, 204]}},
            "healthy": {"port": "admin", "every": "1m", "timeout": 0.5, "failures": 2},
        }))
        .unwrap();
        assert_eq!(spec.ports["http"], PortChoice::Auto);
        assert_eq!(spec.ports["admin"], PortChoice::Fixed(9000));
        assert_eq!(spec.auto_ports(), ["http"]);
        assert_eq!(spec.fixed_ports(), [("admin".to_owned(), 9000)].into());
        let http = HttpProbe {
            path: "/health".into(),
            port: PortRef::Named("http".into()),
            status: vec![200, 204],
        };
        assert_eq!(spec.ready, Readiness::Http(http));
        let health = HealthCheck {
            probe: Probe::Port(PortRef::Named("admin".into())),
            every_ms: 60_000,
            timeout_ms: 500,
            failures: 2,
        };
        assert_eq!(spec.healthy, Some(health));
        let short = checked(&json!({"ports": {"a": "auto"}, "ready_port": "a"})).unwrap();
        assert_eq!(short.ready, Readiness::Port(PortRef::Named("a".into())));
        let defaults = checked(&json!({"healthy": {"http": {"port": 80}}})).unwrap();
        let health = defaults.healthy.unwrap();
        assert_eq!(
            (health.every_ms, health.timeout_ms, health.failures),
            (10_000, 2000, 3)
        );
        let Probe::Http(http) = health.probe else {
            panic!("{health:?}");
        };
        assert_eq!((&*http.path, &*http.status), ("/", &[200][..]));
    }

    #[test]
    fn wrong_port_or_probe_is_refused_by_its_key() {
        let many: Value = (0..17).map(|n| (format!("p{n}"), json!("auto"))).collect();
        for (request, named) in [
            (json!({"ports": many}), "`ports` has at most 16"),
            (json!({"ports": {"Http": "auto"}}), "`ports`: \"Http\""),
            (json!({"ports": {"1a": "auto"}}), "`ports`: \"1a\""),
            (json!({"ports": {"a-b": "auto"}}), "`ports`: \"a-b\""),
            (json!({"ports": {"a": "any"}}), "`ports.a`"),
            (json!({"ports": {"a": 0}}), "`ports.a`"),
            (json!({"ports": {"a": 65_536}}), "`ports.a`"),
            (json!({"ready_port": 0}), "`ready_port`"),
            (json!({"ready": {}}), "`ready` is"),
            (json!({"ready": {"pattern": "a("}}), "`ready.pattern`"),
            (json!({"ready": {"port": "http"}}), "`ready.port`"),
            (json!({"ready": {"port": 1, "pattern": "a"}}), "`ready`: "),
            (json!({"ready": {"tcp": 1}}), "unknown field `tcp`"),
            (
                json!({"ready": {"port": 1}, "ready_port": 1}),
                "`ready` excludes",
            ),
            (
                json!({"ready": {"http": {"port": 1, "path": "x"}}}),
                "`ready.http.path`",
            ),
            (
                json!({"ready": {"http": {"port": 1, "path": "/a b"}}}),
                "`ready.http.path`",
            ),
            (
                json!({"ready": {"http": {"port": 1, "status": [99]}}}),
                "`ready.http.status`",
            ),
            (
                json!({"ready": {"http": {"port": 1, "status": []}}}),
                "`ready.http.status`",
            ),
            (json!({"healthy": {}}), "`healthy` has one of"),
            (
                json!({"healthy": {"port": 1, "every": 0.5}}),
                "`healthy.every`",
            ),
            (
                json!({"healthy": {"port": 1, "every": "2h"}}),
                "`healthy.every`",
            ),
            (
                json!({"healthy": {"port": 1, "timeout": 0}}),
                "`healthy.timeout`",
            ),
            (
                json!({"healthy": {"port": 1, "failures": 0}}),
                "`healthy.failures`",
            ),
            (
                json!({"healthy": {"port": 1, "failures": 21}}),
                "`healthy.failures`",
            ),
        ] {
            let problem = checked(&request).unwrap_err();
            assert!(problem.contains(named), "{request}: {problem}");
        }
    }
}
