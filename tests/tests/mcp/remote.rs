//! Servers on other hosts: the requests, and the data that no answer may disclose.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use rye_tests::World;
use serde_json::{Value, json};

use super::execute;

const TOKEN: &str = "sesame-open-9";

/// Serves each message with the status, content type and body of `answer`. The server ends with the test.
#[expect(
    clippy::disallowed_methods,
    reason = "the tests have no runtime, and it ends with them"
)]
fn serve(
    answer: impl Fn(&str, &Value) -> (u16, &'static str, String) + Send + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let heads = Arc::clone(&heard);
    let _ends_with_the_tests = thread::spawn(move || {
        while let Ok((mut peer, _)) = listener.accept() {
            let mut reader = BufReader::new(peer.try_clone().unwrap());
            let (mut preamble, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                let lower = line.to_ascii_lowercase();
                if let Some(told) = lower.strip_prefix("content-length: ") {
                    length = told.trim().parse().unwrap();
                }
                preamble.push_str(&lower);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let message: Value = serde_json::from_slice(&body).unwrap_or_default();
            let (status, kind, body) = answer(&preamble, &message);
            heads.lock().unwrap().push(preamble);
            let _gone = peer.write_all(
                format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nMcp-Session-Id: s-1\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                )
                .as_bytes(),
            );
        }
    });
    (address, heard)
}

/// Returns the answer of a server that follows the protocol. `called` is the answer of its tool.
fn proper(message: &Value, called: &Value) -> (u16, &'static str, String) {
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tests", "version": "1"},
        }),
        Some("tools/list") => {
            json!({"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})
        }
        Some("tools/call") => called.clone(),
        _ => return (202, "text/plain", String::new()),
    };
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    if message["method"] == "tools/call" {
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
        let stream = format!("event: message\ndata: {note}\n\nevent: message\ndata: {answer}\n\n");
        return (200, "text/event-stream", stream);
    }
    (200, "application/json", answer)
}

fn world_with(address: SocketAddr) -> World {
    let world = World::new();
    world.write(".env", format!("DOCS_TOKEN={TOKEN}\n"));
    world.tool(
        "mcp/servers/docs.yaml",
        &format!(
            "version: \"1.0.0\"\ntool_type: mcp_server\nexecutor_id: null\ncategory: mcp/servers\nname: docs\n\
             description: \"A server of the tests.\"\nconfig:\n  transport: http\n  url: \"http://{address}/mcp\"\n  \
             auth: {{type: bearer, token: \"${{DOCS_TOKEN}}\"}}\n  headers: {{X-Team: blue}}\n  start_timeout: 20\n  timeout: 5\n"
        ),
    );
    let _imported = world.ryectl("mcp import mcp/servers/docs --yes").ok();
    world
}

#[test]
fn a_server_on_another_host_is_called_with_its_secret_which_no_answer_gives_away() {
    let (address, heard) = serve(|_, message| {
        let text = format!("you sent Bearer {TOKEN}");
        proper(
            message,
            &json!({"content": [{"type": "text", "text": text}]}),
        )
    });
    let world = world_with(address);
    let out = execute(&world, "mcp/docs/ask", &json!({}));
    let text = out["data"]["content"][0]["text"].as_str();
    assert_eq!(text, Some("you sent Bearer [redacted]"), "{out}");
    let heads = heard.lock().unwrap().clone();
    let secret = format!("authorization: bearer {TOKEN}\r\n");
    assert!(heads.iter().all(|head| head.contains(&secret)), "{heads:?}");
    assert!(heads.iter().all(|head| head.contains("x-team: blue")));
    // All requests but the first of a session have its id.
    let named = heads
        .iter()
        .filter(|head| head.contains("mcp-session-id: s-1"));
    assert!(named.count() >= heads.len() / 2, "{heads:?}");
    assert!(
        heads.iter().any(|head| head.starts_with("delete /mcp")),
        "{heads:?}"
    );
}

#[test]
fn a_server_on_another_host_that_breaks_the_rules_fails_its_call() {
    for (body, kind, words) in [
        ("no json", "application/json", "what is no message"),
        ("hello", "text/html", "`text/html`"),
        ("", "text/event-stream", "before there was one"),
    ] {
        let (address, _heard) = serve(move |_, message| match message["method"].as_str() {
            Some("tools/call") => (200, kind, body.to_owned()),
            _ => proper(message, &Value::Null),
        });
        let world = world_with(address);
        let out = execute(&world, "mcp/docs/ask", &json!({}));
        assert_eq!(out["metadata"]["code"], "mcp_failed", "{kind}: {out}");
        assert!(
            out["error"].as_str().unwrap().contains(words),
            "{kind}: {out}"
        );
    }
}

#[test]
fn mcp_server_on_refused_network_is_not_called() {
    let (address, heard) = serve(|_, message| proper(message, &json!({"content": []})));
    let world = world_with(address);
    let _stopped = world.ryectl("daemon stop").ok();
    heard.lock().unwrap().clear();
    let _daemon = world.start("http: {networks: public}\n");
    let out = execute(&world, "mcp/docs/ask", &json!({}));
    let error = out["error"].as_str().unwrap();
    assert!(
        error.contains("127.0.0.1 is a loopback") && error.contains("`http.networks: public`"),
        "{out}"
    );
    assert!(heard.lock().unwrap().is_empty());
}
