use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use rye_core::id::ItemId;
use rye_core::policy::Policy;
use rye_core::provider::failure::{Charge, Class};
use rye_core::provider::stream::StreamSignal;
use rye_core::provider::{Agent, ModelRequest, Provider, resolve};
use rye_item::library::Snapshot;
use serde_json::{Value, json};

use super::*;
use rye_host::clock::manual::ManualClock;

mod accesses;
mod calls;
mod failures;

const BODY: &str = "{\"a\":\"what is said\"}";

/// A model of the provider `p` of `owner`, whose file has these keys.
fn model_of(owner: Owner, keys: &str) -> ResolvedModel {
    let mut lines = vec![
        "version: \"1.0.0\"",
        "category: agent/providers",
        "name: p",
        "api: anthropic",
        "path: /v1/messages",
        "auth: [{header: x-api-key, secret: KEY}]",
        "models: [{id: m, window: 200000, max_output: 64000, prices: free}]",
    ];
    lines.retain(|line| {
        let key = line.split(':').next();
        keys.lines().all(|given| given.split(':').next() != key)
    });
    let text = format!("{}\n{keys}", lines.join("\n"));
    let id = ItemId::new("agent/providers/p").unwrap();
    let (provider, _) = Provider::parse(&text, &id, owner).unwrap();
    let providers = BTreeMap::from([("p".to_owned(), provider)]);
    let (agent, _) = Agent::from_config(&json!({})).unwrap();
    let asked = ModelRequest {
        model: Some("m"),
        ..ModelRequest::default()
    };
    resolve(&asked, &agent, &providers, &|_, _| true).unwrap().0
}

/// A model of the user that answers at `address`.
fn model(address: SocketAddr) -> ResolvedModel {
    model_of(Owner::User, &format!("base_url: http://{address}"))
}

fn providers_with(variables: &[(&str, &str)]) -> (Arc<ManualClock>, Providers) {
    providers_reaching(Networks::Private, variables)
}

fn providers_reaching(
    networks: Networks,
    variables: &[(&str, &str)],
) -> (Arc<ManualClock>, Providers) {
    let clock = Arc::new(ManualClock::default());
    let variables = variables.iter();
    let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let environment = Environment::of(variables);
    let timer: Arc<dyn Timer> = Arc::<ManualClock>::clone(&clock);
    let providers = Providers::new(&environment, &[], networks, timer);
    (clock, providers)
}

fn providers() -> (Arc<ManualClock>, Providers) {
    providers_with(&[("KEY", "k3y")])
}

/// The shipped classification of errors.
fn errors() -> Arc<ErrorRows> {
    let policy = serde_json::from_str(&Snapshot::shipped().policy).unwrap();
    let policy = Policy::from_config(&policy).unwrap();
    ErrorRows::read(policy.provider_errors()).unwrap().into()
}

/// Waits for the permit of a call.
async fn enter(
    providers: &Providers,
    model: &ResolvedModel,
    project: &ProjectEnv,
) -> Result<CallPermit, NoAccess> {
    let mut queued = providers.join(model, project).await?;
    loop {
        match queued.progress().await {
            Admission::Granted(permit) => return Ok(permit),
            Admission::Queued(again, _) => queued = again,
        }
    }
}

async fn call(providers: &Providers, model: &ResolvedModel) -> Call {
    let place = enter(providers, model, &ProjectEnv::default()).await;
    place.unwrap().call(model, &errors(), 1, BODY.to_owned())
}

/// All progress of a call, up to its end.
async fn all(call: &mut Call) -> Vec<CallProgress> {
    let mut all = Vec::new();
    while let Some(heard) = call.next().await {
        all.push(heard);
    }
    all
}

/// Failure of a call.
async fn failure(call: &mut Call) -> Failure {
    match all(call).await.pop() {
        Some(CallProgress::Failed(failure)) => *failure,
        other => panic!("{other:?}"),
    }
}

/// Events encoded as a body.
fn events(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"]);
    events.iter().map(event).collect()
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 10, "output_tokens": 1}}})
}

/// A message `Hello`, event by event.
fn hello() -> Vec<Value> {
    vec![
        start(),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ]
}
