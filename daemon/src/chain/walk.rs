//! The walk from an item to the end of its chain.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::seal::Coverage;
use rye_core::thread::ThreadTool;
use rye_item::{Item, Library, Space};
use serde_json::{Value, json};

use super::anchor::{self, Anchored};
use super::error::{Error, MOST_ELEMENTS};
use super::fields::malformed;
use super::given;
use super::lock::{self, Cover, ToolLock};
use super::rules;
use super::server;
use super::terminal::{EXECUTE, HTTP, McpTransport, STATE_GRAPH, Terminal, is_native};
use super::verified::Chain;
use crate::native;

/// Decisions made for a plan.
#[derive(Debug, Default)]
pub struct Trace {
    /// Entries in the order of the decisions.
    pub steps: Vec<Value>,
    /// Time spent on reading and verifying files.
    pub verifying: Duration,
}

/// Resolves and verifies the chain of `item`, and compares it with its lock. Adds an entry for each element to `trace`.
pub fn resolve(
    library: &Library,
    item: &ItemRef,
    trace: Option<&mut Trace>,
) -> Result<Chain, Error> {
    resolve_under(library, item, Locks::Enforced, trace)
}

/// Treatment of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locks {
    /// An existing lock must match.
    Enforced,
    /// A lock is being written. No lock is applied, and any file of the tool may be part of the new one.
    Writing,
}

pub(super) fn resolve_under(
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
        rules::refuse_unread(&element)?;
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

/// Checks the rules between the elements, reads the configuration and the files of the tool, and applies its lock.
fn complete(
    item: &ItemRef,
    elements: Vec<Arc<Item>>,
    terminal: Terminal,
    library: &Library,
    locks: Locks,
    trace: Option<&mut Trace>,
) -> Result<Chain, Error> {
    rules::refuse_graph(&elements, terminal)?;
    let checked = rules::check(&elements)?;
    let tool = elements.first().expect("a chain has at least one element");
    let since = Instant::now();
    let lock = match (locks, terminal) {
        (Locks::Writing, _) | (_, Terminal::Native(_)) => None,
        (Locks::Enforced, _) => lock::of(tool, library)?,
    };
    let given = given::look_up(tool, library)?;
    let of_process = [
        ("config_resolve", given.is_some()),
        ("output", tool.metadata.output.is_some()),
    ];
    if let Some((key, _)) = of_process.into_iter().find(|(_, is_set)| *is_set)
        && terminal != Terminal::Process
    {
        let problem = "is for tools that run as a process";
        return Err(malformed(tool, key, problem));
    }
    let cover = match (locks, &lock) {
        (Locks::Writing, _) => Cover::Everything,
        (Locks::Enforced, lock) => Cover::Lock(lock.as_ref()),
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
        Terminal::Mcp(way @ (McpTransport::Stdio | McpTransport::Http)) => {
            Some(server::of_tool(tool, way, library)?)
        }
        Terminal::Mcp(McpTransport::Any)
        | Terminal::Process
        | Terminal::Native(_)
        | Terminal::Http
        | Terminal::Graph
        | Terminal::Thread(_) => None,
    };
    if let Some(trace) = trace {
        trace.verifying += since.elapsed();
        let steps = &mut trace.steps;
        let found = lock.iter().map(ToolLock::traced).collect::<Vec<_>>();
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

/// True if an action on `item` is carried out by a run of its own: for a directive, and for a verified graph or tool
/// that starts threads.
pub fn starts_run(library: &Library, item: &ItemRef) -> bool {
    let is_run = |chain: Chain| matches!(chain.terminal, Terminal::Graph | Terminal::Thread(_));
    item.kind == ItemKind::Directive || resolve(library, item, None).is_ok_and(is_run)
}

/// Returns the end of the chain if `element` is one. Only items of the system space are, and edited copies of native
/// tools, which keep the tool and replace its description: a project cannot declare its own file a primitive.
fn terminal(element: &Item) -> Option<Terminal> {
    if element.space != Space::System {
        let is_copy = is_native(element) && element.metadata.executor_id.is_none();
        return is_copy.then(|| native_tool(element.id())).flatten();
    }
    match element.item.id.as_str() {
        EXECUTE => Some(Terminal::Process),
        HTTP => Some(Terminal::Http),
        STATE_GRAPH => Some(Terminal::Graph),
        _ => {
            let server = server::transport(element).map(Terminal::Mcp);
            if server.is_some() {
                return server;
            }
            native_tool(element.id())
        }
    }
}

/// Returns the tool of the daemon with this id.
fn native_tool(id: &ItemId) -> Option<Terminal> {
    let native = native::find(id).map(Terminal::Native);
    native.or_else(|| ThreadTool::of(id).map(Terminal::Thread))
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

/// Extent of the file that its signature covers.
fn coverage(element: &Item) -> &'static str {
    match &element.origin {
        rye_item::Origin::BuiltIn => "built_in",
        rye_item::Origin::Signed { coverage, .. } => match coverage {
            Coverage::Full => "full",
            Coverage::Partial => "partial",
        },
    }
}
