//! The run that a request names.

use tonic::{Request, Status};

use super::decode;
use crate::access::{Access, Visible};

/// Returns the run that `request` names, if its caller may see it.
pub(super) async fn visible<T>(
    access: &Access,
    request: Request<T>,
    named: impl FnOnce(T) -> String,
) -> Result<Visible, Status> {
    let (caller, request) = decode::open(request)?;
    let id = decode::run_id(&named(request))?;
    Ok(access.visible(&caller, &id).await?)
}
