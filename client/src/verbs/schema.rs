//! `schema`.

use rye_client::exit::Exit;
use rye_core::definition;
use rye_item::metadata;

use super::{Session, test_schema};
use crate::cli::FileKind;
use crate::failure::Failure;

pub(super) fn schema(kind: FileKind, session: &mut Session) -> Result<Exit, Failure> {
    let schema = match kind {
        FileKind::Graph => definition::schema(),
        FileKind::Tool => metadata::tool_schema(),
        FileKind::Test => test_schema(),
    };
    session.output.json(&schema)?;
    Ok(Exit::Done)
}
