//! The thorough check of a graph file, for its authors.

use serde_json::{Value, json};

use super::parse::surprises;
use super::paths::Reads;
use super::read::{Context, Reader};
use super::remark::Remark;
use super::uses;
use super::{flow, kinds, permissions, state, undeclared};
use crate::declared::Finding;
use crate::expr::Severity;
use crate::id::ItemRef;
use crate::model::Object;
use crate::yaml;

/// The findings of the thorough check of a graph file, each list in the order of the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validation {
    /// Findings that keep the graph from running.
    pub errors: Vec<Finding>,
    /// Findings that its author should look at.
    pub warnings: Vec<Finding>,
    /// Number of nodes in the file, broken ones included.
    pub node_count: usize,
}

impl Validation {
    /// `{success, errors, warnings, node_count}`, as `graph validate --json` prints it.
    pub fn to_json(&self) -> Value {
        let messages = |findings: &[Finding]| -> Vec<Value> {
            let document = |finding: &Finding| {
                json!({
                    "code": finding.code,
                    "message": finding.message,
                    "node": finding.node,
                    "line": finding.line,
                    "column": finding.column,
                })
            };
            findings.iter().map(document).collect()
        };
        json!({
            "success": self.errors.is_empty(),
            "errors": messages(&self.errors),
            "warnings": messages(&self.warnings),
            "node_count": self.node_count,
        })
    }
}

impl Validation {
    /// Adds a finding about the file as a whole, ahead of all others.
    pub fn put_first(&mut self, severity: Severity, code: &'static str, message: String) {
        let finding = Finding {
            code,
            message,
            node: None,
            line: 1,
            column: 1,
            severity,
        };
        match severity {
            Severity::Error => self.errors.insert(0, finding),
            Severity::Warning => self.warnings.insert(0, finding),
        }
    }

    /// Adds errors and warnings from another source about the same text, in the order of the text.
    pub fn add(&mut self, findings: Vec<Finding>) {
        for finding in findings {
            match finding.severity {
                Severity::Error => self.errors.push(finding),
                Severity::Warning => self.warnings.push(finding),
            }
        }
        for list in [&mut self.errors, &mut self.warnings] {
            list.sort_by_key(|finding| (finding.line, finding.column));
        }
    }

    /// True if the graph can run.
    pub fn is_sound(&self) -> bool {
        self.errors.is_empty()
    }
}

/// Checks a graph file without running it. It finds all that [`parse`](super::parse) finds; missing `permissions`,
/// which only the author can declare (an error here); and actions that they do not cover. It also checks the graph as a
/// whole: state that no one reads, inputs that the schema does not declare, conditions that types decide, an end that
/// is out of reach. For checks that need other items see [`validate_among`].
pub fn validate(text: &str) -> Validation {
    validate_among(text, &Around::default())
}

/// Information about the surroundings of a file that the thorough check may use.
#[expect(missing_debug_implementations, reason = "questions cannot be shown")]
pub struct Around<'a> {
    /// Returns remarks about an item that the graph names, given its parameters with their templates. An item that a
    /// template names is not looked up.
    pub look_up: &'a dyn Fn(&ItemRef, &Object) -> Vec<Remark>,
    /// Returns true if an item starts a run.
    pub is_run: &'a dyn Fn(&ItemRef) -> bool,
    /// True if graphs need a default edge wherever edges have conditions.
    pub is_strict: bool,
    /// Returns true if the check has taken too long: then it ends with the error `too_complex`.
    pub is_late: &'a dyn Fn() -> bool,
}

impl Default for Around<'_> {
    /// No items are known, and there is no time limit.
    fn default() -> Self {
        Self {
            look_up: &|_, _| Vec::new(),
            is_run: &|_| false,
            is_strict: false,
            is_late: &|| false,
        }
    }
}

/// Like [`validate`], with information about other items.
pub fn validate_among(text: &str, around: &Around<'_>) -> Validation {
    let document = match yaml::parse(text) {
        Ok(document) => document,
        Err(fault) => {
            return Validation {
                errors: vec![Finding::of_yaml(fault)],
                ..Validation::default()
            };
        }
    };
    let mut reader = Reader::until(&document, Context::default(), around.is_late);
    let graph = reader.graph();
    permissions::check(&mut reader, graph.as_ref());
    if let Some(graph) = &graph {
        let reads = Reads::of(graph);
        let looks: [&dyn Fn(&mut Reader<'_>); 8] = [
            &|reader| surprises(reader, graph, &reads),
            &|reader| flow::check_ends(reader, graph),
            &|reader| {
                if around.is_strict {
                    flow::check_defaults(reader, graph);
                }
            },
            &|reader| state::check_writes(reader, graph, &reads),
            &|reader| undeclared::check(reader, graph, &reads),
            &|reader| kinds::check(reader, graph),
            &|reader| uses::check(reader, graph, around.look_up),
            &|reader| uses::check_caching(reader, graph, around.is_run),
        ];
        for look in looks {
            if reader.has_time() {
                look(&mut reader);
            }
        }
    }
    let node_count = reader.context.names.map_or(0, serde_json::Map::len);
    let (errors, warnings) = reader
        .finish()
        .into_iter()
        .partition(|finding| finding.severity == Severity::Error);
    Validation {
        errors,
        warnings,
        node_count,
    }
}
