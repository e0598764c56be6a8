//! Admission of a thread: its directive, the items this depends on, and its model.
//!
//! **Rule.** Everything at the start of a thread is verified and fixed here: the directive and all that it extends, its
//! inputs, its knowledge, the provider files and the model. Anything refused, invalid or unusable creates no run. The
//! text of knowledge is read and verified again when the thread begins; here it must exist and match its signature.

use std::path::Path;
use std::sync::Arc;

use rye_core::capability::Layer;
use rye_core::definition;
use rye_core::directive::{self, Directive, Effective};
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::model::{Budget, Limits, Object, Run, Spec, Task, ThreadSource};
use rye_core::policy::Risks;
use rye_core::provider::{ModelRequest, ResolvedModel, Unresolved};
use rye_core::seal::canonical;
use rye_core::thread::{Contract, ungranted};
use rye_item::{Item, Library, Space};
use serde_json::json;

use super::super::error::Error;
use super::super::message::full;
use super::super::request::{Admitted, Start, StartAt};
use super::authority::check_person;
use super::{Admission, inherited_layers, limits_of_child, refused};
use crate::models::Models;
use crate::projects::{self, ProjectView};
use crate::provider::ProjectEnv;
use crate::{chain, directives, tool_offer};

impl Admission {
    /// Verifies and parses the directive `item`, and fixes everything about its thread.
    pub(super) fn admit_thread(
        &self,
        inside: &ProjectView<'_>,
        budget: Budget,
        item: &ItemRef,
        request: &Start,
    ) -> Result<Admitted, Error> {
        match &request.start_at {
            StartAt::Start => {}
            StartAt::Injected(_) | StartAt::Node { .. } => return Err(not_stepped(item)),
            StartAt::Continue { run, message, .. } => {
                return self.continue_thread(inside, budget, run, message.as_deref(), request);
            }
        }
        let library = inside.library;
        let leaf = find(library, item)?;
        check_person(request, &leaf)?;
        let mut warnings = Vec::new();
        let directive = directives::read(&leaf, &mut warnings)?;
        let effective =
            directives::with_parents(library, item, leaf.space, directive, &mut warnings)?;
        check_knowledge(library, &effective)?;
        let unfit = |error| not_offered(&leaf.path, error);
        warnings.extend(tool_offer::check_risks(library, item, &effective).map_err(unfit)?);
        warnings.extend(unread(library));
        let inputs = inputs(&effective.directive, request)?;
        let (snapshot, policy) = self.configuration(item, library)?;
        warnings.extend(snapshot.ignored.iter().cloned());
        warnings.extend(policy.ignored().iter().cloned());
        let project = &inside.project.directory;
        let model = self.choose(library, project, &effective, request, &mut warnings)?;
        let own = Layer {
            source: permissions_of(item),
            patterns: effective.permissions().patterns,
        };
        let inherited = inherited_layers(request);
        warnings.extend(not_granted(&own, &inherited));
        let layers = [inherited, vec![own]].concat();
        let (offered, left_out) =
            tool_offer::tools(library, &effective, &layers, &policy, &model, &|| false)
                .map_err(unfit)?;
        warnings.extend(left_out.warning());
        let asked = effective.directive.limits;
        let approvals = effective.permissions().approvals;
        let contract = Contract {
            directive: effective,
            model,
            offered,
            max_retries: u8::try_from(policy.default_retries().unwrap_or_default())
                .unwrap_or(u8::MAX),
            on_exceed: policy.on_exceed(),
            repeated_calls: policy.repeated_calls(),
            provider_errors: policy.provider_errors().to_vec(),
        };
        let task = Task::Thread(ThreadSource {
            text: Arc::clone(&leaf.text),
            contract: canonical(&json!(contract)).into(),
            carried: None,
        });
        let what = (&leaf.item, &*leaf.content_hash);
        let above = request.lineage.as_ref().map(|lineage| &lineage.limits);
        let mut spec = Spec {
            inputs,
            limits: limits(&request.limits, &asked, policy.default_limits(), above),
            children: policy.children(),
            layers,
            ..self.spec(inside, task, what, budget, request)
        };
        spec.approvals.extend(approvals);
        spec.budget.limit_by(asked.spend, policy.default_spend());
        Ok(Admitted {
            omitted_tools: left_out,
            notes: Vec::new(),
            spec,
            fault: None,
            warnings,
        })
    }

    /// Fixes everything about a thread that continues the conversation of `run`. Its terms from the start of `run` are
    /// kept.
    fn continue_thread(
        &self,
        inside: &ProjectView<'_>,
        budget: Budget,
        run: &Run,
        message: Option<&str>,
        request: &Start,
    ) -> Result<Admitted, Error> {
        let old = &run.spec;
        let (Some(mut carried), Some(source)) = (run.carried(), old.thread()) else {
            return Err(Error::Unfit {
                run: run.id.clone(),
                problem: "it is no thread that has ended".to_owned(),
            });
        };
        if message.is_some_and(|text| !carried.queue.push(text)) {
            return Err(full(run));
        }
        let what = (&old.item, &*old.content_hash);
        let above = request.lineage.as_ref().map(|lineage| &lineage.limits);
        let task = Task::Thread(ThreadSource {
            carried: Some(Arc::new(carried)),
            ..source.clone()
        });
        let spec = self.spec(inside, task, what, budget, request);
        let mut layers = spec.layers.clone();
        // It may do no more than the run it continues, independent of the caller.
        layers.extend(
            old.layers
                .iter()
                .filter(|layer| !spec.layers.contains(layer))
                .cloned(),
        );
        // The permissions of the directive are last, as at each start.
        let own = permissions_of(&old.item);
        layers.sort_by_key(|layer| layer.source == own);
        let mut approvals = spec.approvals.clone();
        let own = old.approvals.iter();
        approvals.extend(own.filter(|rule| !spec.approvals.contains(rule)).cloned());
        let in_force = limits_in_force(run);
        let spec = Spec {
            inputs: old.inputs.clone(),
            layers,
            approvals,
            limits: limits_of_child(&request.limits, &in_force, above),
            children: old.children,
            ..spec
        };
        Ok(Admitted {
            omitted_tools: tool_offer::OmittedTools::default(),
            notes: Vec::new(),
            spec,
            fault: None,
            warnings: Vec::new(),
        })
    }

    /// Chooses the model that the caller, the directive or the configuration requests.
    fn choose(
        &self,
        library: &Library,
        project: &Path,
        effective: &Effective,
        request: &Start,
        warnings: &mut Vec<String>,
    ) -> Result<ResolvedModel, Error> {
        let models = Models::read(library)?;
        let asked = ModelRequest {
            model: request.model.as_deref(),
            provider: request.provider.as_deref(),
            wish: Some(&effective.directive.model),
            tools: effective.directive.tools,
        };
        let own = ProjectEnv::new(&project.to_string_lossy(), chain::dot_env(project));
        let providers = &self.services.providers;
        let has_secret = |owner, name: &str| providers.has_secret(owner, name, &own);
        let (model, instead) = models.choose(&asked, &has_secret)?;
        warnings.extend(models.warnings);
        warnings.extend(instead);
        Ok(model)
    }
}

/// Source name of the layer for the permissions of a directive.
fn permissions_of(item: &ItemRef) -> String {
    format!("permissions of {item}")
}

/// Present limits of a thread.
fn limits_in_force(run: &Run) -> Limits {
    let of_turns = run.thread().map(|thread| thread.limits).unwrap_or_default();
    Limits {
        steps: None,
        spend: None,
        spawns: run.below.spawns,
        depth: run.below.depth,
        turns: of_turns.turns,
        tokens: of_turns.tokens,
        duration_ms: of_turns.duration_ms,
    }
}

/// Returns the error that a directive has neither nodes nor a state.
fn not_stepped(item: &ItemRef) -> Error {
    let message = format!(
        "`{item}` is a directive and has neither nodes nor a state; only a graph can be stepped"
    );
    Error::NotSupported { message }
}

fn of_item(item: &ItemRef, source: rye_item::library::Error) -> Error {
    refused(item, chain::Error::Item(Box::new(source)))
}

/// Returns the verified item, as resolved from the project.
fn find(library: &Library, item: &ItemRef) -> Result<Arc<Item>, Error> {
    let found = library.resolve(item, Space::Project);
    found.map_err(|source| of_item(item, source.suggesting(library)))
}

/// Configuration files of the original that have no effect on threads, and the reasons.
const UNREAD: [(&str, &str); 2] = [
    ("hooks", "hooks of threads are not carried out yet"),
    ("events", "what is written, and when, is fixed"),
];

/// Returns a warning for each configuration file of the project or the user that has no effect.
fn unread(library: &Library) -> Vec<String> {
    let mut told = Vec::new();
    for (name, why) in UNREAD {
        let item = ItemRef {
            kind: ItemKind::Config,
            id: ItemId::new(format!("agent/{name}")).expect("it is a plain word"),
        };
        match library.resolve(&item, Space::Project) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Any such file shows that someone relies on it.
            Ok(_) | Err(_) => told.push(format!("`{item}` has no effect: {why} (no_effect)")),
        }
    }
    told
}

/// Refuses a directive whose knowledge is missing or does not match its signature.
fn check_knowledge(library: &Library, effective: &Effective) -> Result<(), Error> {
    for item in directives::knowledge(effective) {
        find(library, &item)?;
    }
    Ok(())
}

/// Returns the inputs. Those given as text are converted by the declaration of the directive.
fn inputs(directive: &Directive, request: &Start) -> Result<Object, Error> {
    let mut given = request.inputs.clone();
    for (key, text) in &request.text_inputs {
        let value = definition::coerce(directive.inputs.as_ref(), key, text);
        given.insert(key.clone(), value);
    }
    let inputs = directive.resolve_inputs(given);
    inputs.map_err(|failure| Error::Inputs {
        message: failure.message,
    })
}

/// Returns the requested limits, with those of the directive and then the configuration as defaults, restricted by
/// those of the run `above`. The spending limit is that of the account instead.
fn limits(
    asked: &Limits,
    own: &directive::DirectiveLimits,
    default: &Limits,
    above: Option<&Limits>,
) -> Limits {
    let own = Limits {
        steps: None,
        depth: own.depth.or(default.depth),
        spawns: own.spawns.or(default.spawns),
        turns: own.turns.or(default.turns),
        tokens: own.tokens.or(default.tokens),
        duration_ms: own.duration_ms.or(default.duration_ms),
        spend: None,
    };
    limits_of_child(asked, &own, above)
}

/// Returns one warning for the permissions of the directive that the layers `above` do not grant.
fn not_granted(own: &Layer, above: &[Layer]) -> Option<String> {
    let told: Vec<String> = ungranted(&own.patterns, above)
        .into_iter()
        .map(|(pattern, layer)| format!("`{pattern}` by {}", layer.source))
        .collect();
    let text = format!(
        "the {} are wider than what is granted: not granted are",
        own.source
    );
    (!told.is_empty()).then(|| format!("{text} {}", told.join(", ")))
}

pub(crate) fn risks(library: &Library) -> Result<Risks, Error> {
    tool_offer::risks(library).map_err(|error| not_offered(Path::new("."), error))
}

/// Converts a refusal of a directive to the error of a start. `path` is its file.
fn not_offered(path: &Path, error: tool_offer::Error) -> Error {
    match error {
        tool_offer::Error::Table { table, source } => of_item(&table, *source),
        tool_offer::Error::Risks { problem } => Error::Project(projects::Error::Policy { problem }),
        tool_offer::Error::Outputs { problem } => Error::Directive(directives::Error::Invalid {
            findings: format!("{}: {problem}", path.display()),
        }),
        tool_offer::Error::NoTools { model, tool } => Error::NoModel(Unresolved::Unusable {
            model,
            lacks: format!(
                "it calls no tools, and the directive needs `{tool}`; ask for another one"
            ),
        }),
        refused @ tool_offer::Error::Risk { .. } => Error::Denied {
            message: refused.to_string(),
        },
    }
}

#[cfg(test)]
mod tests;
