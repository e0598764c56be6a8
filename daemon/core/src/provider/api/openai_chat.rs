//! The API of `OpenAI` that many other providers offer too: `POST /chat/completions`.

mod calls;
mod decode;
mod wire;

pub(crate) use decode::Decoder;
pub(crate) use wire::Wire;
