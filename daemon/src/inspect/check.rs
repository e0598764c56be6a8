//! Check of a graph against the items of its project.
//!
//! **Owns** the checks that need more than the graph file: the items it names exist, may be used, and accept the given
//! parameters. **Never** runs anything. A file that must not be used is checked as text, because its author needs the
//! findings before signing it.

use std::collections::BTreeSet;

use rye_core::capability::{Capability, Layer, Primary};
use rye_core::definition::{self, About, Around, Inputs, Remark, Severity, Validation};
use rye_core::error::{ErrorKind, Kinded as _, with_sources};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::model::Object;
use rye_core::thread::{ThreadOrder, ThreadTool};
use rye_core::yaml;
use rye_item::library::{self, Draft};
use rye_item::{Library, Space};

use super::{Checked, Error, configuration, graph_only, head};
use crate::chain::{self, STATE_GRAPH, Terminal};
use crate::directives;
use crate::port;
use crate::projects::Projects;

/// Maximum number of items below a graph whose permissions are checked.
const MOST_BELOW: usize = 200;

/// Checks `item` and the items it uses. Blocks.
pub(super) fn check(
    library: &Library,
    projects: &Projects,
    item: ItemRef,
    is_strict: bool,
    is_late: &dyn Fn() -> bool,
) -> Result<Checked, Error> {
    let layer = permissions(library, &item);
    let look_up = |used: &ItemRef, params: &Object| {
        let mut remarks = remarks(library, &item, used, params);
        if let Some(layer) = &layer {
            remarks.extend(below(library, layer, used, is_late));
            remarks.extend(not_started(layer, used, params));
        }
        remarks
    };
    let is_run = |used: &ItemRef| chain::starts_run(library, used);
    let around = Around {
        look_up: &look_up,
        is_run: &is_run,
        is_strict,
        is_late,
    };
    let refusal = match chain::resolve(library, &item, None) {
        Ok(chain) => {
            graph_only(&item, &chain, "checked")?;
            let mut report = definition::validate_among(&chain.tool().text, &around);
            configured(library, projects, &mut report);
            return Ok(Checked {
                path: chain.tool().path.display().to_string(),
                report,
            });
        }
        Err(refusal) => refusal,
    };
    let Some(draft) = draft(library, &item, &refusal) else {
        return Err(Error::Unseen {
            item,
            wanted: "checked",
            source: Box::new(refusal),
        });
    };
    let mut report = definition::validate_among(&draft.text, &around);
    report.add(head::check(library, &item, &draft.text));
    put_refusal(&mut report, &refusal);
    configured(library, projects, &mut report);
    Ok(Checked {
        path: draft.path.display().to_string(),
        report,
    })
}

/// Adds findings about the configuration of runs.
fn configured(library: &Library, projects: &Projects, report: &mut Validation) {
    let mut found = Vec::new();
    let _policy = configuration::policy(library, projects, &mut found);
    report.add(found);
}

/// Adds the reason why the file must not be used in its current state.
pub(super) fn put_refusal(report: &mut Validation, refusal: &chain::Error) {
    let (severity, code) = severity_of(refusal);
    // Errors found in the file are more specific than the refusal.
    if severity == Severity::Warning || report.is_sound() {
        report.put_first(severity, code, with_sources(refusal));
    }
}

/// Text of a graph that `refusal` prevents from running; `None` if it cannot be read or is not a graph.
fn draft(library: &Library, item: &ItemRef, refusal: &chain::Error) -> Option<Draft> {
    let draft = text_of(library, item, refusal)?;
    (draft.extension == "yaml" && is_graph(&draft.text)).then_some(draft)
}

/// Text of an item that was refused with `refusal`, if it can be read.
pub(super) fn text_of(library: &Library, item: &ItemRef, refusal: &chain::Error) -> Option<Draft> {
    if let chain::Error::Item(error) = refusal
        && let library::Error::NotFound { item: missing, .. }
        | library::Error::Unreadable { item: missing, .. } = &**error
        && missing == item
    {
        return None;
    }
    library.draft(item).ok()
}

/// True if an unverified text seems to be a graph. This includes a text that declares neither type nor executor, and
/// one that does not parse.
fn is_graph(text: &str) -> bool {
    let Ok(document) = yaml::parse(text) else {
        return true;
    };
    let text = |key: &str| document.value.get(key)?.as_str();
    let executor = text("executor_id");
    let is_of_graphs = |id: &str| {
        ItemId::new(id).is_ok_and(|id| ItemRef::tool(id).canonical().id.as_str() == STATE_GRAPH)
    };
    text("tool_type").map_or(executor.is_none(), |kind| kind == "graph")
        || executor.is_some_and(is_of_graphs)
        || document.value.pointer("/config/nodes").is_some()
}

/// Severity of `refusal` for an author: a missing signature can be added later, all else must be fixed.
pub(super) fn severity_of(refusal: &chain::Error) -> (Severity, &'static str) {
    if let chain::Error::Item(error) = refusal
        && let library::Error::Unsigned { .. } = **error
    {
        return (Severity::Warning, "unsigned");
    }
    match refusal.kind() {
        ErrorKind::Denied => (Severity::Warning, "not_verified"),
        ErrorKind::Invalid
        | ErrorKind::NotFound
        | ErrorKind::Precondition
        | ErrorKind::Unavailable
        | ErrorKind::Exists
        | ErrorKind::Exhausted
        | ErrorKind::DataLoss
        | ErrorKind::Bug => (Severity::Error, "cannot_run"),
    }
}

/// Declared permissions of the graph `item`, if its text can be parsed.
fn permissions(library: &Library, item: &ItemRef) -> Option<Layer> {
    let draft = library.draft(item).ok()?;
    let (graph, _) = definition::parse(&draft.text).ok()?;
    Some(Layer {
        source: String::new(),
        patterns: graph.permissions?,
    })
}

/// Permissions missing in `layer` for the graph `used` and the graphs it uses: child runs may do no more than their
/// parent.
fn below(
    library: &Library,
    layer: &Layer,
    used: &ItemRef,
    is_late: &dyn Fn() -> bool,
) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut seen = BTreeSet::new();
    let mut left = vec![used.clone()];
    while let Some(item) = left.pop() {
        if is_late() || seen.len() >= MOST_BELOW || !seen.insert(item.clone()) {
            continue;
        }
        let Ok(chain) = chain::resolve(library, &item, None) else {
            continue;
        };
        if chain.terminal != Terminal::Graph {
            continue;
        }
        let Ok((graph, _)) = definition::parse(&chain.tool().text) else {
            continue;
        };
        for action in graph.actions() {
            left.extend(action.named().filter(|item| item.kind == ItemKind::Tool));
            let Some(needed) = action.needed().filter(|needed| !layer.allows(needed)) else {
                continue;
            };
            let message = format!(
                "`{}` does `{needed}`, which `permissions` do not cover; add it to them",
                item.id
            );
            let remark = about_item("not_permitted", message);
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
    }
    remarks
}

/// Remark that `layer` does not permit the directive that the tool `used` starts with these parameters.
fn not_started(layer: &Layer, used: &ItemRef, params: &Object) -> Option<Remark> {
    // A directive that a template names is not known yet.
    let order = ThreadOrder::of_tool(ThreadTool::of(&used.id)?, params.clone()).ok()?;
    let needed = Capability::of(Primary::Execute, &order.directive);
    (!layer.allows(&needed)).then(|| {
        let message = format!(
            "`{}` starts `{}`, and `permissions` do not cover `{needed}`; add it to them",
            used.id, order.directive
        );
        about_item("not_permitted", message)
    })
}

/// Remarks for the author of `graph` about its use of the item `used` with these parameters.
fn remarks(library: &Library, graph: &ItemRef, used: &ItemRef, params: &Object) -> Vec<Remark> {
    if used == graph {
        let message = "the graph calls itself; only the limit of depth ends that, with an error, unless a branch does";
        return vec![about_item("self_call", message.to_owned())];
    }
    if used.kind == ItemKind::Directive {
        return of_directive(library, used, params);
    }
    let chain = match chain::resolve(library, used, None) {
        Ok(chain) => chain,
        Err(refusal) => return vec![refused(library, used, refusal)],
    };
    let mut params = params.clone();
    if chain.terminal == Terminal::Graph {
        params.retain(|key, _| !port::is_control(key));
    }
    if let Err(error) = chain::check_settings(&chain) {
        return vec![about_item("item_refused", with_sources(&error))];
    }
    match chain.inputs() {
        Ok(inputs) => misfits(used, &inputs, &params),
        Err(error) => vec![about_item("item_refused", with_sources(&error))],
    }
}

/// Mismatches between these parameters and the `inputs` of the item `used`.
fn misfits(used: &ItemRef, inputs: &Inputs, params: &Object) -> Vec<Remark> {
    let misfits = inputs.misfits(params).into_iter();
    misfits
        .map(|(about, problem)| Remark {
            code: "bad_params",
            message: format!("`{}` refuses these `params`: {problem}", used.id),
            about,
        })
        .collect()
}

/// Remarks for the author of a graph about its use of the directive `used` with these parameters.
fn of_directive(library: &Library, used: &ItemRef, params: &Object) -> Vec<Remark> {
    let file = match library.resolve(used, Space::Project) {
        Ok(file) => file,
        Err(error) => {
            let refusal = chain::Error::Item(Box::new(error));
            return vec![refused(library, used, refusal)];
        }
    };
    let directive = match directives::read(&file, &mut Vec::new()) {
        Ok(directive) => directive,
        Err(error) => return vec![about_item("item_refused", with_sources(&error))],
    };
    // The thread options, and so the inputs, depend on the value of a template that is not known yet.
    let Ok(order) = ThreadOrder::of_action(used.clone(), params.clone()) else {
        return Vec::new();
    };
    let inputs = directive.inputs.as_ref().map(Inputs::new);
    match inputs {
        Some(Ok(inputs)) => misfits(used, &inputs, &order.inputs),
        Some(Err(_)) | None => Vec::new(),
    }
}

/// Remark about an item that will not run.
fn refused(library: &Library, used: &ItemRef, refusal: chain::Error) -> Remark {
    let is_missing = matches!(&refusal, chain::Error::Item(error)
        if matches!(&**error, library::Error::NotFound { item, .. } if item == used));
    let code = if is_missing {
        "unknown_item"
    } else {
        "item_refused"
    };
    about_item(code, with_sources(&refusal.suggesting(library)))
}

fn about_item(code: &'static str, message: String) -> Remark {
    Remark {
        code,
        message,
        about: About::Item,
    }
}
