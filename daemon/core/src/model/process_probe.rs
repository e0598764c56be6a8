//! Ports of managed processes, and the probes by which they are ready and healthy.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// TCP ports of a process by their names.
pub type Ports = BTreeMap<String, u16>;

/// A port that a process is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortChoice {
    /// A free one of the setting `ports.range`.
    Auto,
    #[serde(untagged)]
    Fixed(u16),
}

/// A port that a probe uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PortRef {
    Number(u16),
    /// One of the ports of the process.
    Named(String),
}

impl PortRef {
    /// Returns its number; `None` if `ports` lacks its name.
    pub fn number(&self, ports: &Ports) -> Option<u16> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Named(name) => ports.get(name).copied(),
        }
    }
}

/// A request by HTTP to this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpProbe {
    pub path: String,
    pub port: PortRef,
    /// Status codes of a good answer.
    pub status: Vec<u16>,
}

/// A test of a port of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    Port(PortRef),
    Http(HttpProbe),
}

impl Probe {
    pub const fn port(&self) -> &PortRef {
        match self {
            Self::Port(port) | Self::Http(HttpProbe { port, .. }) => port,
        }
    }
}

/// The test of a process that is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    pub probe: Probe,
    /// Time between two probes in milliseconds.
    pub every_ms: u64,
    /// Time limit of a probe in milliseconds.
    pub timeout_ms: u64,
    /// Failed probes in a row after which the attempt is stopped.
    pub failures: u32,
}

/// The reason for which an attempt is not ready, or a probe failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unready {
    pub code: UnreadyCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Process that has the port, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Name of its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Status of the answer to the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Error of the request, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnreadyCode {
    /// It has not been alive for long enough.
    Starting,
    /// No line of its output matches.
    NoLine,
    /// Nothing listens on the port.
    PortClosed,
    /// A process that is not of the attempt listens on the port.
    PortForeign,
    /// The answer has another status.
    HttpStatus,
    /// There is no answer.
    HttpFailed,
}

impl UnreadyCode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::NoLine => "no_line",
            Self::PortClosed => "port_closed",
            Self::PortForeign => "port_foreign",
            Self::HttpStatus => "http_status",
            Self::HttpFailed => "http_failed",
        }
    }
}

impl Unready {
    pub const fn new(code: UnreadyCode) -> Self {
        Self {
            code,
            port: None,
            pid: None,
            comm: None,
            status: None,
            error: None,
        }
    }

    pub fn at(code: UnreadyCode, port: u16) -> Self {
        Self {
            port: Some(port),
            ..Self::new(code)
        }
    }
}

/// A fragment for people.
impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            UnreadyCode::Starting => f.write_str("it has just started"),
            UnreadyCode::NoLine => f.write_str("no line of its output matches"),
            UnreadyCode::PortClosed => f.write_str("nothing listens on its port"),
            UnreadyCode::PortForeign => f.write_str("another process listens on its port"),
            UnreadyCode::HttpStatus => f.write_str("unexpected status of the answer at port"),
            UnreadyCode::HttpFailed => f.write_str("no answer to the request to port"),
        }?;
        if let Some(port) = self.port {
            write!(f, " {port}")?;
        }
        if let Some(status) = self.status {
            write!(f, ": {status}")?;
        }
        if let Some(error) = &self.error {
            write!(f, ": {error}")?;
        }
        match (self.pid, &self.comm) {
            (Some(pid), Some(comm)) => write!(f, ": {comm} (pid {pid})"),
            (Some(pid), None) => write!(f, ": pid {pid}"),
            (None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn port_is_auto_a_number_or_a_name() {
        for (choice, stored) in [
            (PortChoice::Auto, json!("auto")),
            (PortChoice::Fixed(80), json!(80)),
        ] {
            assert_eq!(serde_json::to_value(choice).unwrap(), stored);
            assert_eq!(
                serde_json::from_value::<PortChoice>(stored).unwrap(),
                choice
            );
        }
        let ports = Ports::from([("http".to_owned(), 20_000)]);
        for (port, stored, number) in [
            (PortRef::Number(80), json!(80), Some(80)),
            (PortRef::Named("http".into()), json!("http"), Some(20_000)),
            (PortRef::Named("x".into()), json!("x"), None),
        ] {
            assert_eq!(serde_json::to_value(&port).unwrap(), stored);
            assert_eq!(serde_json::from_value::<PortRef>(stored).unwrap(), port);
            assert_eq!(port.number(&ports), number);
        }
    }

    #[test]
    fn reason_names_port_process_and_code() {
        let foreign = Unready {
            pid: Some(7),
            comm: Some("nginx".into()),
            ..Unready::at(UnreadyCode::PortForeign, 80)
        };
        assert_eq!(
            foreign.to_string(),
            "another process listens on its port 80: nginx (pid 7)"
        );
        assert_eq!(
            serde_json::to_value(&foreign).unwrap(),
            json!({"code": "port_foreign", "port": 80, "pid": 7, "comm": "nginx"})
        );
        let answer = Unready {
            status: Some(503),
            ..Unready::at(UnreadyCode::HttpStatus, 80)
        };
        assert_eq!(
            answer.to_string(),
            "unexpected status of the answer at port 80: 503"
        );
        for code in [
            UnreadyCode::Starting,
            UnreadyCode::NoLine,
            UnreadyCode::PortClosed,
            UnreadyCode::PortForeign,
            UnreadyCode::HttpStatus,
            UnreadyCode::HttpFailed,
        ] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
