//! The closer look at a directive among the items of its project.
//!
//! **Owns** what a directive file alone cannot tell: whether those it extends, the knowledge it names and the model it asks for are there
//! and may be used. **Never** asks for a secret: who checks a directive need not be who runs it. A file that may not be used is looked
//! at as a text, as graphs are.

use rye_core::definition::{Finding, Severity, Validation};
use rye_core::directive::{self, Directive};
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::ItemRef;
use rye_core::provider::Asked;
use rye_item::{Library, Space};

use super::check::{put_refusal, text_of};
use super::{Checked, Error};
use crate::models::Models;
use crate::{chain, directives};

/// Checks the directive `item` and what it rests on. Blocks.
pub(super) fn check(library: &Library, item: ItemRef) -> Result<Checked, Error> {
    let refusal = match library.resolve(&item, Space::Project) {
        Ok(file) => {
            return Ok(Checked {
                path: file.path.display().to_string(),
                report: report(library, &item, file.space, &file.text),
            });
        }
        Err(error) => chain::Error::Item(Box::new(error)),
    };
    let Some(draft) = text_of(library, &item, &refusal) else {
        return Err(Error::Unseen {
            item,
            wanted: "checked",
            source: Box::new(refusal),
        });
    };
    let mut report = report(library, &item, Space::Project, &draft.text);
    put_refusal(&mut report, &refusal);
    Ok(Checked {
        path: draft.path.display().to_string(),
        report,
    })
}

fn report(library: &Library, item: &ItemRef, space: Space, text: &str) -> Validation {
    let mut report = Validation::default();
    match directive::parse(text, &item.id) {
        Ok((directive, findings)) => {
            report.add(findings);
            report.add(around(library, item, space, directive));
        }
        Err(findings) => report.add(findings),
    }
    report
}

/// What is wrong with all that the directive rests on.
fn around(library: &Library, item: &ItemRef, space: Space, directive: Directive) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(model(library, &directive));
    let mut warnings = Vec::new();
    match directives::lay_over(library, item, space, directive, &mut warnings) {
        Ok(effective) => {
            for item in directives::knowledge(&effective) {
                let refusal = library.resolve(&item, Space::Project).err();
                found.extend(refusal.map(|error| finding("item_refused", &error)));
            }
        }
        Err(error) => found.push(finding("bad_lineage", &error)),
    }
    found
}

/// Why the model that it asks for cannot be used, whatever secrets there are.
fn model(library: &Library, directive: &Directive) -> Option<Finding> {
    let models = match Models::read(library) {
        Ok(models) => models,
        Err(error) => return Some(finding("models", &error)),
    };
    let asked = Asked {
        wish: Some(&directive.model),
        tools: directive.tools,
        ..Asked::default()
    };
    let chosen = models.choose(&asked, &|_, _| true);
    chosen.err().map(|error| finding(error.code(), &error))
}

/// A finding about the file as a whole. What only lacks a signature can be signed later; anything else must be fixed.
fn finding(code: &'static str, error: &(impl Kinded + 'static)) -> Finding {
    let severity = if error.kind() == ErrorKind::Denied {
        Severity::Warning
    } else {
        Severity::Error
    };
    Finding {
        code,
        message: with_sources(error),
        node: None,
        line: 1,
        column: 1,
        severity,
    }
}

#[cfg(test)]
mod tests;
