//! Previews of threads, models and items, and signing of items. Nothing runs, and no run is created.
//!
//! **Rule.** A preview shows exactly what a start would fix. Both use the same admission, and refuse the same requests.

use std::path::Path;
use std::sync::Arc;

use rye_core::capability::Layer;
use rye_core::conversation::{Conversation, Digest, Entry, Message, Source};
use rye_core::directive::Prompt;
use rye_core::id::{ItemKind, ItemRef, RunId};
use rye_core::model::event::ItemSigned;
use rye_core::model::{Failure, Limits};
use rye_core::money::Usd;
use rye_core::policy::Risk;
use rye_core::provider::{CallContext, Size, TooSmall};
use rye_core::thread::{Contract, Terms};
use rye_item::Library;
use serde_json::Value;

use super::admission;
use super::error::Error;
use super::handle::Supervisor;
use super::request::Start;
use crate::chain;
use crate::index::{Caller, FetchRequest};
use crate::models::{Listing, Models};
use crate::native::SignAsked;
use crate::projects::ProjectView;
use crate::provider::ProjectEnv;
use crate::thread;
use crate::tool_offer::{self, OmittedTools};

/// Preview of the start of a thread.
#[derive(Debug)]
pub struct Preview {
    pub contract: Contract,
    /// Prompt of the model, with the present text of its knowledge.
    pub prompt: Prompt,
    pub limits: Limits,
    /// Maximum amount it may spend.
    pub spend: Option<Usd>,
    /// Its permissions: each layer must allow an action.
    pub layers: Vec<Layer>,
    /// Size of the first call of its model, or the reason why it would not be made.
    pub first: Result<Size, TooSmall>,
    /// Risk of each of its permissions.
    pub risks: Vec<(String, Risk)>,
    /// Warnings for the author.
    pub warnings: Vec<String>,
    /// Tools that its model is not offered by name.
    pub omitted_tools: OmittedTools,
}

impl Supervisor {
    /// Returns the preview of the thread that `request` would start.
    pub async fn preview(&self, request: Start) -> Result<Preview, Error> {
        let item = request.item.canonical();
        if item.kind != ItemKind::Directive {
            return Err(no_directive(&item));
        }
        let journal = self.journal();
        let id = RunId::generate(&item.id, journal.now().seconds(), journal.random());
        let directory = request.directory.clone();
        let admitted = self.admit(&id, request).await?;
        let spec = Arc::new(admitted.spec);
        let source = spec.thread().ok_or_else(|| no_directive(&item))?;
        let terms = Terms::read(&source.contract);
        let contract = terms.map_err(|message| Error::Params { message })?.contract;
        let (directive, of_run) = (contract.directive.clone(), Arc::clone(&spec));
        let services = Arc::clone(&self.shared.services);
        let compose = move |inside: &ProjectView<'_>| {
            let config = services.projects.config();
            let prompt = thread::prompt(inside.library, &directive, &of_run, config);
            let own = of_run.layers.last();
            let own = own.map_or_else(Vec::new, |layer| layer.patterns.clone());
            let judged = risks(inside.library, own)?;
            Ok::<_, Error>((prompt.map_err(unprompted)?, judged))
        };
        let visit = self
            .projects()
            .visit(&directory, "compose a prompt", compose);
        let (prompt, risks) = visit.await?;
        let spend = spec.limits.spend.or_else(|| spec.budget.limit());
        let mut warnings = admitted.warnings;
        warnings.extend(prompt.warnings.iter().cloned());
        Ok(Preview {
            first: first_call(&contract, &prompt, spec.limits.tokens, spend),
            limits: spec.limits.clone(),
            layers: spec.layers.clone(),
            contract,
            prompt,
            spend,
            risks,
            warnings,
            omitted_tools: admitted.omitted_tools,
        })
    }

    /// Lists the models of the project that contains `directory`.
    pub async fn models(&self, directory: &Path) -> Result<Listing, Error> {
        let services = Arc::clone(&self.shared.services);
        let work = move |inside: &ProjectView<'_>| {
            let project = &inside.project.directory;
            list(inside.library, project, &services)
        };
        self.projects().visit(directory, "list models", work).await
    }

    /// Returns the risk of each of the `permissions` of a thread. The project that contains `directory` has no
    /// influence.
    pub async fn risks(
        &self,
        directory: &Path,
        permissions: Vec<String>,
    ) -> Result<Vec<(String, Risk)>, Error> {
        let work = move |inside: &ProjectView<'_>| risks(inside.library, permissions);
        self.projects()
            .visit(directory, "look at risks", work)
            .await
    }

    /// Returns the items of the project that contains `directory`, as far as `caller` may fetch them.
    pub async fn fetch(
        &self,
        layers: Vec<Layer>,
        directory: &Path,
        asked: FetchRequest,
    ) -> Result<Value, Error> {
        let clock = &self.shared.services.clock;
        let (now, random) = (clock.up(), clock.random());
        let work = move |inside: &ProjectView<'_>| {
            let caller = Caller {
                layers: &layers,
                now,
                random,
            };
            let found = inside.search.fetch(inside.library, &asked, &caller);
            found.map_err(Error::from)
        };
        self.projects().visit(directory, "fetch items", work).await
    }

    /// Signs items of the project that contains `directory` with the key of the daemon. `caller` must be permitted to
    /// sign all of them.
    pub async fn sign(
        &self,
        caller: Layer,
        directory: &Path,
        asked: SignAsked,
    ) -> Result<Value, Error> {
        let (by, at) = (caller.source.clone(), self.shared.services.clock.now());
        let done = asked.sign_items(self.projects(), directory, vec![caller], at);
        let done = done.await?;
        for ItemSigned { item, hash, key_fp } in &done.events {
            // There is no run whose record could contain the event.
            tracing::info!(%by, item, hash, key_fp, "signed an item");
        }
        Ok(done.answer)
    }
}

fn risks(library: &Library, permissions: Vec<String>) -> Result<Vec<(String, Risk)>, Error> {
    let table = admission::risks(library)?;
    let permissions = permissions.into_iter();
    let judged = permissions.map(|permission| {
        let risk = tool_offer::risk(library, &table, &permission);
        (permission, risk)
    });
    Ok(judged.collect())
}

fn list(
    library: &Library,
    project: &Path,
    services: &crate::services::Services,
) -> Result<Listing, Error> {
    let own = ProjectEnv::new(&project.to_string_lossy(), chain::dot_env(project));
    let has_secret = |owner, name: &str| services.providers.has_secret(owner, name, &own);
    let models = Models::read(library)?;
    Ok(models.list(services.journal.now(), &has_secret))
}

/// Returns the error that `item` has no prompt.
fn no_directive(item: &ItemRef) -> Error {
    let message = format!(
        "`{item}` is no directive; `ryectl graph show` draws graphs, and only directives have a prompt"
    );
    Error::Params { message }
}

/// Size of the first call of the thread.
fn first_call(
    contract: &Contract,
    prompt: &Prompt,
    tokens: Option<u64>,
    spend: Option<Usd>,
) -> Result<Size, TooSmall> {
    let root = contract.root(prompt.system.clone());
    let first = Message::text(Source::Directive, prompt.message.clone());
    let entry = Entry::root(root.clone(), vec![first.clone()]).encode();
    let conversation = Conversation::begin(Digest::of(&entry.text), root, vec![first])
        .expect("a conversation may begin with a text");
    contract.model.size(&CallContext {
        reported: 0,
        new_bytes: conversation.bytes(),
        tokens_left: tokens,
        money_left: spend,
    })
}

fn unprompted(failure: Failure) -> Error {
    Error::Unprompted {
        message: failure.message,
        code: failure.code,
    }
}
