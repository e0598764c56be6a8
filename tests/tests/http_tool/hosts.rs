//! Answers of hosts: compressed ones, and each violation of the protocol.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};

use flate2::Compression;
use flate2::write::GzEncoder;
use rye_tests::World;
use serde_json::{Value, json};

use super::{Peer, answer, call, tool};

/// Makes an answer with a compressed body.
fn packed(body: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(body).unwrap();
    let packed = packed.finish().unwrap();
    let length = packed.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.into_bytes(), packed].concat()
}

#[test]
fn compressed_answer_is_bounded_while_read() {
    let world = World::new();
    let bomb = packed(&vec![b' '; 200 << 20]);
    assert!(bomb.len() < 1 << 20);
    let peer = Peer::new(vec![packed(b"{\"n\": 1}"), bomb]);
    tool(&world, "get", peer.address, "", "url: \"http://HOST/a\"");
    let data = call(&world, "get", &json!({})).code(0).json()["data"].take();
    assert_eq!(data["body"], json!({"n": 1}));
    assert_eq!(data["headers"]["content-encoding"], Value::Null);
    assert!(
        peer.received()[0]
            .to_ascii_lowercase()
            .contains("\r\naccept-encoding: gzip\r\n"),
        "{:?}",
        peer.received()
    );
    let out = call(&world, "get", &json!({})).code(1);
    let out = out.stderr_contains(&["more than 8 MiB, unpacked"]);
    assert_eq!(out.json()["metadata"]["code"], "http_failed");
}

#[test]
fn a_host_that_misbehaves_is_an_error_and_takes_no_more_than_its_bounds() {
    let world = World::new();
    let large = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
        "x".repeat((8 << 20) + 1)
    );
    let headers = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".to_owned();
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "X-More: x\r\n".repeat(100_000));
    let gzip = answer("200 OK", "Content-Encoding: gzip\r\n", "no gzip");
    let zstd = answer("200 OK", "Content-Encoding: zstd\r\n", "zstd");
    for (name, said, told) in [
        ("large", large, "8 MiB"),
        ("headers", headers, "head is too large"),
        ("endless", endless, "head is too large"),
        ("cut", cut, "cut"),
        ("gzip", gzip, "packed with gzip, and is not"),
        ("zstd", zstd, "packed with zstd, which was not requested"),
        ("junk", "this is no HTTP\r\n\r\n".to_owned(), ""),
    ] {
        let peer = Peer::new(vec![said]);
        tool(&world, name, peer.address, "", "url: \"http://HOST/a\"");
        let out = call(&world, name, &json!({}))
            .code(1)
            .stderr_contains(&[told]);
        assert_eq!(out.json()["metadata"]["code"], "http_failed", "{name}");
    }
    // The host accepts a connection and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    tool(
        &world,
        "silent",
        address,
        "",
        "url: \"http://HOST/a\"\ntimeout: 0.2",
    );
    let out = call(&world, "silent", &json!({})).code(1);
    let code = out.json()["metadata"]["code"].clone();
    assert!(code == "timeout" || code == "http_failed", "{code}");
    tool(
        &world,
        "tls",
        address,
        "",
        "url: \"https://HOST/a\"\ntimeout: 0.2",
    );
    let _failed = call(&world, "tls", &json!({})).code(1);
    drop(silent);
}

#[test]
fn tool_calls_only_configured_networks() {
    let world = World::new();
    let refused = |name: &str, url: &str, described: &[&str]| {
        let unused = SocketAddr::from(([127, 0, 0, 1], 1));
        let config = format!("url: \"{url}\"\nretry: {{max_attempts: 5}}");
        tool(&world, name, unused, "", &config);
        let out = call(&world, name, &json!({})).code(1);
        let out = out.stderr_contains(described).json();
        assert_eq!(out["metadata"]["code"], "http_failed", "{out}");
        assert_eq!(out["metadata"]["retryable"], Value::Null, "{out}");
    };
    let metadata = "is a link-local or metadata address, which the setting `http.networks: private` refuses; set it to `any`";
    for (name, host) in [
        ("plain", "169.254.169.254"),
        ("aws", "[fd00:ec2::254]"),
        ("mapped", "[::ffff:169.254.169.254]"),
    ] {
        refused(
            name,
            &format!("http://{host}/latest/meta-data"),
            &[metadata],
        );
    }
    // Redirects and names are checked, too.
    let peer = Peer::new(vec![
        answer("302 Found", "Location: /again\r\n", ""),
        super::ok("{}"),
    ]);
    tool(&world, "own", peer.address, "", "url: \"http://HOST/a\"");
    let _ok = call(&world, "own", &json!({})).code(0);
    let _stopped = world.ryectl("daemon stop").ok();

    let _daemon = world.start("http: {networks: public}\n");
    let local = [
        "is a loopback, private or reserved address",
        "`http.networks: public`",
        "set it to `private`",
    ];
    let peer = Peer::new(vec![super::ok("{}")]);
    let port = peer.address.port();
    refused("address", &format!("http://127.0.0.1:{port}/"), &local);
    refused(
        "name",
        &format!("http://localhost:{port}/"),
        &[&local[..], &["127.0.0.1 (`localhost`)"]].concat(),
    );
    assert!(peer.received().is_empty());
}

#[test]
fn proxy_resolves_names_and_literal_addresses_are_checked() {
    let mut world = World::new();
    let proxy = Peer::new(vec![answer("403 Forbidden", "", "")]);
    let address = format!("http://localhost:{}", proxy.address.port());
    world.find_models_by(vec![("HTTPS_PROXY", address)]);
    let _daemon = world.start("http: {networks: public}\n");
    for (name, url) in [
        ("literal", "https://10.0.0.1/"),
        ("named", "https://example.invalid/"),
    ] {
        tool(&world, name, proxy.address, "", &format!("url: \"{url}\""));
        let out = call(&world, name, &json!({})).code(1);
        let is_refused = out.stderr().contains("http.networks");
        assert_eq!(is_refused, name == "literal", "{}", out.stderr());
    }
    let received = proxy.received();
    assert!(
        received.len() == 1 && received[0].starts_with("CONNECT example.invalid:443 "),
        "{received:?}"
    );
}
