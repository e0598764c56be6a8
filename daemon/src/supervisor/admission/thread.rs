//! The admission of a thread: its directive, what that rests on, and the model that works on it.
//!
//! **Rule.** Everything that a thread begins with is verified and fixed here: the directive with all that it extends, its inputs, the
//! knowledge that it names, the provider files and the model. What is refused, does not validate or cannot be used makes no run.
//! Knowledge is read when the thread begins, and verified again then; here it must be there and be what was signed.

use std::path::Path;
use std::sync::Arc;

use rye_core::capability::Layer;
use rye_core::definition;
use rye_core::directive::{self, Directive, Effective};
use rye_core::id::ItemRef;
use rye_core::model::{Budget, Limits, Object, RunKind, Spec, ThreadSource};
use rye_core::policy::Policy;
use rye_core::provider::{Asked, ResolvedModel, Unresolved};
use rye_core::seal::canonical;
use rye_core::thread::{Contract, offer};
use rye_item::{Item, Library, Space};
use serde_json::json;

use super::{Admission, Admitted, limits_of_child, refused};
use crate::models::Models;
use crate::projects::Inside;
use crate::provider::ProjectEnv;
use crate::supervisor::{Error, Start, StartAt};
use crate::{chain, directives};

/// Turns of a thread that nobody limited.
const TURNS: u32 = 25;
/// Tokens of such a thread.
const TOKENS: u64 = 200_000;
/// Child runs that it may start.
const SPAWNS: u32 = 50;
/// Levels of child runs below it.
const DEPTH: u32 = 10;
/// Milliseconds that its turns may take together.
const DURATION_MS: u64 = 1_800_000;
/// How often a failed call of its model is tried again, if nobody says.
const RETRIES: u32 = 3;

impl Admission {
    /// Verifies and reads the directive `item`, and fixes everything about the thread that works on it.
    pub(super) fn admit_thread(
        &self,
        inside: &Inside<'_>,
        budget: Budget,
        item: &ItemRef,
        request: &Start,
    ) -> Result<Admitted, Error> {
        only_fresh(item, request)?;
        let library = inside.library;
        let leaf = find(library, item)?;
        let mut warnings = Vec::new();
        let directive = directives::read(&leaf, &mut warnings)?;
        let effective = directives::lay_over(library, item, leaf.space, directive, &mut warnings)?;
        check_knowledge(library, &effective)?;
        let inputs = inputs(&effective.directive, request)?;
        let snapshot = library.snapshot().map_err(|source| of_item(item, source))?;
        let policy = self.services.projects.read_policy(&snapshot.policy)?;
        warnings.extend(snapshot.ignored.iter().cloned());
        let project = &inside.project.directory;
        let model = self.choose(library, project, &effective, request, &mut warnings)?;
        let spec = self.spec(inside, RunKind::Thread, &leaf, budget, request);
        let above = request.lineage.as_ref().map(|lineage| &lineage.limits);
        let mut spec = Spec {
            inputs,
            limits: limits(&request.limits, &effective.directive.limits, above),
            children: policy.children(),
            ..spec
        };
        let of_item = effective.directive.limits.spend;
        spec.budget.limit_by(of_item, policy.default_spend());
        spec.layers.push(Layer {
            source: format!("permissions of {item}"),
            patterns: effective.permissions().patterns,
        });
        let contract = contract(effective, model, &spec.layers, &policy, &leaf)?;
        spec.thread = Some(ThreadSource {
            text: Arc::clone(&leaf.text),
            contract: contract.into(),
        });
        Ok(Admitted {
            spec,
            fault: None,
            warnings,
        })
    }

    /// The model that the caller, the directive or the configuration asks for.
    fn choose(
        &self,
        library: &Library,
        project: &Path,
        effective: &Effective,
        request: &Start,
        warnings: &mut Vec<String>,
    ) -> Result<ResolvedModel, Error> {
        let models = Models::read(library)?;
        let asked = Asked {
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

/// Refuses what threads cannot do yet.
fn only_fresh(item: &ItemRef, request: &Start) -> Result<(), Error> {
    let message = match &request.start_at {
        StartAt::Start => return Ok(()),
        StartAt::Injected(_) | StartAt::Node { .. } => {
            format!(
                "`{item}` is a directive and has neither nodes nor a state; only a graph can be stepped"
            )
        }
        StartAt::Continue { run, .. } => format!(
            "run `{}` is a thread that has ended; this version of ryed continues none: start `{item}` anew",
            run.id
        ),
    };
    Err(Error::NotSupported { message })
}

fn of_item(item: &ItemRef, source: rye_item::library::Error) -> Error {
    refused(item, chain::Error::Item(Box::new(source)))
}

/// The verified item, as the project sees it.
fn find(library: &Library, item: &ItemRef) -> Result<Arc<Item>, Error> {
    let found = library.resolve(item, Space::Project);
    found.map_err(|source| of_item(item, source))
}

/// Refuses a directive that names knowledge which is not there, or is not what was signed.
fn check_knowledge(library: &Library, effective: &Effective) -> Result<(), Error> {
    for item in directives::knowledge(effective) {
        find(library, &item)?;
    }
    Ok(())
}

/// The inputs, with those given as text read as the directive declares them.
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

/// The limits asked for, else those of the directive, else the ones of every thread; and no more than the run `above` leaves. What may
/// be spent is the limit of the account.
fn limits(asked: &Limits, own: &directive::Limits, above: Option<&Limits>) -> Limits {
    let own = Limits {
        steps: None,
        depth: own.depth.or(Some(DEPTH)),
        spawns: own.spawns.or(Some(SPAWNS)),
        turns: own.turns.or(Some(TURNS)),
        tokens: own.tokens.or(Some(TOKENS)),
        duration_ms: own.duration_ms.or(Some(DURATION_MS)),
        spend: None,
    };
    limits_of_child(asked, &own, above)
}

/// The text of what the thread goes by.
fn contract(
    directive: Effective,
    model: ResolvedModel,
    layers: &[Layer],
    policy: &Policy,
    leaf: &Item,
) -> Result<String, Error> {
    let offered = offer(&directive, layers).map_err(|problem| directives::Error::Invalid {
        findings: format!("{}: {problem}", leaf.path.display()),
    })?;
    if let (false, Some(first)) = (model.tools, offered.first()) {
        return Err(Error::NoModel(Unresolved::Unusable {
            model: format!("{}/{}", model.provider, model.id),
            lacks: format!(
                "it calls no tools, and the directive needs `{}`; ask for another one",
                first.tool.name
            ),
        }));
    }
    let retries = policy.default_retries().unwrap_or(RETRIES);
    let contract = Contract {
        directive,
        model,
        offered,
        max_retries: u8::try_from(retries).unwrap_or(u8::MAX),
    };
    Ok(canonical(&json!(contract)))
}

#[cfg(test)]
mod tests;
