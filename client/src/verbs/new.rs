//! `new`.

use rye_client::Error;
use rye_client::exit::Exit;
use rye_core::id::ItemRef;
use rye_item::draft::{self, Form};
use serde_json::json;

use crate::cli::NewVerb;
use crate::failure::Failure;
use crate::output::Format;
use crate::session::Session;

pub(super) fn new(verb: NewVerb, session: &mut Session) -> Result<Exit, Failure> {
    let (form, wanted) = match verb {
        NewVerb::Tool(draft) => (Form::Tool, draft),
        NewVerb::Graph(draft) => (Form::Graph, draft),
        NewVerb::Directive(draft) => (Form::Directive, draft),
    };
    let root = if wanted.user {
        let user = session.environment.user_root();
        user.ok_or(Error::NoUserSpace)?.to_owned()
    } else {
        session.project()?
    };
    let path = draft::write(&root, form, &wanted.id)?;
    // Tests are searched only among the tools of a project.
    let tests = if form == Form::Tool && !wanted.user {
        draft::write_tests(&root, &wanted.id)?
    } else {
        None
    };
    let item = ItemRef {
        kind: form.kind(),
        id: wanted.id,
    };
    let output = &mut session.output;
    match output.format() {
        Format::Json => {
            let written = json!({"item": item.to_string(), "path": path, "tests": tests});
            output.json(&written)?;
        }
        Format::Text => {
            for path in [Some(&path), tests.as_ref()].into_iter().flatten() {
                output.line(&format!("wrote {}", path.display()))?;
            }
        }
    }
    let (check, run) = match form {
        Form::Tool => (String::new(), format!("ryectl run {} -i name=Ada", item.id)),
        Form::Graph => (
            format!("`ryectl graph validate {}` checks it, ", item.id),
            format!("ryectl run {}", item.id),
        ),
        Form::Directive => (
            format!("`ryectl thread validate {}` checks it, ", item.id),
            format!("ryectl thread run {} -i path=README.md", item.id),
        ),
    };
    output.note(&format!(
        "it is not signed yet: {check}`ryectl sign {item}` signs it, then `{run}` runs it"
    ));
    Ok(Exit::Done)
}
