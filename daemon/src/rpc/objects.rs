//! The service `Objects`: stored objects and cached results of a project.

use rye_core::error::{ErrorKind, Kinded as _};
use rye_proto::v1;
use rye_proto::v1::objects_server::Objects;
use tonic::{Request, Response, Status};

use super::encode;
use super::status::{invalid, of_journal};
use crate::access::Access;
use crate::cache::{self, Store, Which};

#[derive(Debug)]
pub(super) struct ObjectsService {
    access: Access,
    store: Store,
}

impl ObjectsService {
    pub(super) fn new(access: Access) -> Self {
        let store = Store::new(access.signer());
        Self { access, store }
    }
}

#[tonic::async_trait]
impl Objects for ObjectsService {
    async fn get(
        &self,
        request: Request<v1::GetObjectRequest>,
    ) -> Result<Response<v1::GetObjectResponse>, Status> {
        let request = request.into_inner();
        let project = self.access.project(request.project.as_ref()).await?;
        let files = project.files.to_string_lossy();
        let object_json = match self
            .store
            .object(project.file_pool(), &files, &request.hash)
            .await
        {
            Ok(object) => object.to_string(),
            Err(missing) if missing.kind() == ErrorKind::NotFound => {
                // Transcripts in the project refer to long payloads, which the journal stores.
                let digest = request.hash.parse().map_err(cache::Error::from)?;
                let payload = self.access.long_payload(digest).await.map_err(of_journal)?;
                payload.ok_or(missing)?
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Response::new(v1::GetObjectResponse { object_json }))
    }

    async fn list_cache(
        &self,
        request: Request<v1::ListCacheRequest>,
    ) -> Result<Response<v1::ListCacheResponse>, Status> {
        let directory = request.into_inner().project;
        let project = self.access.project(directory.as_ref()).await?;
        let files = project.files.to_string_lossy();
        let entries = self.store.list(project.file_pool(), &files).await?;
        Ok(Response::new(v1::ListCacheResponse {
            entries: entries.into_iter().map(encode::cache_entry).collect(),
        }))
    }

    async fn drop_cache(
        &self,
        request: Request<v1::DropCacheRequest>,
    ) -> Result<Response<v1::DropCacheResponse>, Status> {
        let request = request.into_inner();
        if request.all != request.keys.is_empty() {
            return Err(invalid("keys", "name entries, or ask for all"));
        }
        let project = self.access.project(request.project.as_ref()).await?;
        let files = project.files.to_string_lossy();
        let which: Vec<Which> = if request.all {
            vec![Which::All]
        } else {
            request.keys.into_iter().map(Which::Key).collect()
        };
        let mut dropped = 0;
        for which in which {
            dropped += self.store.drop(project.file_pool(), &files, which).await?;
        }
        Ok(Response::new(v1::DropCacheResponse {
            dropped: encode::number(dropped),
        }))
    }
}
