//! The API of Anthropic: `POST /v1/messages`.

mod decode;
mod wire;

pub(crate) use decode::{Decoder, assemble};
pub(crate) use wire::Wire;
