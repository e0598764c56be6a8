//! The api of Anthropic: `POST /v1/messages`.

mod decode;
mod wire;

pub(in crate::provider) use decode::{Decoder, assemble};
pub(in crate::provider) use wire::Wire;
