//! The closer look at a directive among the items of its project.
//!
//! **Owns** what a directive file alone cannot tell: whether those it extends, the knowledge it names, its tools and the model it asks for
//! are there and may be used, whether its outputs can be described and its prompt fits. What a start refuses ([`offers`]), it finds.
//! **Never** asks for a secret: who checks a directive need not be who runs it. A file that may not be used is looked
//! at as a text, as graphs are.

use rye_core::capability::Layer;
use rye_core::conversation::{Root, ToolMode};
use rye_core::definition::{Finding, Severity, Validation};
use rye_core::directive::{self, Directive, Effective, Knowledge, Values};
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::{ItemId, ItemRef};
use rye_core::model::Object;
use rye_core::provider::{Asked, ResolvedModel};
use rye_core::thread::Offered;
use rye_item::{Library, Space};

use super::check::{put_refusal, text_of};
use super::{Checked, Error};
use crate::models::Models;
use crate::projects::Projects;
use crate::{chain, directives, offers};

/// Checks the directive `item` and what it rests on. Blocks.
pub(super) fn check(
    library: &Library,
    projects: &Projects,
    item: ItemRef,
) -> Result<Checked, Error> {
    let look = Look {
        library,
        projects,
        item: &item,
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

/// What is looked at, and among what.
struct Look<'a> {
    library: &'a Library,
    projects: &'a Projects,
    item: &'a ItemRef,
}

impl Look<'_> {
    fn report(&self, space: Space, text: &str) -> Validation {
        let mut report = Validation::default();
        match directive::parse(text, &self.item.id) {
            Ok((directive, findings)) => {
                report.add(findings);
                report.add(self.around(space, directive));
            }
            Err(findings) => report.add(findings),
        }
        report
    }

    /// What is wrong with all that the directive rests on.
    fn around(&self, space: Space, directive: Directive) -> Vec<Finding> {
        let mut found = Vec::new();
        let model = self
            .model(&directive)
            .map_err(|refusal| found.push(refusal));
        let mut warnings = Vec::new();
        let effective =
            match directives::lay_over(self.library, self.item, space, directive, &mut warnings) {
                Ok(effective) => effective,
                Err(error) => {
                    found.push(finding("bad_lineage", &error));
                    return found;
                }
            };
        let knowledge = self.knowledge(&effective, &mut found);
        match offers::gate(self.library, self.item, &effective) {
            Ok(told) => found.extend(told.map(|text| warning("risk", text))),
            Err(error) => found.push(Finding {
                severity: Severity::Error,
                ..finding(error.code(), &error)
            }),
        }
        if let Ok(model) = model {
            self.offered(&effective, &model, &knowledge, &mut found);
        }
        found
    }

    /// The knowledge that goes along with it; what cannot be used of it is added to `found`.
    fn knowledge(&self, effective: &Effective, found: &mut Vec<Finding>) -> Knowledge {
        let context = &effective.directive.context;
        let mut texts = |list: &[ItemId]| -> Vec<String> {
            let items = context.kept(list);
            let texts = items.filter_map(|item| {
                let item = self.library.resolve(&item, Space::Project);
                let item = item.map_err(|error| found.push(finding("item_refused", &error)));
                item.ok().map(|item| item.knowledge())
            });
            texts.collect()
        };
        Knowledge {
            system: texts(&context.system),
            before: texts(&context.before),
            after: texts(&context.after),
        }
    }

    /// Whether its tools can be offered and its outputs described, and what it begins with fits the model.
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
        match offers::tools(self.library, effective, &layers, &policy, model) {
            Ok((offered, left_out)) => {
                found.extend(left_out.map(|text| warning("not_offered", text)));
                found.extend(too_long(effective, model, knowledge, offered));
            }
            Err(error) => found.push(finding(error.code(), &error)),
        }
    }

    /// The model that it asks for, whatever secrets there are.
    fn model(&self, directive: &Directive) -> Result<ResolvedModel, Finding> {
        let models = Models::read(self.library).map_err(|error| finding("models", &error))?;
        let asked = Asked {
            wish: Some(&directive.model),
            tools: directive.tools,
            ..Asked::default()
        };
        let chosen = models.choose(&asked, &|_, _| true);
        let (model, _) = chosen.map_err(|error| finding(error.code(), &error))?;
        Ok(model)
    }
}

/// That the prompt leaves no room for an answer, as far as can be said before there are inputs.
fn too_long(
    effective: &Effective,
    model: &ResolvedModel,
    knowledge: &Knowledge,
    offered: Vec<Offered>,
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
