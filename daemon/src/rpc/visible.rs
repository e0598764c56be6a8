//! The run that a request is about.

use tonic::{Request, Status};

use super::decode;
use crate::access::{Access, Visible};

/// The run that a request names, if the caller sees it.
pub(super) async fn visible<T>(
    access: &Access,
    request: Request<T>,
    named: impl FnOnce(T) -> String,
) -> Result<Visible, Status> {
    let (caller, request) = decode::open(request)?;
    let id = decode::run_id(&named(request))?;
    Ok(access.visible(&caller, &id).await?)
}
