//! `call`: calls of a program of a run, one JSON object a line.
//!
//! **Order.** Calls are made at once, and answered in the order in which they end. **Failure.** A line that is no call
//! is answered with an error of the code `invalid`, and the verb continues. It ends when stdin does, after the last
//! answer.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rye_client::Client;
use rye_client::error::Error;
use rye_client::exit::Exit;
use rye_core::expr::parse_json;
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::model::Object;
use rye_proto::{convert, v1};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Stdin};

use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::session::Session;

/// Longest line in bytes; the daemon refuses longer requests.
const MOST_LINE: u64 = 16 << 20;

/// A line of stdin.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    id: Value,
    #[serde(flatten)]
    call: Call,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
enum Call {
    Execute {
        item_type: Option<ItemKind>,
        item_id: String,
        #[serde(default)]
        params: Object,
        idempotency_key: Option<String>,
    },
    Fetch {
        item_type: Option<ItemKind>,
        item_id: Option<String>,
        query: Option<String>,
        scope: Option<String>,
        source: Option<String>,
        limit: Option<u32>,
        offset: Option<u32>,
    },
    Progress {
        fraction: Option<f64>,
        #[serde(default)]
        message: String,
    },
}

/// Reason for which a call has no result.
struct Refused {
    code: String,
    message: String,
}

impl Refused {
    #[expect(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
    fn invalid(message: impl ToString) -> Self {
        Self {
            code: "invalid".to_owned(),
            message: message.to_string(),
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self {
            code: error.reason().to_owned(),
            message: error.to_string(),
        }
    }
}

pub(super) async fn call(session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let output = &mut session.output;
    let mut stdin = BufReader::new(tokio::io::stdin());
    let mut open = FuturesUnordered::new();
    let mut line = Vec::new();
    let mut is_open = true;
    while is_open || !open.is_empty() {
        tokio::select! {
            biased;
            Some(answer) = open.next() => output.json_line(&answer)?,
            read = read_line(&mut stdin, &mut line), if is_open => {
                is_open = read.map_err(|source| LocalError::unreadable("stdin", source))?;
                if is_open {
                    open.push(answered(client.clone(), std::mem::take(&mut line)));
                }
            }
        }
    }
    Ok(Exit::Done)
}

/// Appends the next line to `line`, which may hold the beginning of it. Returns false at the end. Cancel safe.
async fn read_line(stdin: &mut BufReader<Stdin>, line: &mut Vec<u8>) -> std::io::Result<bool> {
    let left = MOST_LINE.saturating_sub(u64::try_from(line.len()).unwrap_or(MOST_LINE));
    let read = stdin.take(left).read_until(b'\n', line).await?;
    Ok(read > 0 || !line.is_empty())
}

/// Makes the call in `line`. Returns the answer.
async fn answered(client: Client, line: Vec<u8>) -> Value {
    let (id, made) = match parsed(&line) {
        Ok(Line { id, call }) => (id, made(&client, call).await),
        Err(refused) => (Value::Null, Err(refused)),
    };
    match made {
        Ok(result) => json!({"id": id, "result": result}),
        Err(Refused { code, message }) => {
            json!({"id": id, "error": {"code": code, "message": message}})
        }
    }
}

fn parsed(line: &[u8]) -> Result<Line, Refused> {
    let text = std::str::from_utf8(line).map_err(Refused::invalid)?;
    let value = parse_json(text).map_err(Refused::invalid)?;
    serde_json::from_value(value).map_err(Refused::invalid)
}

async fn made(client: &Client, call: Call) -> Result<Value, Refused> {
    match call {
        Call::Execute {
            item_type,
            item_id,
            params,
            idempotency_key,
        } => {
            let item = ItemRef {
                kind: item_type.unwrap_or(ItemKind::Tool),
                id: ItemId::new(&item_id).map_err(Refused::invalid)?,
            };
            let request = v1::ExecuteRequest {
                item: Some((&item).into()),
                params_json: Value::Object(params).to_string(),
                idempotency_key: idempotency_key.unwrap_or_default(),
                ..v1::ExecuteRequest::default()
            };
            let answer = client.execute(request).await?;
            let envelope = convert::object("envelope_json", &answer.envelope_json);
            Ok(Value::Object(envelope.map_err(Refused::invalid)?))
        }
        Call::Fetch {
            item_type,
            item_id,
            query,
            scope,
            source,
            limit,
            offset,
        } => {
            let item_type = item_type.map_or(v1::ItemType::Unspecified, v1::ItemType::from);
            let request = v1::FetchRequest {
                item_id: item_id.unwrap_or_default(),
                item_type: item_type.into(),
                source: source.unwrap_or_default(),
                query,
                scope: scope.unwrap_or_default(),
                limit,
                offset,
                ..v1::FetchRequest::default()
            };
            let answer = client.fetch(request).await?;
            let result = convert::object("result_json", &answer.result_json);
            Ok(Value::Object(result.map_err(Refused::invalid)?))
        }
        Call::Progress { fraction, message } => {
            let request = v1::ProgressRequest { fraction, message };
            let answer = client.progress(request).await?;
            Ok(json!({"recorded": answer.recorded}))
        }
    }
}
