//! The api of `OpenAI` that others speak, too: `POST /chat/completions`.

mod calls;
mod decode;
mod wire;

pub(crate) use decode::Decoder;
pub(crate) use wire::Wire;
