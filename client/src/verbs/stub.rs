//! `stub`.

use rye_client::exit::Exit;
use rye_proto::{convert, v1};
use serde_json::json;

use super::items;
use crate::cli::ItemName;
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::Format;
use crate::python_stub::{self, StubItem};
use crate::session::Session;

/// Prints a Python module with a function for each of the items.
pub(super) async fn python(names: &[ItemName], session: &mut Session) -> Result<Exit, Failure> {
    let mut stubs = Vec::with_capacity(names.len());
    for name in names {
        let described = items::describe(name, session).await?;
        stubs.push(stub(described)?);
    }
    let module = python_stub::module(&stubs);
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&json!({"module": module}))?,
        Format::Text => output.line(module.trim_end())?,
    }
    Ok(Exit::Done)
}

/// Checks that the item can be called, and that its schema may be trusted.
fn stub(described: v1::DescribeResponse) -> Result<StubItem, Failure> {
    let item = described.item.unwrap_or_default();
    let reference = item.item.unwrap_or_default();
    let name = reference.name();
    if !item.problem.is_empty() {
        let message = format!("`{name}` is refused: {}", item.problem);
        return Err(LocalError::of(Exit::Refused, message).into());
    }
    let name = match reference.r#type() {
        v1::ItemType::Tool => reference.id.clone(),
        v1::ItemType::Directive => name,
        v1::ItemType::Unspecified | v1::ItemType::Knowledge | v1::ItemType::Config => {
            let message = format!("`{name}` cannot be called: name a tool, a graph or a directive");
            return Err(LocalError::usage(message).into());
        }
    };
    let schema = convert::document("inputs_schema_json", &described.inputs_schema_json)?;
    Ok(StubItem {
        name,
        id: reference.id,
        description: item.description,
        schema,
    })
}
