//! Findings about a file.

use std::fmt;

use crate::expr::Severity;
use crate::yaml;

/// Something a person should know about a graph file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is, for programs: `unknown_key`, `unknown_node`, `not_supported` …
    pub code: &'static str,
    /// What it is, for people.
    pub message: String,
    /// The node it concerns.
    pub node: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// Whether the graph can run.
    pub severity: Severity,
}

impl Finding {
    pub(crate) fn of_yaml(fault: yaml::YamlFault) -> Self {
        Self {
            code: "yaml",
            message: fault.message,
            node: None,
            line: fault.line,
            column: fault.column,
            severity: Severity::Error,
        }
    }
}

impl fmt::Display for Finding {
    /// `12:7: node `a`: the message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if let Some(node) = &self.node {
            write!(f, "node `{node}`: ")?;
        }
        f.write_str(&self.message)
    }
}

/// Why a graph is refused: the errors among `findings`, without the warnings beside them.
pub fn errors(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
}
