//! Templates in values of any shape: check, referenced paths, and interpolation.

use std::borrow::Cow;

use serde_json::Value;

use super::fault::{Error, SHOWN, Severity, TemplateFault};
use super::scope::{IsRoot, Scope};
use super::template::{Template, TemplatePart};
use super::value::Kind;
use crate::bounds::{self, Excess, MOST_BYTES, MOST_DEPTH};
use crate::error::excerpt;
use crate::yaml::push_segment;

/// Returns `template` with every text in it interpolated in `scope`. Map keys and other values stay unchanged.
pub fn interpolate(
    template: &Value,
    scope: &dyn Scope,
    notes: &mut Vec<String>,
) -> Result<Value, Error> {
    let mut filling = Filling {
        scope,
        notes,
        left: MOST_BYTES,
    };
    filling.value(template, MOST_DEPTH)
}

/// State of an interpolation.
struct Filling<'a> {
    pub(super) scope: &'a dyn Scope,
    pub(super) notes: &'a mut Vec<String>,
    /// Bytes that the remaining values may take.
    pub(super) left: usize,
}

impl Filling<'_> {
    fn value(&mut self, template: &Value, depth: usize) -> Result<Value, Error> {
        match template {
            Value::String(text) => self.text(text, depth),
            Value::Array(list) => list
                .iter()
                .map(|entry| self.value(entry, depth.saturating_sub(1)))
                .collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, entry)| Ok((key.clone(), self.value(entry, depth.saturating_sub(1))?)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(template.clone()),
        }
    }

    fn text(&mut self, text: &str, depth: usize) -> Result<Value, Error> {
        let scope = self.scope;
        let template = Template::parse(text, &|name| scope.get(name).is_some());
        let template = template.map_err(|reason| Error::Malformed {
            template: text.to_owned(),
            reason,
        })?;
        let excess = |excess| Error::Excess {
            template: text.chars().take(SHOWN).collect(),
            excess,
        };
        let value = template
            .render(self.scope, self.notes, self.left)?
            .ok_or_else(|| excess(Excess::Bytes))?;
        self.left -= bounds::size_within(&value, depth, self.left).map_err(excess)?;
        Ok(value)
    }
}

/// Returns the faults of `template`; without any, [`interpolate`] finds it well-formed in a scope of these names.
/// Expressions on other names are not reported here: [`references`] returns them.
pub fn check(template: &Value, is_root: IsRoot<'_>) -> Vec<TemplateFault> {
    let mut faults = Vec::new();
    each_text(
        template,
        &mut String::new(),
        &mut |at, text| match Template::parse(text, is_root) {
            Ok(parsed) if parsed.unclosed => faults.push(TemplateFault {
                at: at.to_owned(),
                message: "`${` without `}` stays text".to_owned(),
                severity: Severity::Warning,
            }),
            Ok(_) => {}
            Err(reason) => faults.push(TemplateFault {
                at: at.to_owned(),
                message: format!("malformed template `{}`: {reason}", excerpt(text)),
                severity: Severity::Error,
            }),
        },
    );
    faults
}

/// Returns the paths that `template` reads in a scope of these names, as written and in order. `{input:name}` counts as
/// `inputs.name`. Malformed texts read nothing.
pub fn references(template: &Value, is_root: IsRoot<'_>) -> Vec<String> {
    let mut paths = Vec::new();
    each_read(template, is_root, &mut |read| {
        paths.push(read.path.into_owned());
    });
    paths
}

pub(crate) struct Read<'t> {
    /// JSON pointer from the template to the text that holds the path.
    pub(crate) at: &'t str,
    pub(crate) path: Cow<'t, str>,
    /// Escaped form of the expression for a shell, if it may be meant for one.
    pub(crate) for_shell: Option<String>,
}

/// Visits the paths that [`references`] returns, with their positions.
pub(crate) fn each_read(template: &Value, is_root: IsRoot<'_>, visit: &mut dyn FnMut(Read<'_>)) {
    each_text(template, &mut String::new(), &mut |at, text| {
        let parts =
            Template::parse(text, is_root).map_or_else(|_| Vec::new(), |parsed| parsed.parts);
        for part in &parts {
            match part {
                TemplatePart::Text(_) => {}
                TemplatePart::Expression(expression) => {
                    for path in expression.paths() {
                        let path = Cow::Borrowed(path.text());
                        let for_shell = expression.for_shell();
                        visit(Read {
                            at,
                            path,
                            for_shell,
                        });
                    }
                }
                TemplatePart::Input(input) => visit(Read {
                    at,
                    path: format!("inputs.{}", input.name).into(),
                    for_shell: None,
                }),
            }
        }
    });
}

/// Returns the type that every value of `template` has, or `None` if it depends on the input. A lone path that does not
/// resolve still yields null.
pub(crate) fn kind_of_template(template: &Value) -> Option<Kind> {
    match template {
        // The known names do not change the type: a text escaped for a shell is a text in any case.
        Value::String(text) => Template::parse(text, &|_| true).ok()?.kind(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some(Kind::of(template))
        }
    }
}

/// Removes map entries that are null from `params`, at any depth. Lists keep their nulls.
#[must_use]
pub fn strip_nulls(params: Value) -> Value {
    match params {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, strip_nulls(value)))
            .collect(),
        Value::Array(list) => list.into_iter().map(strip_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => params,
    }
}

fn each_text(value: &Value, at: &mut String, visit: &mut dyn FnMut(&str, &str)) {
    let length = at.len();
    match value {
        Value::String(text) => visit(at, text),
        Value::Array(list) => {
            for (index, entry) in list.iter().enumerate() {
                push_segment(at, &index.to_string());
                each_text(entry, at, visit);
                at.truncate(length);
            }
        }
        Value::Object(map) => {
            for (key, entry) in map {
                push_segment(at, key);
                each_text(entry, at, visit);
                at.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
