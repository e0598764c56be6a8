use super::Session;
use crate::cli::KeyVerb;
use crate::failure::Failure;
use rye_client::exit::Exit;
pub(super) fn key(_v: KeyVerb, _s: &mut Session) -> Result<Exit, Failure> {
    Ok(Exit::Done)
}
