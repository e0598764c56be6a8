//! `man`.

use std::fs;
use std::io;
use std::path::Path;

use rye_client::exit::Exit;
use serde_json::json;

use crate::cli;
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::Format;
use crate::session::Session;

/// Writes a page for `ryectl` and one for each verb, for section 1 of `man`.
pub(super) fn man(directory: &Path, session: &mut Session) -> Result<Exit, Failure> {
    write(directory).map_err(|error| {
        let message = format!("cannot write the manual pages to `{}`", directory.display());
        LocalError::because(Exit::Precondition, message, error)
    })?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&json!({"directory": directory}))?,
        Format::Text => output.line(&format!(
            "wrote {} and a page for each verb",
            directory.join("ryectl.1").display()
        ))?,
    }
    Ok(Exit::Done)
}

fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(cli::command(), directory)
}
