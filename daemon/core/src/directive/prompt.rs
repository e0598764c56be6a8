//! The text of a directive: its system prompt and its first message.

use std::fmt::Write as _;

use super::contract::{near_input, status_argument};
use super::fill::{self, Of};
use super::read::Reader;
use super::{Directive, Effective, Output};
use crate::error::excerpt;
use crate::model::Object;

/// Limit of the warnings about one prompt.
const MOST_NOTES: usize = 20;

/// Values of placeholders.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    pub inputs: &'a Object,
    /// Environment variables that a tool of the project would see. Names that a provider file uses for a secret must
    /// have no value here.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Values")
    }
}

/// Texts of the knowledge that an [`Effective`] names, in its order, without suppressed items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Knowledge {
    pub system: Vec<String>,
    /// Before the prompt.
    pub before: Vec<String>,
    /// After the prompt.
    pub after: Vec<String>,
}

/// The beginning of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub system: Option<String>,
    pub message: String,
    /// Messages about placeholders that stay.
    pub warnings: Vec<String>,
}

impl Effective {
    pub fn compose(&self, knowledge: &Knowledge, values: &Values<'_>) -> Prompt {
        let mut warnings = Vec::new();
        let prompt = directive(&self.directive, values, &mut warnings);
        let before = knowledge.before.iter().map(String::as_str);
        let after = knowledge.after.iter().map(String::as_str);
        let message = joined(before.chain([prompt.as_str()]).chain(after));
        let system = joined(knowledge.system.iter().map(String::as_str));
        warnings.truncate(MOST_NOTES);
        Prompt {
            system: Some(system).filter(|system| !system.is_empty()),
            message,
            warnings,
        }
    }
}

/// Joins texts that are not blank, with a blank line between them.
fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts = texts.map(str::trim).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n\n")
}

fn directive(directive: &Directive, values: &Values<'_>, notes: &mut Vec<String>) -> String {
    let mut fill = |text: &str| fill::fill(text, values, notes);
    let mut prompt = format!("<directive name=\"{}\">\n", directive.name);
    let mut line = |text: &str| {
        prompt.push_str(text);
        prompt.push('\n');
    };
    let description = fill(&directive.description);
    line(&format!("<description>{description}</description>"));
    if let Some(permissions) = &directive.permissions {
        line(&fill(&permissions.written));
    }
    if !directive.body.is_empty() {
        line(&fill(&directive.body));
    }
    if let Some(actions) = &directive.actions {
        line(&fill(actions));
    }
    if !directive.outputs.is_empty() {
        line(&instruction(&directive.outputs));
    }
    prompt.push_str("</directive>");
    prompt
}

/// Returns the instruction to the model how to return its outputs.
fn instruction(outputs: &[Output]) -> String {
    let mut text = "When you are done, call the tool `directive_return` with:".to_owned();
    for output in outputs {
        write!(text, "\n- {} ({})", output.name, output.kind())
            .expect("writing to a String cannot fail");
        if !output.description.is_empty() {
            text.push_str(": ");
            text.push_str(&output.description);
        }
        if output.required {
            text.push_str(" [required]");
        }
    }
    let status = status_argument(outputs);
    write!(
        text,
        "\nIf something keeps you from it, call it with {status}=\"error\", and say what in error_detail."
    )
    .expect("writing to a String cannot fail");
    text
}

impl Reader<'_, '_> {
    /// Warns of placeholders for inputs that no one can give.
    pub(super) fn check_placeholders(&mut self, directive: &Directive) {
        let Some(schema) = &directive.inputs else {
            return;
        };
        let source = self.source;
        for (start, text) in source.shown() {
            for found in fill::placeholders(text) {
                // The search for a similar name goes through all inputs.
                if !self.reports_warnings() || !self.has_time() {
                    return;
                }
                if found.of == Of::Env || schema["properties"].get(found.name).is_some() {
                    continue;
                }
                let message = format!(
                    "`{}` is not among <inputs>{}",
                    excerpt(found.name),
                    near_input(schema, found.name)
                );
                let at = source.position_of(start + found.range.start);
                self.warn_at("unknown_input", at, message);
            }
        }
    }
}
