//! The gRPC API of the daemon.
//!
//! **Owns** the check of callers (`caller`), decoding, encoding and the mapping of errors to statuses (`status`). No
//! other code names both wire types and the model. **Never** decides anything about a run. It gets runs only from
//! [`Access`], which checks that the caller may see or change them. **Order.** Every answer waits until what it shows
//! is durable; the journal ensures that.

mod authority;
mod listener;
mod live;
mod models;
mod status;
mod texts;

mod caller;
mod encode;
mod logs;
mod streams;

mod decode;
mod node;
mod objects;
mod stream;

mod items;
mod visible;

mod budgets;
mod processes;
mod runs;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rye_proto::v1::{
    budgets_server, items_server, node_server, objects_server, processes_server, runs_server,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tower::util::{MapRequestLayer, MapResponseLayer};

use self::authority::Lenient;
use self::budgets::BudgetsService;
use self::caller::{Caller, ConnectionLimits, Peer};
use self::items::ItemsService;
use self::node::{Facts, NodeService};
use self::objects::ObjectsService;
use self::processes::ProcessesService;
use self::runs::RunsService;
use self::streams::Streams;
use crate::access::Access;
use crate::callbacks::Callbacks;
use rye_process::most_open_files;

pub use self::listener::{Listener, Listeners};
pub use self::node::{Facts as NodeFacts, tool_environment};

/// Accepted connections that wait for the server.
const ACCEPT_QUEUE: usize = 64;
/// Concurrent calls of one connection; further calls of that client wait.
const MOST_CALLS: u32 = 2048;

/// Serves on `listeners` until `stop` is cancelled, then lets calls in flight end for up to `grace`. `max_message` is
/// in bytes.
pub async fn serve(
    listeners: Listeners,
    access: Access,
    facts: Arc<Facts>,
    max_message: usize,
    stop: CancellationToken,
    grace: Duration,
) -> Result<(), tonic::transport::Error> {
    let callbacks = access.callbacks();
    let guard = caller::Guard::new(facts.uid, facts.stopping.clone(), callbacks);
    let (health, health_service) = tonic_health::server::health_reporter();
    health
        .set_serving::<runs_server::RunsServer<RunsService>>()
        .await;
    health
        .set_serving::<items_server::ItemsServer<ItemsService>>()
        .await;
    health
        .set_serving::<objects_server::ObjectsServer<ObjectsService>>()
        .await;
    health
        .set_serving::<budgets_server::BudgetsServer<BudgetsService>>()
        .await;
    health
        .set_serving::<processes_server::ProcessesServer<ProcessesService>>()
        .await;
    health
        .set_serving::<node_server::NodeServer<NodeService>>()
        .await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(rye_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Most clients use the older version of the reflection service.
    let older = reflection().build_v1alpha();
    let older = older.expect("the committed descriptors are valid");
    let reflection = reflection().build_v1();
    let reflection = reflection.expect("the committed descriptors are valid");

    let streams = Streams::new(most_open_files());
    let runs = RunsService::new(
        access.clone(),
        Arc::clone(&facts.exports),
        streams.clone(),
        &facts.node_fingerprint,
    );
    let runs = runs_server::RunsServer::new(runs).max_decoding_message_size(max_message);
    let items = items_server::ItemsServer::new(ItemsService::new(access.clone()))
        .max_decoding_message_size(max_message);
    let objects = objects_server::ObjectsServer::new(ObjectsService::new(access.clone()));
    let budgets = budgets_server::BudgetsServer::new(BudgetsService::new(access.clone()));
    let processes = ProcessesService::new(access.clone(), streams);
    let processes =
        processes_server::ProcessesServer::new(processes).max_decoding_message_size(max_message);
    let node = node_server::NodeServer::new(NodeService::new(access, Arc::clone(&facts)));

    let (connections, accepted) = tokio::sync::mpsc::channel(ACCEPT_QUEUE);
    let mut accepting = rye_host::task::Scope::new();
    let places = ConnectionLimits::new(guard.clone(), most_open_files());
    accepting.spawn("accept", |token| {
        accept(listeners, facts, places, connections, token)
    });
    let server = Server::builder()
        .max_concurrent_streams(MOST_CALLS)
        .layer(MapRequestLayer::new(caller::note_method))
        .layer(tonic::service::InterceptorLayer::new(guard))
        .layer(MapResponseLayer::new(texts::until_sent))
        .add_service(health_service)
        .add_service(reflection)
        .add_service(older)
        .add_service(runs)
        .add_service(items)
        .add_service(objects)
        .add_service(budgets)
        .add_service(processes)
        .add_service(node)
        .serve_with_incoming_shutdown(
            ReceiverStream::new(accepted),
            stop.clone().cancelled_owned(),
        );
    tokio::pin!(server);
    let end = tokio::select! {
        end = &mut server => end,
        () = async { stop.cancelled().await; tokio::time::sleep(grace).await } => Ok(()),
    };
    accepting.close(Duration::from_millis(100)).await;
    end
}

/// Refuses every call with the reason `stopping` for as long as it is polled. Called after [`serve`], once its calls
/// have ended.
pub async fn refuse_calls(facts: Arc<Facts>) {
    let callbacks = Callbacks::new(PathBuf::new(), None);
    let guard = caller::Guard::new(facts.uid, facts.stopping.clone(), callbacks);
    let (connections, accepted) = tokio::sync::mpsc::channel(ACCEPT_QUEUE);
    let places = ConnectionLimits::new(guard.clone(), most_open_files());
    let never = CancellationToken::new();
    let listeners = facts.listener.clone();
    let accepting = accept(listeners, facts, places, connections, never);
    // tonic needs a service; the guard refuses every call first.
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .layer(tonic::service::InterceptorLayer::new(guard))
        .add_service(health)
        .serve_with_incoming(ReceiverStream::new(accepted));
    let ((), ended) = tokio::join!(accepting, server);
    drop(ended);
}

/// Accepts connections and identifies each peer before a byte is read from it.
async fn accept(
    mut listeners: Listeners,
    facts: Arc<Facts>,
    places: ConnectionLimits,
    connections: tokio::sync::mpsc::Sender<std::io::Result<Lenient<Peer>>>,
    stop: CancellationToken,
) {
    loop {
        let listener = Arc::clone(&listeners.borrow_and_update());
        let stream = tokio::select! {
            accepted = listener.socket.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    // Probably out of descriptors: wait until some are free.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            Ok(()) = listeners.changed() => continue,
            () = stop.cancelled() => return,
        };
        let cgroups = facts.cgroups.as_deref().ok();
        let caller = Caller::of(&stream, facts.parent, cgroups);
        if let Some(peer) = places.take(stream, caller)
            && connections.send(Ok(Lenient::new(peer))).await.is_err()
        {
            return;
        }
    }
}
