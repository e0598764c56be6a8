//! A client that reads every byte, and parses it as Rye does.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use rye_core::conversation::{Block, Conversation, Digest, Message, Root, Source, Tool, ToolMode};
use rye_core::id::ItemId;
use rye_core::provider::sse::Splitter;
use rye_core::provider::stream::{Ended, StreamSignal};
use rye_core::provider::{
    Agent, Decoder, ModelRequest, Owner, Provider, ResolvedModel, Wire, resolve,
};
use rye_tests::ModelServer;
use rye_tests::model_server::SECRET;
use rye_tests::until::PATIENCE;
use serde_json::json;

/// Both APIs, with the paths of their calls.
pub(super) const APIS: [(&str, &str); 2] = [
    ("anthropic", "/v1/messages"),
    ("openai_chat", "/v1/chat/completions"),
];

pub(super) struct Client {
    stream: TcpStream,
    /// Bytes that were read and not yet parsed.
    left: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
    pub(super) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The body ended as the protocol requires.
    Clean,
    /// The connection was closed before the end of the body.
    Closed,
    Reset,
}

impl Client {
    pub(super) fn new(server: &ModelServer) -> Self {
        let address = server.base_url().replace("http://", "");
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            left: Vec::new(),
        }
    }

    /// Sends a call in the form of the vendors.
    pub(super) fn send(&mut self, path: &str, body: &str) {
        let key = match path {
            "/v1/messages" => format!("x-api-key: {SECRET}\r\nanthropic-version: 2023-06-01"),
            _ => format!("authorization: Bearer {SECRET}"),
        };
        let headers =
            format!("{key}\r\naccept-encoding: identity\r\ncontent-type: application/json");
        self.send_with("POST", path, &headers, body);
    }

    pub(super) fn send_with(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\ncontent-length: {length}\r\n\r\n"
        );
        self.stream.write_all((head + body).as_bytes()).unwrap();
    }

    pub(super) fn ask(&mut self, path: &str, body: &str) -> Answer {
        self.send(path, body);
        self.answer()
    }

    /// Reads until `part` of the answer has arrived. Returns the answer so far.
    pub(super) fn read_until(&mut self, part: &str) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.left).into_owned();
            if text.contains(part) {
                return text;
            }
            assert_eq!(self.more(), None, "{text}");
        }
    }

    pub(super) fn answer(&mut self) -> Answer {
        let mut end = End::Clean;
        let head = loop {
            let at = self.left.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(at) = at {
                let rest = self.left.split_off(at + 4);
                break std::mem::replace(&mut self.left, rest);
            }
            if let Some(other) = self.more() {
                end = other;
                break Vec::new();
            }
        };
        let head = String::from_utf8(head).unwrap();
        let mut body = Vec::new();
        while end == End::Clean && !self.is_complete(&head, &mut body) {
            end = self.more().unwrap_or(End::Clean);
        }
        Answer {
            status: head.get(9..12).map_or(0, |code| code.parse().unwrap()),
            body: String::from_utf8(body).unwrap(),
            head,
            end,
        }
    }

    /// Moves the received bytes of a body to `body`. Returns true if the body is complete.
    fn is_complete(&mut self, head: &str, body: &mut Vec<u8>) -> bool {
        if let Some((_, rest)) = head.split_once("content-length: ") {
            let length: usize = rest.split("\r\n").next().unwrap().parse().unwrap();
            body.append(&mut self.left);
            return body.len() == length;
        }
        loop {
            let Some(line) = self.left.windows(2).position(|two| two == b"\r\n") else {
                return false;
            };
            let size = str::from_utf8(&self.left[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if self.left.len() < line + 2 + size + 2 {
                return false;
            }
            body.extend_from_slice(&self.left[line + 2..][..size]);
            self.left.drain(..line + 2 + size + 2);
            if size == 0 {
                return true;
            }
        }
    }

    /// Reads more bytes. Returns the end of the connection, if it ended.
    fn more(&mut self) -> Option<End> {
        let mut piece = vec![0; 65536];
        match self.stream.read(&mut piece) {
            Ok(0) => Some(End::Closed),
            Ok(read) => {
                self.left.extend_from_slice(&piece[..read]);
                None
            }
            // A signal interrupted the read; the next try continues.
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(End::Reset),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes a model of an API.
pub(super) fn model(api: &str) -> ResolvedModel {
    let text = format!(
        "version: \"1.0.0\"\ncategory: agent/providers\nname: p\napi: {api}\n\
         base_url: https://api.example.com\npath: /v1\nauth: [{{header: x-api-key, secret: KEY}}]\n\
         models: [{{id: m, window: 200000, max_output: 64000, prices: free}}]"
    );
    let id = ItemId::new("agent/providers/p").unwrap();
    let (provider, _) = Provider::parse(&text, &id, Owner::User).unwrap();
    let asked = ModelRequest {
        model: Some("m"),
        ..ModelRequest::default()
    };
    let agent = Agent::from_config(&json!({})).unwrap().0;
    let providers = BTreeMap::from([("p".to_owned(), provider)]);
    resolve(&asked, &agent, &providers, &|_, _| true).unwrap().0
}

/// Parses a body to the signals that Rye sees.
pub(super) fn signals(model: &ResolvedModel, answer: &Answer) -> Vec<StreamSignal> {
    let (mut splitter, mut decoder) = (Splitter::default(), Decoder::new(model, 1));
    let mut signals = Vec::new();
    let taken = splitter.push(answer.body.as_bytes(), |event| {
        decoder.event(&event.data, &[SECRET], &mut signals);
    });
    taken.unwrap();
    decoder.finish(&mut signals);
    signals
}

/// A conversation in the form that Rye keeps.
pub(super) struct TestConversation {
    pub(super) path: &'static str,
    pub(super) model: ResolvedModel,
    pub(super) wire: Wire,
}

impl TestConversation {
    pub(super) fn new((api, path): (&str, &'static str), text: &str) -> Self {
        let model = model(api);
        let root = Root {
            system: Some("Be brief.".to_owned()),
            tools: vec![Tool {
                name: "count".to_owned(),
                description: "Counts.".to_owned(),
                schema: json!({"type": "object"}),
            }],
            tool_mode: ToolMode::Native,
            origin: model.origin(),
        };
        let messages = vec![Message::text(Source::Directive, text)];
        let conversation = Conversation::begin(Digest::of("x"), root, messages).unwrap();
        Self {
            path,
            wire: Wire::new(&conversation, &model),
            model,
        }
    }

    pub(super) fn body(&self) -> String {
        self.wire.body(&self.model, 4096)
    }

    /// Sends the request, and adds the answer to the conversation.
    pub(super) fn ask(&mut self, client: &mut Client) -> Ended {
        let answer = client.ask(self.path, &self.body());
        assert_eq!((answer.status, answer.end), (200, End::Clean), "{answer:?}");
        let mut signals = signals(&self.model, &answer);
        let Some(StreamSignal::Ended(ended)) = signals.pop() else {
            panic!("{answer:?}");
        };
        self.add_answer(&ended);
        ended
    }

    pub(super) fn add_answer(&mut self, ended: &Ended) {
        self.wire.push(&Message::Assistant {
            origin: self.model.origin(),
            blocks: ended.blocks.clone(),
            raw: ended.raw.clone(),
            stop: Some(ended.stop),
            partial: false,
        });
    }

    /// Adds results of calls to the conversation.
    pub(super) fn answer(&mut self, results: &[(&str, &str)]) {
        let blocks = results.iter().map(|(id, content)| Block::Result {
            id: (*id).to_owned(),
            content: (*content).to_owned(),
            is_error: false,
        });
        self.wire.push(&Message::User {
            source: Source::Tools,
            blocks: blocks.collect(),
        });
    }

    pub(super) fn add_user_text(&mut self, text: &str) {
        self.wire.push(&Message::text(Source::Message, text));
    }
}
