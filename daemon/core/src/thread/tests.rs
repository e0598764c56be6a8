use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::capability::Layer;
use crate::conversation::{Block, Conversation, Message, Stop};
use crate::directive::{self, Lineage};
use crate::id::{Epoch, ItemId, ItemRef, RunId};
use crate::ledger::CallNo;
use crate::model::{Budget, Object, RunKind, Spec, Status, Task};
use crate::money::Usd;
use crate::policy::OnExceed;
use crate::provider::stream::{
    Arguments, BlockPart as StreamPart, Call as StreamCall, Ended, Refused,
};
use crate::provider::{
    Agent, ModelRequest as Wanted, Owner, Provider, Received, ResolvedModel, Tokens, resolve,
};

mod charged;
mod children;
mod continued;
mod effects;
mod limits;
mod loops;
mod offer;
mod raised;
mod random;
mod said;
mod stage;

use stage::{Stage, message_signals};

/// The directive of the tests: `outputs` as elements, or none.
fn directive(permissions: &str, outputs: &str) -> String {
    let outputs = match outputs {
        "" => String::new(),
        elements => format!("<outputs>{elements}</outputs>"),
    };
    format!(
        "```xml\n<directive name=\"d\" version=\"1.0.0\">\n<metadata><description>D</description>\
         <author>me</author><category>t</category><permissions>{permissions}</permissions></metadata>\n\
         {outputs}</directive>\n```\nDo it.\n"
    )
}

const PROVIDER: &str = "version: \"1.0.0\"
category: agent/providers
name: p
api: anthropic
base_url: https://api.example.com
path: /v1/messages
auth: [{header: x-api-key, secret: KEY}]
models:
  - id: m
    window: 200000
    max_output: 4096
    prices: [{until_prompt: null, input: \"1\", output: \"1\"}]
";

fn model() -> ResolvedModel {
    let id = ItemId::new("agent/providers/p").unwrap();
    let (provider, _) = Provider::parse(PROVIDER, &id, Owner::User).unwrap();
    let providers = BTreeMap::from([("p".to_owned(), provider)]);
    let agent = Agent::from_config(&json!({})).unwrap().0;
    let wanted = Wanted {
        model: Some("m"),
        ..Wanted::default()
    };
    resolve(&wanted, &agent, &providers, &|_, _| true)
        .unwrap()
        .0
}

/// The terms of a thread of this directive.
fn terms(text: &str) -> Arc<Terms> {
    let id = ItemId::new("t/d").unwrap();
    let (parsed, _) = directive::parse(text, &id).unwrap_or_else(|found| panic!("{found:?}"));
    let item = ItemRef::parse("directive:t/d", crate::id::ItemKind::Directive).unwrap();
    let effective = Lineage::new(item, 0, parsed).unwrap().effective();
    let layers = [Layer {
        source: "test".into(),
        patterns: effective.permissions().patterns,
    }];
    let model = model();
    let items = ItemTools {
        tools: Vec::new(),
        most_tokens: 0,
        token_size: model.token_size,
    };
    let contract = Contract {
        offered: offer(&effective, &layers, &items).unwrap().tools,
        directive: effective,
        model,
        max_retries: 3,
        on_exceed: OnExceed::Escalate,
        repeated_calls: 6,
        provider_errors: Vec::new(),
    };
    let text = serde_json::to_string(&contract).unwrap();
    Arc::new(Terms::read(&text).unwrap())
}
