//! Tools offered to a model by name: those that the permissions of its directive name, and those in the folders they
//! name.
//!
//! **Owns** the way from a name to a verified tool. **Never** decides which tools are offered
//! ([`rye_core::thread::tool_offer`]), and never reads a tool that a layer of the thread does not allow. **Failure.** A tool
//! that cannot be used is not offered by name, and a warning says so. The thread begins nevertheless; a call of that
//! tool is refused.

use std::collections::BTreeSet;

use rye_core::callers::Caller;
use rye_core::capability::{Capability, Layer, Primary, check};
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::thread::{ItemTool, NamedTools, may_be_offered};
use rye_item::Library;

use crate::chain;

/// Maximum number of items in a folder that are offered by name. Of a larger folder, none is offered by name.
const MOST_OF_A_FOLDER: usize = 100;

/// Items and folders that are not offered by name, each with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OmittedTools(pub Vec<(String, String)>);

impl OmittedTools {
    pub(super) fn add(&mut self, what: &str, why: &str) {
        self.0.push((what.to_owned(), why.to_owned()));
    }

    /// Returns one warning for all of them, or `None` if there are none.
    pub fn warning(&self) -> Option<String> {
        let text = "not offered by name, but by `rye_execute` as far as they may be carried out";
        let items = self.0.iter().map(|(what, why)| format!("`{what}` ({why})"));
        let items: Vec<String> = items.collect();
        (!items.is_empty()).then(|| format!("{text}: {}", items.join(", ")))
    }
}

/// Returns the verified tools that `permissions` name and `layers` allow, as far as they are found before `is_late`.
pub(super) fn find(
    library: &Library,
    permissions: &[String],
    layers: &[Layer],
    left_out: &mut OmittedTools,
    is_late: &dyn Fn() -> bool,
) -> Vec<ItemTool> {
    let wanted = NamedTools::of(permissions);
    let mut found = BTreeSet::new();
    for folder in wanted.folders.iter().take_while(|_| !is_late()) {
        found.extend(below(library, folder, left_out));
    }
    let found = found.difference(&wanted.items).map(|item| (item, false));
    let all = wanted.items.iter().map(|item| (item, true)).chain(found);
    let is_allowed =
        |item: &ItemRef| check(layers, &Capability::of(Primary::Execute, item)).is_ok();
    let tools = all.filter(|(item, _)| is_allowed(item));
    tools
        .take_while(|_| !is_late())
        .filter_map(
            |(item, is_named)| match describe(library, item, is_named, left_out) {
                Ok(tool) => tool,
                Err(error) => {
                    left_out.add(item.id.as_str(), reason(error.kind()));
                    None
                }
            },
        )
        .collect()
}

/// Tools in `folder`; none if there are more than [`MOST_OF_A_FOLDER`].
fn below(library: &Library, folder: &ItemId, left_out: &mut OmittedTools) -> Vec<ItemRef> {
    let found = library.below(ItemKind::Tool, folder, MOST_OF_A_FOLDER);
    let ids = match found {
        Ok(Some(ids)) if ids.is_empty() => {
            left_out.add(&format!("{folder}/*"), reason(ErrorKind::NotFound));
            return Vec::new();
        }
        Ok(Some(ids)) => ids,
        Ok(None) => {
            let why = format!("it holds more than {MOST_OF_A_FOLDER} items");
            left_out.add(&format!("{folder}/*"), &why);
            return Vec::new();
        }
        Err(error) => {
            left_out.add(&format!("{folder}/*"), reason(error.kind()));
            return Vec::new();
        }
    };
    let items = ids.into_iter().map(|id| ItemRef::tool(id).canonical());
    items.filter(may_be_offered).collect()
}

/// Returns the description of the verified `item`, or `None` if it is a part of other tools, or is not meant for models.
fn describe(
    library: &Library,
    item: &ItemRef,
    is_named: bool,
    left_out: &mut OmittedTools,
) -> Result<Option<ItemTool>, chain::Error> {
    let chain = chain::resolve(library, item, None)?;
    let metadata = &chain.tool().metadata;
    let is_part = matches!(metadata.tool_type.as_deref(), Some("runtime" | "primitive"));
    if !metadata.callers.accept(Caller::Model) {
        if is_named {
            left_out.add(item.id.as_str(), "its `callers` have no `model`");
        }
        return Ok(None);
    }
    Ok((!is_part).then(|| ItemTool {
        item: item.clone(),
        is_named,
        description: metadata.description.clone(),
        schema: metadata.config_schema.clone(),
    }))
}

const fn reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "it is not there",
        ErrorKind::Denied => "its signature is refused: `ryectl verify` says why",
        ErrorKind::Invalid
        | ErrorKind::Precondition
        | ErrorKind::Unavailable
        | ErrorKind::Exists
        | ErrorKind::Exhausted
        | ErrorKind::DataLoss
        | ErrorKind::Bug => "it cannot be read",
    }
}
