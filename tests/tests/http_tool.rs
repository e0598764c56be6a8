//! Tools that call other hosts: the requests, the handling of answers, and hostile callers or hosts.

mod hosts;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rye_tests::{Outcome, World};
use serde_json::{Value, json};

/// A server that sends each connection its next answer, byte for byte, and closes it. It ends after the last answer.
struct Peer {
    address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    #[expect(
        clippy::disallowed_methods,
        reason = "the tests have no runtime, and it ends by itself"
    )]
    fn new(answers: Vec<impl AsRef<[u8]> + Send + 'static>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&heard);
        let _ends_by_itself = thread::spawn(move || {
            for answer in answers {
                let Ok((mut peer, _)) = listener.accept() else {
                    return;
                };
                let request = request(&mut peer);
                requests.lock().unwrap().push(request);
                // The client may close the connection early.
                let _told = peer.write_all(answer.as_ref());
            }
        });
        Self {
            address,
            received: heard,
        }
    }

    fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }
}

/// Reads a request up to the end of its body.
fn request(peer: &mut TcpStream) -> String {
    let mut heard = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&heard).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return text;
            }
        }
        let mut part = [0; 4096];
        match peer.read(&mut part) {
            Ok(count) if count > 0 => heard.extend_from_slice(&part[..count]),
            _ => return text,
        }
    }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
    )
}

fn ok(body: &str) -> String {
    answer("200 OK", "Content-Type: application/json\r\n", body)
}

const SCHEMA: &str = "config_schema: {type: object, properties: {id: {}, q: {}, tags: {}, title: {}, trace: {}, url: {}}}";

/// Writes the tool `t/<name>`. `config` is YAML below `config`; `HOST` in it is replaced by the address of `peer`.
fn tool(world: &World, name: &str, peer: SocketAddr, more: &str, config: &str) {
    let config = config.replace("HOST", &peer.to_string());
    let indented: String = config.lines().flat_map(|line| ["  ", line, "\n"]).collect();
    let text = format!(
        "version: \"1.0.0\"\ntool_type: http\nexecutor_id: rye/core/primitives/http\ncategory: t\nname: {name}\n\
         description: \"Calls.\"\n{SCHEMA}\n{more}\nconfig:\n{indented}"
    );
    world.tool(&format!("t/{name}.yaml"), &text);
}

fn call(world: &World, name: &str, params: &Value) -> Outcome {
    let execute = world.ryectl("execute tool").arg(format!("t/{name}"));
    execute
        .arg("--json")
        .arg("--params")
        .arg(params.to_string())
        .run()
}

#[test]
fn http_request_fills_typed_slots_with_caller_values() {
    let world = World::new();
    world.write(
        ".env",
        "EXAMPLE_TOKEN=s3cret-t0ken\nOTHER=0ther/s3cret\nINNER=1nner.s3cret\n",
    );
    let echo = ok(
        r#"{"said": "Bearer s3cret\u002dt0ken", "0ther\/s3cret": "Token 0ther/s3cret", "deep": "1nner.s3cret", "n": 1}"#,
    );
    let peer = Peer::new(vec![echo, ok("[]")]);
    tool(
        &world,
        "post",
        peer.address,
        "",
        "method: POST\nurl: \"http://HOST/v1/items/{id}?fixed=1\"\nquery: {q: \"{q}\", tags: \"{tags}\", limit: 5}\n\
         headers: {X-Trace: \"{trace}\", X-Fixed: a, Idempotency-Key: \"${RYE_IDEMPOTENCY_KEY}\",\n  X-Other: \"Token ${OTHER}\",\n  X-Deep: \"${DEEP}\"}\nenv: {DEEP: \"Deep ${INNER}\"}\n\
         body: {title: \"{title}\", tags: \"{tags}\", deep: [\"{q}\", {x: \"{trace}\"}]}\n\
         auth: {type: bearer, token: \"${EXAMPLE_TOKEN}\"}",
    );
    let params = json!({"id": "a/../b c?#%", "q": "x&y=z", "tags": ["one", 2], "title": "{id} ${EXAMPLE_TOKEN}"});
    let out = call(&world, "post", &params).code(0);
    let envelope = out.json();
    assert_eq!(envelope["data"]["status_code"], 200);
    assert_eq!(
        envelope["data"]["body"],
        json!({"said": "Bearer [redacted]", "[redacted]": "[redacted]", "deep": "[redacted]", "n": 1})
    );
    assert_eq!(
        envelope["data"]["headers"]["content-type"],
        "application/json"
    );
    let ids: Vec<_> = envelope["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["item_id"].clone())
        .collect();
    assert_eq!(ids, ["t/post", "rye/core/primitives/http"]);
    let requests = peer.received();
    let (head, body) = requests[0].split_once("\r\n\r\n").unwrap();
    let first = head.lines().next().unwrap();
    let expected = "POST /v1/items/a%2F..%2Fb%20c%3F%23%25?fixed=1&q=x%26y%3Dz&tags=one&tags=2&limit=5 HTTP/1.1";
    assert_eq!(first, expected);
    let lower = head.to_ascii_lowercase();
    assert!(
        lower.contains("\r\nauthorization: bearer s3cret-t0ken"),
        "{head}"
    );
    assert!(
        lower.contains("\r\nx-fixed: a") && !lower.contains("x-trace"),
        "{head}"
    );
    assert!(lower.contains("\r\nidempotency-key: "), "{head}");
    assert!(
        lower.contains("\r\ncontent-type: application/json"),
        "{head}"
    );
    let body: Value = serde_json::from_str(body).unwrap();
    let expected =
        json!({"title": "{id} ${EXAMPLE_TOKEN}", "tags": ["one", 2], "deep": ["x&y=z", {}]});
    assert_eq!(body, expected);
    assert!(!world.log().contains("s3cret"));
    let dry = world.ryectl("execute tool t/post --json --dry-run --params");
    let dry = dry.arg(params.to_string()).ok();
    assert!(!dry.stdout().contains("s3cret"), "{}", dry.stdout());
    assert_eq!(dry.json()["data"]["method"], "POST");
    assert_eq!(peer.received().len(), 1);
}

#[test]
fn caller_values_cannot_inject_header_path_or_host() {
    let world = World::new();
    let peer = Peer::new(Vec::<String>::new());
    let config = "url: \"http://HOST/v1/{id}\"\nheaders: {X-Trace: \"{trace}\"}";
    tool(&world, "get", peer.address, "", config);
    for (params, told) in [
        (json!({"id": "x", "trace": "a\r\nX-Evil: 1"}), "line ends"),
        (json!({"id": ".."}), "`.` or `..`"),
        (json!({"id": ""}), "not empty"),
        (json!({}), "not empty"),
        (json!({"id": ["a"]}), "not empty"),
    ] {
        let _refused = call(&world, "get", &params)
            .code(1)
            .stderr_contains(&[told]);
    }
    assert_eq!(peer.received(), Vec::<String>::new());
    for (name, config, told) in [
        ("slot-host", "url: \"http://{id}/v1\"", "must name its host"),
        (
            "env-host",
            "url: \"http://${EVIL}/v1\"",
            "must name its host",
        ),
        ("user", "url: \"http://a:b@HOST/\"", "without a user"),
        ("scheme", "url: \"file:///etc/passwd\"", "https://"),
        (
            "undeclared",
            "url: \"http://HOST/{other}\"",
            "config_schema.properties",
        ),
        (
            "own-header",
            "url: \"http://HOST/\"\nheaders: {Host: evil}",
            "headers.Host",
        ),
        (
            "unset",
            "url: \"http://HOST/\"\nauth: {type: bearer, token: \"${NO_SUCH}\"}",
            "`${NO_SUCH}`",
        ),
        (
            "twice",
            "url: \"http://HOST/\"\nheaders: {x-api-key: \"{trace}\"}\nauth: {type: api_key, key: b}",
            "`config.auth`",
        ),
        (
            "auth-header",
            "url: \"http://HOST/\"\nauth: {type: api_key, key: b, header: Content-Length}",
            "auth.header",
        ),
        (
            "misspelt",
            "url: \"http://HOST/\"\nhedaers: {}",
            "did you mean `headers`?",
        ),
        (
            "auth",
            "url: \"http://HOST/\"\nauth: {type: digest}",
            "`bearer`",
        ),
        (
            "retry",
            "url: \"http://HOST/\"\nretry: {max_attempts: 99}",
            "from 1 to 10",
        ),
    ] {
        tool(&world, name, peer.address, "", config);
        let file = format!("{name}.yaml");
        let out = call(&world, name, &json!({"id": "x"}));
        let _refused = out.code(1).stderr_contains(&[&file, "line ", told]);
    }
}

#[test]
fn a_redirect_is_followed_within_the_origin_and_the_answer_otherwise() {
    let world = World::new();
    let to = |place: &str| answer("302 Found", &format!("Location: {place}\r\n"), "");
    let peer = Peer::new(vec![
        to("/b"),
        ok("1"),
        to("http://127.0.0.1:1/secret"),
        to("/again"),
        ok("2"),
    ]);
    tool(&world, "get", peer.address, "", "url: \"http://HOST/a\"");
    let out = call(&world, "get", &json!({})).code(0).json();
    assert_eq!(out["data"]["body"], json!(1));
    assert!(
        peer.received()[1].starts_with("GET /b HTTP/1.1\r\n"),
        "{:?}",
        peer.received()
    );
    let out = call(&world, "get", &json!({})).code(0).json();
    assert_eq!(out["data"]["status_code"], 302);
    // A redirect must not change the method of a request with an effect.
    tool(
        &world,
        "post",
        peer.address,
        "",
        "method: POST\nurl: \"http://HOST/a\"",
    );
    let out = call(&world, "post", &json!({})).code(0).json();
    assert_eq!(out["data"]["status_code"], 302);
    // A redirect that keeps the request is followed, unless the request may be sent only once.
    let moved = answer("307 Temporary Redirect", "Location: /b\r\n", "");
    let peer = Peer::new(vec![moved.clone(), ok("3"), moved]);
    let config = "method: POST\nurl: \"http://HOST/a\"\nbody: {n: 1}";
    tool(&world, "again", peer.address, "", config);
    let out = call(&world, "again", &json!({})).code(0).json();
    assert_eq!(out["data"]["body"], json!(3));
    assert!(peer.received()[1].ends_with("\r\n\r\n{\"n\":1}"));
    tool(&world, "once", peer.address, "effect: at_most_once", config);
    let out = call(&world, "once", &json!({})).code(0).json();
    assert_eq!(
        (out["data"]["status_code"].clone(), peer.received().len()),
        (json!(307), 3)
    );
    let endless = Peer::new(vec![to("/a"); 9]);
    tool(
        &world,
        "endless",
        endless.address,
        "",
        "url: \"http://HOST/a\"",
    );
    let out = call(&world, "endless", &json!({})).code(0).json();
    assert_eq!(
        (out["data"]["status_code"].clone(), endless.received().len()),
        (json!(302), 6)
    );
}

#[test]
fn an_answer_that_is_no_success_is_a_failure_with_the_answer() {
    let world = World::new();
    let peer = Peer::new(vec![
        answer("404 Not Found", "", "gone"),
        answer("404 Not Found", "", "gone"),
    ]);
    tool(&world, "get", peer.address, "", "url: \"http://HOST/a\"");
    let out = call(&world, "get", &json!({}))
        .code(1)
        .stderr_contains(&["404"]);
    let envelope = out.json();
    assert_eq!(envelope["data"]["body"], "gone");
    assert_eq!(envelope["metadata"]["code"], "http_status");
    tool(
        &world,
        "lenient",
        peer.address,
        "",
        "url: \"http://HOST/a\"\nsuccess: [200, 404]",
    );
    assert_eq!(
        call(&world, "lenient", &json!({})).code(0).json()["data"]["status_code"],
        404
    );
}

#[test]
fn http_call_is_retried_only_if_useful_and_safe() {
    let world = World::new();
    let busy = || answer("503 Service Unavailable", "Retry-After: 0\r\n", "");
    let retry = "url: \"http://HOST/a\"\nmethod: POST\nretry: {max_attempts: 3, backoff: fixed}";
    let peer = Peer::new(vec![busy(), busy(), ok("1")]);
    tool(&world, "retry", peer.address, "", retry);
    assert_eq!(
        call(&world, "retry", &json!({})).code(0).json()["data"]["body"],
        json!(1)
    );
    let peer = Peer::new(vec![busy(), busy(), busy(), ok("1")]);
    tool(&world, "thrice", peer.address, "", retry);
    let _failed = call(&world, "thrice", &json!({}))
        .code(1)
        .stderr_contains(&["503"]);
    assert_eq!(peer.received().len(), 3);
    // The request was sent, and its outcome is unknown.
    let peer = Peer::new(vec![String::new(), ok("1")]);
    tool(&world, "once", peer.address, "effect: at_most_once", retry);
    let _failed = call(&world, "once", &json!({}))
        .code(1)
        .stderr_contains(&["no answer"]);
    assert_eq!(peer.received().len(), 1);
    let node =
        "  a: {effect: at_most_once, action: {item_id: t/node}, next: b}\n  b: {type: return}";
    let peer = Peer::new(vec![String::new(), ok("1")]);
    tool(&world, "node", peer.address, "", retry);
    world.graph("t/g", &format!("start: a\nnodes:\n{node}"));
    let run = world.start_run("t/g");
    let _ended = world.settled(&run);
    assert_eq!(peer.received().len(), 1);
    // Neither a node without a retry nor the shipped hook repeats it.
    for (name, retry_of_node) in [("silent-node", "retry: 3, "), ("silent-hook", "")] {
        let peer = Peer::new(vec![String::new(), ok("1")]);
        tool(
            &world,
            name,
            peer.address,
            "effect: at_most_once",
            "url: \"http://HOST/a\"\nmethod: POST",
        );
        let node = format!(
            "  a: {{{retry_of_node}action: {{item_id: t/{name}}}, next: b}}\n  b: {{type: return}}"
        );
        let graph = format!("t/{name}-graph");
        world.graph(&graph, &format!("start: a\nnodes:\n{node}"));
        let run = world.start_run(&graph);
        let run = world.settled(&run);
        assert_eq!(run["status"], "suspended", "{run}");
        assert_eq!(peer.received().len(), 1);
    }
    // Nothing was sent, because no process listens there.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    tool(
        &world,
        "nobody",
        gone,
        "effect: at_most_once",
        "url: \"http://HOST/a\"",
    );
    let _failed = call(&world, "nobody", &json!({}))
        .code(1)
        .stderr_contains(&["no connection"]);
}

#[test]
fn the_time_of_a_node_bounds_the_attempts_of_a_call_with_their_pauses() {
    let world = World::new();
    let busy = || answer("503 Service Unavailable", "Retry-After: 60\r\n", "");
    let peer = Peer::new(vec![busy(), busy(), ok("1")]);
    let config = "url: \"http://HOST/a\"\nretry: {max_attempts: 3}";
    tool(&world, "busy", peer.address, "", config);
    world.graph(
        "t/g",
        "start: a\nnodes:\n  a: {timeout: 1, action: {item_id: t/busy}, next: b}\n  b: {type: return}",
    );
    let run = world.start_run("t/g");
    let run = world.settled(&run);
    assert_eq!(run["error"]["code"], "timeout", "{run}");
    assert_eq!(peer.received().len(), 1);
}

#[test]
fn a_call_that_hangs_ends_with_its_run() {
    let world = World::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    tool(
        &world,
        "silent",
        address,
        "",
        "url: \"http://HOST/a\"\ntimeout: 600",
    );
    world.graph(
        "t/g",
        "start: a\nnodes:\n  a: {action: {item_id: t/silent}, next: b}\n  b: {type: return}",
    );
    let run = world.start_run("t/g");
    let (_peer, _) = silent.accept().unwrap();
    let _asked = world.ryectl("cancel").arg(&run).ok();
    assert_eq!(world.settled(&run)["status"], "cancelled");
}

#[test]
fn http_secret_is_sent_by_scheme_and_removed_from_answers() {
    let world = World::new();
    world.write(".env", "EXAMPLE_USER=ada\nEXAMPLE_SECRET=s3cret-w0rd\n");
    let echo = || ok(r#"{"said": "s3cret-w0rd"}"#);
    let peer = Peer::new(vec![echo(), echo(), echo()]);
    for (name, auth) in [
        (
            "basic",
            "{type: basic, user: \"${EXAMPLE_USER}\", password: \"${EXAMPLE_SECRET}\"}",
        ),
        ("key", "{type: api_key, key: \"${EXAMPLE_SECRET}\"}"),
        (
            "named",
            "{type: api_key, key: \"${EXAMPLE_SECRET}\", header: X-Token}",
        ),
    ] {
        let config = format!("url: \"http://HOST/a\"\nauth: {auth}");
        tool(&world, name, peer.address, "", &config);
        let out = call(&world, name, &json!({})).code(0).json();
        assert_eq!(out["data"]["body"]["said"], "[redacted]", "{name}");
    }
    let heard: Vec<_> = peer
        .received()
        .iter()
        .map(|request| request.to_ascii_lowercase())
        .collect();
    // The Base64 form of `ada:s3cret-w0rd` in lower case.
    let basic = "\r\nauthorization: basic ywrhonmzy3jldc13mhjk\r\n";
    let said = [
        "\r\nx-api-key: s3cret-w0rd\r\n",
        "\r\nx-token: s3cret-w0rd\r\n",
    ];
    for (request, wanted) in heard.iter().zip([basic, said[0], said[1]]) {
        assert!(request.contains(wanted), "{request}");
    }
    assert!(!world.log().contains("s3cret"));
}

/// Makes a run whose only node calls a host that never answers; the daemon dies while it waits. Returns the host and
/// the run.
fn cut_off(world: &World, effect: &str) -> (TcpListener, String) {
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = "method: POST\nurl: \"http://HOST/a\"\nheaders: {Idempotency-Key: \"${RYE_IDEMPOTENCY_KEY}\"}";
    tool(world, "pays", host.local_addr().unwrap(), "", config);
    let node = format!(
        "{{effect: {effect}, action: {{item_id: t/pays}}, assign: {{got: \"${{result.body}}\"}}, next: b}}"
    );
    let graph =
        format!("start: a\nnodes:\n  a: {node}\n  b: {{type: return, output: \"${{state.got}}\"}}");
    world.graph("t/g", &graph);
    let daemon = world.start("");
    let run = world.start_run("t/g");
    let (mut peer, _) = host.accept().unwrap();
    let heard = request(&mut peer);
    assert!(heard.starts_with("POST /a"), "{heard}");
    daemon.kill();
    let _status = daemon.ended();
    (host, run)
}

fn key_of(request: &str) -> Option<&str> {
    let mut lines = request.lines();
    lines.find(|line| line.to_ascii_lowercase().starts_with("idempotency-key: "))
}

#[test]
fn a_call_that_was_cut_off_with_its_daemon_is_made_again_with_the_same_key() {
    let world = World::new();
    let (host, run) = cut_off(&world, "idempotent");
    let _daemon = world.start("");
    let (mut peer, _) = host.accept().unwrap();
    let heard = request(&mut peer);
    peer.write_all(ok("7").as_bytes()).unwrap();
    drop(peer);
    let record = world.settled(&run);
    assert_eq!(record["output"], 7, "{record}");
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let keys: Vec<_> = events
        .iter()
        .filter(|event| event["event_type"] == "step_started")
        .map(|event| format!("\"{}\"", event["payload"]["key"].as_str().unwrap()))
        .collect();
    let sent = key_of(&heard).unwrap();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
    assert!(sent.contains(keys[0].trim_matches('"')), "{sent} {keys:?}");
}

#[test]
fn interrupted_at_most_once_http_call_waits_for_verdict() {
    let world = World::new();
    let (host, run) = cut_off(&world, "at_most_once");
    let _daemon = world.start("");
    let record = world.settled(&run);
    assert_eq!(record["status"], "suspended", "{record}");
    host.set_nonblocking(true).unwrap();
    let again = host.accept().map(drop).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::WouldBlock);
}
