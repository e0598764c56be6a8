//! Check of a directive against the items of its project.
//!
//! **Owns** the checks that need more than the directive file. The extended directives, the knowledge, the tools and
//! the model must exist and be usable; the outputs must be describable, and the prompt must fit. It finds everything
//! that a start refuses ([`tool_offer`]). **Never** needs a secret: the person who checks a directive need not be the one
//! who runs it. A file that must not be used is checked as text, as for graphs. **Failure.** A check that exceeds its
//! time or memory ends with the error `too_complex`.

use rye_core::capability::{Layer, Named, Primary, may_meet};
use rye_core::conversation::{Root, ToolMode};
use rye_core::definition::{Finding, Severity, Validation};
use rye_core::directive::{self, Directive, Effective, Knowledge, Values};
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::{ItemId, ItemRef};
use rye_core::model::Object;
use rye_core::policy::Policy;
use rye_core::provider::{ModelRequest, ResolvedModel};
use rye_core::thread::{OfferedTool, ThreadTool};
use rye_item::{Library, Space};

use super::check::{put_refusal, text_of};
use super::{Checked, Error, MOST_MEMORY, configuration, warning};
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
        let policy = configuration::policy(self.library, self.projects, &mut found);
        let ignored = policy.iter().flat_map(|policy| policy.ignored());
        found.extend(ignored.map(|text| warning("no_effect", text.clone())));
        let model = self.model(&directive, &mut found);
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
        found.extend(no_children(&effective.permissions().patterns));
        let knowledge = self.knowledge(&effective, &mut found);
        match tool_offer::check_risks(self.library, self.item, &effective) {
            Ok(told) => found.extend(told.map(|text| warning("risk", text))),
            Err(error) => found.push(configuration::refusal(error.code(), &error)),
        }
        if let (Some(policy), Some(knowledge), Some(model)) = (policy, knowledge, model) {
            self.offered(&effective, &model, &policy, &knowledge, &mut found);
        }
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
        policy: &Policy,
        knowledge: &Knowledge,
        found: &mut Vec<Finding>,
    ) {
        let layers = [Layer {
            source: format!("permissions of {}", self.item),
            patterns: effective.permissions().patterns,
        }];
        match tool_offer::tools(
            self.library,
            effective,
            &layers,
            policy,
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
    fn model(&self, directive: &Directive, found: &mut Vec<Finding>) -> Option<ResolvedModel> {
        let models = match Models::read(self.library) {
            Ok(models) => models,
            Err(error) => {
                let refusal = configuration::refusal("models", &error);
                // The policy may be refused because of the same file.
                if found.iter().all(|other| other.message != refusal.message) {
                    found.push(refusal);
                }
                return None;
            }
        };
        found.extend(
            models
                .warnings
                .iter()
                .map(|text| warning("models", text.clone())),
        );
        let asked = ModelRequest {
            wish: Some(&directive.model),
            tools: directive.tools,
            ..ModelRequest::default()
        };
        match models.choose(&asked, &|_, _| true) {
            Ok((model, other)) => {
                found.extend(other.map(|text| warning("other_model", text)));
                Some(model)
            }
            Err(error) => {
                found.push(finding(error.code(), &error));
                None
            }
        }
    }
}

/// Finding that `permissions` name a tool that starts threads, and no directive that it could start.
fn no_children(permissions: &[String]) -> Option<Finding> {
    const DIRECTIVES: &str = "rye.execute.directive.*";
    let starts = |pattern: &&String| match Named::of(pattern, Primary::Execute) {
        Some(Named::Item(item)) => ThreadTool::of(&item.id).is_some(),
        Some(Named::Below(..)) | None => false,
    };
    let pattern = permissions.iter().find(starts)?;
    let has_directives = permissions
        .iter()
        .any(|pattern| may_meet(pattern, DIRECTIVES));
    (!has_directives).then(|| {
        let text = format!(
            "`{pattern}` starts no thread without the permission for its directive: add \
             <directive>team.review</directive> in <execute>, with the id of the directive"
        );
        warning("not_permitted", text)
    })
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
