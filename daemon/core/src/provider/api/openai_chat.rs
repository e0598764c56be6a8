//! The api of `OpenAI` that others speak, too: `POST /chat/completions`.

mod calls;
mod decode;
mod wire;

pub(in crate::provider) use decode::Decoder;
pub(in crate::provider) use wire::Wire;
