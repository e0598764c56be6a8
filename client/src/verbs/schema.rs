//! `schema`.

use rye_client::exit::Exit;
use rye_core::definition;
use rye_item::metadata;

use crate::cli::FileKind;
use crate::failure::Failure;
use crate::session::Session;
use crate::testing;

pub(super) fn schema(kind: FileKind, session: &mut Session) -> Result<Exit, Failure> {
    let schema = match kind {
        FileKind::Graph => definition::schema(),
        FileKind::Tool => metadata::tool_schema(),
        FileKind::Test => testing::schema(),
    };
    session.output.json(&schema)?;
    Ok(Exit::Done)
}
