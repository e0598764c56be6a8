//! From an item to what its primitive will do.
//!
//! **Owns** the walk tool → runtime → primitive ([`resolve`]), its rules, and the making of a [`Plan`] ([`plan()`]).
//! **Never** runs anything, and never reads a file again that has been verified: a plan holds the verified bytes.
//!
//! ```text
//! item ──executor_id──► runtime ──executor_id──► rye/core/primitives/execute   ⇒ a process
//!   ├─ rye/core/primitives/http                                                ⇒ a call of another host
//!   ├─ rye/core/runtimes/mcp/stdio and …/http                                  ⇒ a call of a server, which is an item as well
//!   └─ rye/core/echo and other native tools, executor_id: null                 ⇒ a call inside the daemon
//!   ├─ rye/core/runtimes/state-graph/runtime                                   ⇒ a graph run
//!   └─ rye/agent/threads/thread_directive, thread_tool                         ⇒ a thread
//! ```
//!
//! **Rules.** At most ten elements, no element twice; an element rests only on its own space or a lower one (held by
//! [`Library::resolve`]), takes the versions its executor takes, and gives the data its executor asks for. Each key of a file is one that is
//! read; any other is refused with its line. What a tool is to be given of the configuration is looked up with it. Caller parameters are data: they travel as JSON on stdin, or into slots the runtime's own text
//! names, and are never read as templates. **Failure.** Every refusal names the item, and the file and the fix
//! where one file is to blame.

mod anchor;
mod binary;
mod environment;
mod error;
mod fields;
mod given;
mod interpreter;
mod lock;
mod plan;
mod request;
mod rules;
mod server;
mod shell;
mod template;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::definition::{Inputs, MISFIT};
use rye_core::expr::did_you_mean;
use rye_core::id::{ItemId, ItemKind, ItemRef, RunId};
use rye_core::model::{Effect, Failure, Object, Spec};
use rye_core::seal::Coverage;
use rye_core::thread::ThreadTool;
use rye_item::library::Glance;
use rye_item::metadata::Unread;
use rye_item::{Item, Library, Space};
use serde_json::{Value, json};

use self::anchor::Anchored;
use self::error::MOST_ELEMENTS;
use self::fields::malformed;
use self::given::Given;
use self::lock::{Cover, Held};

pub use self::environment::{Offer, dot_env};
pub use self::error::Error;
pub use self::lock::{Draft, Standing, draft};
pub use self::plan::{Answer, NativeCall, Plan, ProcessPlan, plan, tag};
pub use self::request::{Backoff, RequestPlan};
pub use self::server::Way;
use crate::native;

/// The runtime of graphs.
pub const STATE_GRAPH: &str = "rye/core/runtimes/state-graph/runtime";
const EXECUTE: &str = "rye/core/primitives/execute";
const HTTP: &str = "rye/core/primitives/http";

/// The run on whose behalf something is done.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Its id.
    pub run: RunId,
    /// Its authority and its project.
    pub spec: Arc<Spec>,
    /// Try of the step, from 1.
    pub attempt: u32,
    /// The idempotency key of the step.
    pub key: String,
}

/// What stands at the end of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// A tool inside the daemon.
    Native(native::Tool),
    /// A process.
    Process,
    /// A call of another host.
    Http,
    /// A call of a server of the Model Context Protocol.
    Mcp(Way),
    /// A graph run.
    Graph,
    /// A thread, of the directive that the parameters name.
    Thread(ThreadTool),
}

/// What was decided on the way to a plan, for somebody who asked.
#[derive(Debug, Default)]
pub struct Trace {
    /// Its entries, in their order.
    pub steps: Vec<Value>,
    /// How long reading and verifying files took.
    pub verifying: Duration,
}

/// A verified chain, tool first.
#[derive(Debug, Clone)]
pub struct Chain {
    item: ItemRef,
    elements: Vec<Arc<Item>>,
    /// What the tool is given of the configuration.
    given: Option<Arc<Given>>,
    /// The files of the tool, if it is one of several and not planned yet.
    anchored: Option<Arc<Anchored>>,
    /// What stands for all of them.
    files_hash: Option<Arc<str>>,
    /// The item of its server, if it is a tool of one.
    server: Option<Arc<Item>>,
    /// What stands at its end.
    pub terminal: Terminal,
}

/// Resolves and verifies the chain of `item`, and holds it to its lock. `trace`, if there is one, receives what was found at each element.
pub fn resolve(
    library: &Library,
    item: &ItemRef,
    trace: Option<&mut Trace>,
) -> Result<Chain, Error> {
    resolve_under(library, item, Locks::Held, trace)
}

/// The chain of `item`, if no file has to be read for it: all of it is built in, and it runs inside the daemon or is the shell. No lock holds
/// it, and it asks for nothing else.
pub fn at_a_glance(glance: &Glance<'_>, item: &ItemRef) -> Option<Chain> {
    let tool = glance.built_in(item)?;
    let (elements, terminal) = match terminal(&tool) {
        Some(native @ Terminal::Native(_)) => (vec![tool], native),
        None if shell::is(&tool) && glance.surely_unlocked(&tool) => {
            let primitive = ItemId::new(EXECUTE).expect("the name of a primitive is an id");
            let primitive = glance.built_in(&ItemRef::tool(primitive))?;
            (vec![tool, primitive], Terminal::Process)
        }
        Some(_) | None => return None,
    };
    Some(Chain {
        item: item.clone(),
        elements,
        given: None,
        anchored: None,
        files_hash: None,
        server: None,
        terminal,
    })
}

impl Chain {
    /// Whether a call with `params` can be planned without a look at the project, of a chain that was found [at a glance](at_a_glance).
    pub fn needs_no_file(&self, params: &Object) -> bool {
        match self.terminal {
            Terminal::Native(_) => true,
            Terminal::Process => shell::is(self.tool()) && shell::needs_no_file(params),
            Terminal::Http | Terminal::Mcp(_) | Terminal::Graph | Terminal::Thread(_) => false,
        }
    }
}

/// What locks mean to those who resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Locks {
    /// A lock that is there holds.
    Held,
    /// A lock is to be written: none holds, and any file of the tool may be part of it.
    Drawn,
}

fn resolve_under(
    library: &Library,
    item: &ItemRef,
    locks: Locks,
    mut trace: Option<&mut Trace>,
) -> Result<Chain, Error> {
    let mut elements: Vec<Arc<Item>> = Vec::new();
    let mut next = item.clone();
    let mut referrer = Space::Project;
    loop {
        if let Some(last) = elements.last()
            && elements.iter().any(|seen| seen.item == next)
        {
            return Err(Error::Circular {
                tool: item.id.clone(),
                item: next.id,
                path: last.path.clone(),
            });
        }
        if elements.len() == MOST_ELEMENTS {
            return Err(Error::TooDeep {
                tool: item.id.clone(),
            });
        }
        let since = Instant::now();
        let element = library
            .resolve(&next, referrer)
            .map_err(|error| Error::Item(Box::new(error)))?;
        if let Some(trace) = trace.as_deref_mut() {
            trace.verifying += since.elapsed();
            note(&mut trace.steps, library, &element, referrer);
        }
        refuse_unread(&element)?;
        referrer = element.space;
        elements.push(Arc::clone(&element));
        if let Some(terminal) = terminal(&element) {
            return complete(item, elements, terminal, library, locks, trace);
        }
        let Some(executor) = &element.metadata.executor_id else {
            return Err(Error::NoExecutor {
                path: element.path.clone(),
            });
        };
        let executor = ItemId::new(executor.as_str()).map_err(|source| Error::ExecutorId {
            path: element.path.clone(),
            source,
        })?;
        next = ItemRef::tool(executor).canonical();
    }
}

/// What the elements ask of each other, what the tool asks of the configuration, which files it has, and what its lock says.
fn complete(
    item: &ItemRef,
    elements: Vec<Arc<Item>>,
    terminal: Terminal,
    library: &Library,
    locks: Locks,
    trace: Option<&mut Trace>,
) -> Result<Chain, Error> {
    refuse_graph(&elements, terminal)?;
    let checked = rules::check(&elements)?;
    let tool = elements.first().expect("a chain has at least one element");
    let since = Instant::now();
    let lock = match (locks, terminal) {
        (Locks::Drawn, _) | (_, Terminal::Native(_)) => None,
        (Locks::Held, _) => lock::of(tool, library)?,
    };
    let given = given::look_up(tool, library)?;
    if given.is_some() && terminal != Terminal::Process {
        let problem = "is for tools that run as a process";
        return Err(malformed(tool, "config_resolve", problem));
    }
    let cover = match (locks, &lock) {
        (Locks::Drawn, _) => Cover::Everything,
        (Locks::Held, lock) => Cover::Lock(lock.as_ref()),
    };
    let anchored = match terminal {
        Terminal::Process => anchor::look_up(&elements, library, &cover)?,
        Terminal::Native(_)
        | Terminal::Http
        | Terminal::Mcp(_)
        | Terminal::Graph
        | Terminal::Thread(_) => None,
    };
    let server = match terminal {
        Terminal::Mcp(way @ (Way::Stdio | Way::Http)) => Some(server::of_tool(tool, way, library)?),
        Terminal::Mcp(Way::Any)
        | Terminal::Process
        | Terminal::Native(_)
        | Terminal::Http
        | Terminal::Graph
        | Terminal::Thread(_) => None,
    };
    if let Some(trace) = trace {
        trace.verifying += since.elapsed();
        let steps = &mut trace.steps;
        let found = lock.iter().map(Held::traced).collect::<Vec<_>>();
        steps.splice(0..0, found);
        steps.push(checked);
        steps.extend(anchored.iter().flat_map(Anchored::traced));
        steps.extend(given.iter().flat_map(|given| given.traced.clone()));
    }
    let chain = Chain {
        item: item.clone(),
        elements,
        given: given.map(Arc::new),
        files_hash: anchored.as_ref().map(|anchored| (*anchored.hash).into()),
        anchored: anchored.map(Arc::new),
        server,
        terminal,
    };
    if let Some(lock) = &lock {
        lock.check(&chain)?;
    }
    Ok(chain)
}

/// Whether an action on `item` is carried out by a run of its own: it is a directive, or it may be used and is a graph or a tool
/// that starts threads.
pub fn starts_run(library: &Library, item: &ItemRef) -> bool {
    let is_run = |chain: Chain| matches!(chain.terminal, Terminal::Graph | Terminal::Thread(_));
    item.kind == ItemKind::Directive || resolve(library, item, None).is_ok_and(is_run)
}

/// Refuses an element that asks for what this release does not do, or that is nothing to execute.
fn refuse_unread(element: &Item) -> Result<(), Error> {
    let path = element.path.clone();
    if element.metadata.tool_type.as_deref() == Some("library") {
        return Err(Error::Library { path });
    }
    let Some(unread) = element.metadata.unread.first() else {
        return Ok(());
    };
    let executor = element.metadata.executor_id.as_deref();
    let executor = executor.and_then(|id| ItemId::new(id).ok());
    // Only a file that says it is a graph may have the keys of one.
    if executor.is_some_and(|id| ItemRef::tool(id).canonical().id.as_str() == STATE_GRAPH) {
        let problem =
            "must be `graph` where the `executor_id` is that of graphs: write `tool_type: graph`";
        return Err(malformed(element, "tool_type", problem));
    }
    let Unread {
        key,
        line,
        is_known,
        near,
    } = unread.clone();
    Err(if is_known {
        Error::Unsupported { path, key, line }
    } else {
        let hint = did_you_mean(near);
        Error::UnknownKey {
            path,
            key,
            line,
            hint,
        }
    })
}

/// Refuses an element that says that it is a graph in a chain that ends elsewhere: the keys of a graph are left to its parser, which would never
/// see this one.
fn refuse_graph(elements: &[Arc<Item>], terminal: Terminal) -> Result<(), Error> {
    let is_graph = |element: &&Arc<Item>| element.metadata.tool_type.as_deref() == Some("graph");
    match elements.iter().find(is_graph) {
        Some(element) if terminal != Terminal::Graph => {
            let problem = format!(
                "is `graph`, and no graph is run by its `executor_id`: write another `tool_type`, or `executor_id: {STATE_GRAPH}`"
            );
            Err(malformed(element, "tool_type", &problem))
        }
        Some(_) | None => Ok(()),
    }
}

/// What `element` ends the chain as. Only items of the system space do: a project cannot call its own file a primitive.
fn terminal(element: &Item) -> Option<Terminal> {
    if element.space != Space::System {
        return None;
    }
    match element.item.id.as_str() {
        EXECUTE => Some(Terminal::Process),
        HTTP => Some(Terminal::Http),
        STATE_GRAPH => Some(Terminal::Graph),
        _ => {
            let server = server::way(element).map(Terminal::Mcp);
            if server.is_some() {
                return server;
            }
            let native = native::find(element.id()).map(Terminal::Native);
            native.or_else(|| ThreadTool::of(element.id()).map(Terminal::Thread))
        }
    }
}

fn note(trace: &mut Vec<Value>, library: &Library, element: &Item, referrer: Space) {
    let shadowed: Vec<_> = library
        .shadowed(element, referrer)
        .iter()
        .map(|other| json!({"path": other.path.display().to_string(), "space": other.space.as_str()}))
        .collect();
    trace.push(json!({
        "step": "resolve",
        "item_id": element.id().as_str(),
        "path": element.path.display().to_string(),
        "space": element.space.as_str(),
        "shadowed": shadowed,
    }));
    trace.push(json!({
        "step": "verify_integrity",
        "item_id": element.id().as_str(),
        "verified": true,
        "key_fp": element.signer().map(|key| key.key.fingerprint().to_string()),
        "coverage": coverage(element),
    }));
}

/// How much of the file its signature answers for.
fn coverage(element: &Item) -> &'static str {
    match &element.origin {
        rye_item::Origin::BuiltIn => "built_in",
        rye_item::Origin::Signed { coverage, .. } => match coverage {
            Coverage::Full => "full",
            Coverage::Partial => "partial",
        },
    }
}

impl Chain {
    /// The element the chain starts at.
    pub fn tool(&self) -> &Item {
        self.elements
            .first()
            .expect("a chain has at least one element")
    }

    /// All elements, the tool first.
    pub fn elements(&self) -> impl Iterator<Item = &Item> {
        self.elements.iter().map(|element| &**element)
    }

    /// The `chain` member of an envelope; the server of a tool is its last element.
    pub fn links(&self) -> Vec<Value> {
        self.elements
            .iter()
            .chain(&self.server)
            .map(|element| {
                json!({
                    "item_id": element.item.id.as_str(),
                    "space": element.space.as_str(),
                    "tool_type": element.metadata.tool_type,
                    "executor_id": element.metadata.executor_id,
                    "integrity": element.content_hash,
                })
            })
            .collect()
    }

    /// Content hashes of its elements, tool first, of what the tool is given of the configuration, of its further files, and of its server.
    pub fn content_hashes(&self) -> impl Iterator<Item = &str> {
        let elements = self.elements.iter();
        let given = self.given.iter().map(|given| given.hash.as_str());
        elements
            .map(|element| element.content_hash.as_str())
            .chain(given)
            .chain(self.files_hash.as_deref())
            .chain(
                self.server
                    .iter()
                    .map(|server| server.content_hash.as_str()),
            )
    }

    /// Gives back the memory that the files of a tool of several take: they have been planned, and are in their copy.
    pub fn let_go_of_files(&mut self) {
        self.anchored = None;
    }

    /// Whether it holds the files of a tool of several.
    #[cfg(test)]
    pub(crate) fn has_files(&self) -> bool {
        self.anchored.is_some()
    }

    /// Parameters that cannot be taken.
    fn refuse_params(&self, message: String) -> Error {
        Error::Params {
            item: self.item.clone(),
            failure: Box::new(Failure::permanent(MISFIT, message)),
        }
    }

    /// What a second execution of the tool means, if it says so.
    pub fn effect(&self) -> Option<Effect> {
        self.tool().metadata.effect
    }

    /// Most bytes of its result that a model is sent whole, if the tool says so.
    pub fn result_limit(&self) -> Option<u32> {
        self.tool().metadata.result_limit
    }

    /// The tool's `config_schema`.
    pub fn schema(&self) -> Option<&Value> {
        self.tool().metadata.config_schema.as_ref()
    }

    /// What the tool takes, compiled from its `config_schema`.
    pub fn inputs(&self) -> Result<Inputs, Error> {
        let Some(schema) = self.schema() else {
            return Ok(Inputs::default());
        };
        Inputs::new(schema).map_err(|(place, problem)| Error::Malformed {
            path: self.tool().path.clone(),
            field: format!("`config_schema{}`", place.replace('/', ".")),
            problem,
        })
    }

    /// The parameters with the defaults of `inputs` put in, if they fit it.
    pub fn fit(&self, inputs: &Inputs, params: Object) -> Result<Object, Error> {
        match inputs.resolve(params) {
            Ok((params, _undeclared)) => Ok(params),
            Err(failure) => Err(Error::Params {
                item: self.item.clone(),
                failure: Box::new(failure),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
