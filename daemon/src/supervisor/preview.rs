//! Looking at what a thread would begin with, at the models it could have, and at items, and signing these. Nothing runs, and no run is made.
//!
//! **Rule.** What is shown is what a start would fix: the same admission decides, and refuses the same.

use std::path::Path;
use std::sync::Arc;

use rye_core::capability::Layer;
use rye_core::conversation::{Conversation, Digest, Entry, Message, Source};
use rye_core::directive::Prompt;
use rye_core::id::{ItemKind, ItemRef, RunId};
use rye_core::model::{Failure, Limits, RunEvent};
use rye_core::money::Usd;
use rye_core::policy::Risk;
use rye_core::provider::{Ahead, Size, TooSmall};
use rye_core::thread::{Contract, Terms};
use rye_item::Library;
use serde_json::Value;

use super::admission;
use super::error::Error;
use super::handle::Supervisor;
use super::request::Start;
use crate::chain;
use crate::index::{Asked, Caller};
use crate::models::{Listing, Models};
use crate::native::SignAsked;
use crate::offers::LeftOut;
use crate::projects::Inside;
use crate::provider::ProjectEnv;
use crate::thread;

/// What a thread would begin with.
#[derive(Debug)]
pub struct Preview {
    /// What it would go by.
    pub contract: Contract,
    /// What its model would receive, with the knowledge as it is now.
    pub prompt: Prompt,
    /// Its limits.
    pub limits: Limits,
    /// The most it may spend.
    pub spend: Option<Usd>,
    /// What it may do: every layer must allow an action.
    pub layers: Vec<Layer>,
    /// Its first call of the model, or why there would be none.
    pub first: Result<Size, TooSmall>,
    /// How risky its permissions are.
    pub risks: Vec<(String, Risk)>,
    /// What the author should know.
    pub warnings: Vec<String>,
    /// The tools that its model is not offered by name.
    pub left_out: LeftOut,
}

impl Supervisor {
    /// What the thread that `request` asks for would begin with.
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
        let compose = move |inside: &Inside<'_>| {
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
            left_out: admitted.left_out,
        })
    }

    /// The models of the project that `directory` belongs to.
    pub async fn models(&self, directory: &Path) -> Result<Listing, Error> {
        let services = Arc::clone(&self.shared.services);
        let work = move |inside: &Inside<'_>| {
            let project = &inside.project.directory;
            list(inside.library, project, &services)
        };
        self.projects().visit(directory, "list models", work).await
    }

    /// How risky `permissions` of a thread are, which the project that `directory` belongs to has no part in.
    pub async fn risks(
        &self,
        directory: &Path,
        permissions: Vec<String>,
    ) -> Result<Vec<(String, Risk)>, Error> {
        let work = move |inside: &Inside<'_>| risks(inside.library, permissions);
        self.projects()
            .visit(directory, "look at risks", work)
            .await
    }

    /// The items of the project that `directory` belongs to, as far as `caller` may fetch them.
    pub async fn fetch(
        &self,
        caller: Layer,
        directory: &Path,
        asked: Asked,
    ) -> Result<Value, Error> {
        let clock = &self.shared.services.clock;
        let (now, random) = (clock.up(), clock.random());
        let work = move |inside: &Inside<'_>| {
            let caller = Caller {
                layers: &[caller],
                now,
                random,
            };
            let found = inside.search.fetch(inside.library, &asked, &caller);
            found.map_err(Error::from)
        };
        self.projects().visit(directory, "fetch items", work).await
    }

    /// Signs items of the project that `directory` belongs to with the key of the daemon, if `caller` may sign all of them.
    pub async fn sign(
        &self,
        caller: Layer,
        directory: &Path,
        asked: SignAsked,
    ) -> Result<Value, Error> {
        let (by, at) = (caller.source.clone(), self.shared.services.clock.now());
        let done = asked.within(self.projects(), directory, vec![caller], at);
        let done = done.await?;
        for event in &done.events {
            // No run has asked for it, whose record could tell.
            if let RunEvent::ItemSigned { item, hash, key_fp } = event {
                tracing::info!(%by, item, hash, key_fp, "signed an item");
            }
        }
        Ok(done.answer)
    }
}

fn risks(library: &Library, permissions: Vec<String>) -> Result<Vec<(String, Risk)>, Error> {
    let table = admission::risks(library)?;
    let permissions = permissions.into_iter();
    let judged = permissions.map(|permission| {
        let risk = table.of(&permission);
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

/// Why there is no prompt of `item`.
fn no_directive(item: &ItemRef) -> Error {
    let message = format!(
        "`{item}` is no directive; `ryectl graph show` draws graphs, and only directives have a prompt"
    );
    Error::Params { message }
}

/// The size of the first call, as the thread would make it.
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
    contract.model.size(&Ahead {
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
