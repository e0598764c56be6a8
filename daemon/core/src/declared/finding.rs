//! Findings about a file.

use std::fmt;

use crate::expr::Severity;
use crate::yaml;

/// An error or a warning about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Word for programs, such as `unknown_key`, `unknown_node` or `not_supported`.
    pub code: &'static str,
    pub message: String,
    pub node: Option<String>,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1.
    pub column: usize,
    /// A file with errors is refused; warnings refuse nothing.
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

/// Returns the errors among `findings`, for which a file is refused.
pub fn errors(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
}
