//! Composition of a thread's prompt from its directive.
//!
//! **Order.** All of it is one visit to the project in its file pool. The text of knowledge is the text that was
//! verified, so the model reads exactly the verified bytes. **Never** reveals a secret: a variable that any provider
//! file uses for a secret has no value here, wherever it is set. **Failure.** Knowledge that differs from its signature
//! ends the thread. Missing knowledge is left out, with a warning.

use std::path::Path;
use std::sync::Arc;

use rye_core::directive::{Effective, Knowledge, Prompt, Values};
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::ItemRef;
use rye_core::model::{Failure, Spec};
use rye_core::thread::Contract;
use rye_item::{Library, Space};

use crate::chain::InheritedVariables;
use crate::config::Config;
use crate::drive::RunContext;
use crate::models;

/// Composes the prompt of the thread `at` from its contract and inputs.
pub(super) async fn compose(at: &RunContext, contract: &Contract) -> Result<Prompt, Failure> {
    let (services, spec) = (Arc::clone(&at.services), Arc::clone(&at.spec));
    let directive = contract.directive.clone();
    let work = move |library: &Library| {
        let config = services.projects.config();
        prompt(library, &directive, &spec, config)
    };
    let composed = at.project.visit("compose a prompt", work).await;
    composed.unwrap_or_else(|error| Err(error.gone().unwrap_or_else(|| failed(&error))))
}

/// Composes the prompt synchronously. Blocks; stores nothing.
pub fn prompt(
    library: &Library,
    directive: &Effective,
    spec: &Spec,
    config: &Config,
) -> Result<Prompt, Failure> {
    let mut missing = Vec::new();
    let knowledge = knowledge(library, directive, &mut missing)?;
    let offer = InheritedVariables::of(Path::new(&spec.project), config, || {
        models::secrets(library)
    });
    let offer = offer.map_err(|error| failed(&error))?;
    let env = |name: &str| offer.get(name).map(str::to_owned);
    let values = Values {
        inputs: &spec.inputs,
        env: &env,
    };
    let mut prompt = directive.compose(&knowledge, &values);
    prompt.warnings.splice(0..0, missing);
    Ok(prompt)
}

/// Current texts of the included knowledge.
fn knowledge(
    library: &Library,
    directive: &Effective,
    missing: &mut Vec<String>,
) -> Result<Knowledge, Failure> {
    let context = &directive.directive.context;
    let mut read = |list| {
        let mut texts = Vec::new();
        for item in context.kept(list) {
            match text(library, &item) {
                Ok(text) => texts.push(text),
                Err(failure) if failure.code == INTEGRITY => return Err(failure),
                Err(failure) => missing.push(format!("{}; it is left out", failure.message)),
            }
        }
        Ok(texts)
    };
    Ok(Knowledge {
        system: read(&context.system)?,
        before: read(&context.before)?,
        after: read(&context.after)?,
    })
}

/// Error code of a thread whose knowledge failed verification.
pub const INTEGRITY: &str = "integrity_failed";

fn text(library: &Library, item: &ItemRef) -> Result<String, Failure> {
    let found = library.resolve(item, Space::Project);
    Ok(found.map_err(|error| failed(&error))?.knowledge())
}

fn failed(error: &(impl Kinded + 'static)) -> Failure {
    let code = match error.kind() {
        ErrorKind::Denied => INTEGRITY,
        ErrorKind::NotFound => "item_not_found",
        ErrorKind::Invalid
        | ErrorKind::Precondition
        | ErrorKind::Unavailable
        | ErrorKind::Exists
        | ErrorKind::Exhausted
        | ErrorKind::DataLoss
        | ErrorKind::Bug => "item_refused",
    };
    Failure::permanent(code, with_sources(error))
}

#[cfg(test)]
mod tests;
