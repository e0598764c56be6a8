//! Check of a directive against the items of its project.
//!
//! **Owns** the checks that need more than the directive file. The extended directives, the knowledge, the tools and
//! the model must exist and be usable; the outputs must be describable, and the prompt must fit. It finds everything
//! that a start refuses ([`tool_offer`]). **Never** needs a secret: the person who checks a directive need not be the one
//! who runs it. A file that must not be used is checked as text, as for graphs. **Failure.** A check that exceeds its
//! time or memory ends with the error `too_complex`.

use rye_core::capability::Layer;
use rye_core::conversation::{Root, ToolMode};
use rye_core::definition::{Finding, Severity, Validation};
use rye_core::directive::{self, Directive, Effective, Knowledge, Values};
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::{ItemId, ItemRef};
use rye_core::model::Object;
use rye_core::provider::{ModelRequest, ResolvedModel};
use rye_core::thread::OfferedTool;
use rye_item::{Library, Space};

use super::check::{put_refusal, text_of};
use super::{Checked, Error, MOST_MEMORY};
use crate::models::Models;
use crate::projects::Projects;
use crate::{chain, directives, tool_offer};

/// Checks the directive `item` and its dependencies. Blocks.
pub(super) fn check(
    library: &Library,
    projects: &Projects,
    item: ItemRef,
    is_late: &dyn Fn() -> bool,
) -> Result<Checked, Error> {
    let look = DirectiveCheck {
        library,
        projects,
        item: &item,
        is_late,
    };
    let refusal = match library.resolve(&item, Space::Project) {
        Ok(file) => {
            return Ok(Checked {
                path: file.path.display().to_string(),
                report: look.report(file.space, &file.text),
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
    let mut report = look.report(Space::Project, &draft.text);
    put_refusal(&mut report, &refusal);
    Ok(Checked {
        path: draft.path.display().to_string(),
        report,
    })
}

/// Context of a check.
struct DirectiveCheck<'a> {
    library: &'a Library,
    projects: &'a Projects,
    item: &'a ItemRef,
    is_late: &'a dyn Fn() -> bool,
}

impl DirectiveCheck<'_> {
    fn report(&self, space: Space, text: &str) -> Validation {
        let mut report = Validation::default();
        match directive::parse_until(text, &self.item.id, self.is_late) {
            Ok((directive, findings)) => {
                report.add(findings);
                report.add(self.around(space, directive));
            }
            Err(findings) => report.add(findings),
        }
        report
    }

    /// Findings in all dependencies of the directive.
    fn around(&self, space: Space, directive: Directive) -> Vec<Finding> {
        let mut found = Vec::new();
        let model = self
            .model(&directive)
            .map_err(|refusal| found.push(refusal));
        let mut warnings = Vec::new();
        let effective = match directives::with_parents(
            self.library,
            self.item,
            space,
            directive,
            &mut warnings,
        ) {
            Ok(effective) => effective,
            Err(error) => {
                found.push(finding("bad_lineage", &error));
                return found;
            }
        };
        let knowledge = self.knowledge(&effective, &mut found);
        match tool_offer::check_risks(self.library, self.item, &effective) {
            Ok(told) => found.extend(told.map(|text| warning("risk", text))),
            Err(error) => found.push(Finding {
                severity: Severity::Error,
                ..finding(error.code(), &error)
            }),
        }
        let (Some(knowledge), Ok(model)) = (knowledge, model) else {
            return found;
        };
        self.offered(&effective, &model, &knowledge, &mut found);
        found
    }

    /// Reads the knowledge that the directive includes. Adds to `found` the items that cannot be used, or an error if
    /// it is too much.
    fn knowledge(&self, effective: &Effective, found: &mut Vec<Finding>) -> Option<Knowledge> {
        let context = &effective.directive.context;
        let mut left = MOST_MEMORY;
        let mut texts = |list: &[ItemId]| -> Option<Vec<String>> {
            let mut texts = Vec::new();
            for item in context.kept(list) {
                if (self.is_late)() {
                    found.push(too_complex());
                    return None;
                }
                match self.library.resolve(&item, Space::Project) {
                    Ok(item) => {
                        let text = item.knowledge();
                        let Some(rest) = left.checked_sub(text.len()) else {
                            found.push(too_complex());
                            return None;
                        };
                        left = rest;
                        texts.push(text);
                    }
                    Err(error) => found.push(finding("item_refused", &error)),
                }
            }
            Some(texts)
        };
        Some(Knowledge {
            system: texts(&context.system)?,
            before: texts(&context.before)?,
            after: texts(&context.after)?,
        })
    }

    /// Checks that its tools can be offered, its outputs can be described, and its first message fits the model.
    fn offered(
        &self,
        effective: &Effective,
        model: &ResolvedModel,
        knowledge: &Knowledge,
        found: &mut Vec<Finding>,
    ) {
        let snapshot = match self.library.snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => return found.push(finding("configuration", &error)),
        };
        let policy = match self.projects.read_policy(&snapshot.policy) {
            Ok(policy) => policy,
            Err(error) => return found.push(finding("configuration", &error)),
        };
        let layers = [Layer {
            source: format!("permissions of {}", self.item),
            patterns: effective.permissions().patterns,
        }];
        match tool_offer::tools(
            self.library,
            effective,
            &layers,
            &policy,
            model,
            self.is_late,
        ) {
            Ok(_) if (self.is_late)() => found.push(too_complex()),
            Ok((offered, left_out)) => {
                found.extend(left_out.warning().map(|text| warning("not_offered", text)));
                found.extend(too_long(effective, model, knowledge, offered));
            }
            Err(error) => found.push(finding(error.code(), &error)),
        }
    }

    /// Resolves its model, as if all secrets were present.
    fn model(&self, directive: &Directive) -> Result<ResolvedModel, Finding> {
        let models = Models::read(self.library).map_err(|error| finding("models", &error))?;
        let asked = ModelRequest {
            wish: Some(&directive.model),
            tools: directive.tools,
            ..ModelRequest::default()
        };
        let chosen = models.choose(&asked, &|_, _| true);
        let (model, _) = chosen.map_err(|error| finding(error.code(), &error))?;
        Ok(model)
    }
}

/// Finding that the prompt leaves no room for an answer, as far as that is known without inputs.
fn too_long(
    effective: &Effective,
    model: &ResolvedModel,
    knowledge: &Knowledge,
    offered: Vec<OfferedTool>,
) -> Option<Finding> {
    let inputs = effective.directive.resolve_inputs(Object::new());
    let prompt = effective.compose(
        knowledge,
        &Values {
            inputs: &inputs.unwrap_or_default(),
            env: &|_| None,
        },
    );
    let root = Root {
        system: prompt.system,
        tools: offered.into_iter().map(|offered| offered.tool).collect(),
        tool_mode: ToolMode::Native,
        origin: model.origin(),
    };
    let tokens = model.token_size.tokens(root.bytes() + prompt.message.len());
    let most = model.room();
    (tokens > most).then(|| {
        let text = format!(
            "the prompt is about {tokens} tokens long, and `{}/{}` has room for {most} beside its answer",
            model.provider, model.id
        );
        warning("prompt_too_long", text)
    })
}

/// Finding that the check was aborted.
fn too_complex() -> Finding {
    let text = format!(
        "the directive takes too long to check, or more than {} MiB: it names too much that is looked at; let it name less",
        MOST_MEMORY >> 20
    );
    Finding {
        severity: Severity::Error,
        ..warning("too_complex", text)
    }
}

fn warning(code: &'static str, message: String) -> Finding {
    Finding {
        code,
        message,
        node: None,
        line: 1,
        column: 1,
        severity: Severity::Warning,
    }
}

/// Finding about the whole file. A missing signature can be added later; all else must be fixed.
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
