use std::ffi::OsString;
use std::net::SocketAddr;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::peer::{LONG, STREAM, chunk, is_closed, read_request, saying, server};
use super::*;
use rye_host::task::Group;

/// Timeout for events that must not arrive.
const SHORT: Duration = Duration::from_millis(20);

const PATIENCE: Patience = Patience {
    connect: LONG,
    headers: LONG,
};

fn client() -> Client {
    reaching(Networks::Private)
}

fn reaching(networks: Networks) -> Client {
    Client::new(&Environment::default(), networks).unwrap()
}

fn to(address: SocketAddr, patience: Patience) -> Request {
    let url = format!("http://{address}/v1");
    Request::post(&url, Bytes::from_static(b"{\"a\":1}"), patience).unwrap()
}

async fn data(events: &mut Events) -> Result<Option<String>, Failure> {
    Ok(events.next_within(LONG).await?.map(|event| event.data))
}

#[tokio::test]
async fn events_arrive_as_sent() {
    let (address, mut tasks) = server(|mut peer, request| async move {
        let first = format!("{STREAM}{}", chunk("event: e\ndata: 1\n\ndata:"));
        peer.write_all(first.as_bytes()).await.unwrap();
        (peer, request)
    })
    .await;
    let request = to(address, PATIENCE).secret_header("x-api-key", "k3y");
    let request = request.unwrap().header("x-version", "6").unwrap();
    let request = request.header("x-version", "7").unwrap();
    let request = request.one_more("x-list", "1", false).unwrap();
    let request = request.one_more("x-list", "2", false).unwrap();
    assert!(!format!("{request:?}").contains("k3y"), "{request:?}");
    let answer = client().send(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let mut events = answer.events();
    let first = events.next_within(LONG).await.unwrap().unwrap();
    assert_eq!((first.name.as_str(), first.data.as_str()), ("e", "1"));

    let (mut peer, request) = tasks.next().await.unwrap();
    assert!(
        request.starts_with("POST /v1 HTTP/1.1\r\n")
            && request.contains("x-api-key: k3y\r\n")
            && request.contains("x-version: 7\r\n")
            && !request.contains("x-version: 6\r\n")
            && request.contains("x-list: 1\r\n")
            && request.contains("x-list: 2\r\n"),
        "{request}"
    );
    let rest = format!("{}0\r\n\r\n", chunk(" 2\n\n"));
    peer.write_all(rest.as_bytes()).await.unwrap();
    assert_eq!(data(&mut events).await, Ok(Some("2".to_owned())));
    assert_eq!(data(&mut events).await, Ok(None));
}

#[tokio::test]
async fn call_dropped_before_response_closes_connection() {
    let (address, mut tasks) = server(|peer, _| async move { peer }).await;
    let client = client();
    let peer = tokio::select! {
        peer = tasks.next() => peer.unwrap(),
        answer = client.send(to(address, PATIENCE)) => panic!("{answer:?}"),
    };
    assert!(is_closed(peer).await);
}

#[tokio::test]
async fn call_dropped_within_response_closes_connection() {
    let (address, mut tasks) = server(|mut peer, _| async move {
        peer.write_all(STREAM.as_bytes()).await.unwrap();
        peer
    })
    .await;
    let client = client();
    let answer = client.send(to(address, PATIENCE)).await.unwrap();
    drop(answer.events());
    assert!(is_closed(tasks.next().await.unwrap()).await);
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let (address, _tasks) = saying(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let answer = client().send(to(address, PATIENCE)).await.unwrap();
    assert_eq!(answer.status(), 307);
}

#[tokio::test]
async fn stream_distinguishes_end_from_cut() {
    let whole = chunk("data: 1\n\n");
    for (rest, is_cut) in [("0\r\n\r\n", false), ("", true), ("5\r\nda", true)] {
        let (address, _tasks) = saying(format!("{STREAM}{whole}{rest}")).await;
        let mut events = client().send(to(address, PATIENCE)).await.unwrap().events();
        assert_eq!(data(&mut events).await, Ok(Some("1".to_owned())), "{rest}");
        let end = data(&mut events).await;
        assert_eq!(matches!(end, Err(Failure::Cut(_))), is_cut, "{end:?}");
        assert_eq!(end == Ok(None), !is_cut, "{end:?}");
    }
}

#[tokio::test]
async fn complete_events_precede_failure() {
    let (address, _tasks) = server(|mut peer, _| async move {
        let body = b"data: 1\n\ndata: 2\n\ndata: \xff\n\ndata: 3\n\n";
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 36\r\n\r\n";
        peer.write_all(&[head.as_slice(), body].concat())
            .await
            .unwrap();
    })
    .await;
    let mut events = client().send(to(address, PATIENCE)).await.unwrap().events();
    assert_eq!(data(&mut events).await, Ok(Some("1".to_owned())));
    assert_eq!(data(&mut events).await, Ok(Some("2".to_owned())));
    for _ in 0..2 {
        let end = data(&mut events).await;
        assert_eq!(end, Err(Failure::Unreadable(Unreadable::Text)));
    }
}

#[tokio::test]
async fn every_wait_has_timeout() {
    let (address, mut tasks) = server(|peer, _| async move { peer }).await;
    let patience = Patience {
        connect: SHORT,
        headers: SHORT,
    };
    let client = client();
    let answer = client.send(to(address, patience)).await.map(|_| ());
    assert!(matches!(answer, Err(Failure::Unanswered(_))), "{answer:?}");
    drop(tasks.next().await);

    let (address, mut tasks) = server(|mut peer, _| async move {
        peer.write_all(STREAM.as_bytes()).await.unwrap();
        peer
    })
    .await;
    let mut events = client.send(to(address, PATIENCE)).await.unwrap().events();
    assert_eq!(events.next_within(SHORT).await, Err(Failure::Silent(SHORT)));
    drop(tasks.next().await);
}

#[tokio::test]
async fn lost_connection_differs_from_refused_one() {
    let (address, _tasks) = saying("").await;
    let answer = client().send(to(address, PATIENCE)).await.map(|_| ());
    assert!(matches!(answer, Err(Failure::Unanswered(_))), "{answer:?}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let answer = client().send(to(address, PATIENCE)).await.map(|_| ());
    let Err(Failure::Connect(text)) = answer else {
        panic!("{answer:?}")
    };
    assert!(text.contains("refused"), "{text}");
}

#[tokio::test]
async fn headers_are_bounded() {
    let long = "x".repeat(MOST_HEADERS / 2);
    let many: String =
        (0..=MOST_HEADER_LINES).fold(String::new(), |lines, at| format!("{lines}x-{at}: 1\r\n"));
    for (lines, told) in [
        (format!("a: {long}\r\nb: {long}\r\n"), "larger than 64 KiB"),
        (many, "no answer"),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n");
        let (address, _tasks) = saying(answer).await;
        let answer = client().send(to(address, PATIENCE)).await;
        let error = answer.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[tokio::test]
async fn call_reaches_only_configured_networks() {
    for (host, described) in [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1 (`localhost`)"),
        ("[::ffff:127.0.0.1]", "::ffff:7f00:1"),
    ] {
        let (address, mut tasks) = saying("HTTP/1.1 204 None\r\n\r\n").await;
        let request = || {
            let url = format!("http://{host}:{}/", address.port());
            Request::post(&url, Bytes::from_static(b"1"), PATIENCE).unwrap()
        };
        let refused = reaching(Networks::Public).send(request()).await;
        let Err(Failure::Network(refused)) = refused.map(|_| ()) else {
            panic!("{host}");
        };
        let refused = refused.to_string();
        assert!(
            refused.contains(described) && refused.contains("set it to `private`"),
            "{refused}"
        );
        let client = reaching(Networks::Public);
        let answer = client.send(request().to_any_network());
        assert_eq!(answer.await.unwrap().status(), 204, "{host}");
        assert!(tasks.next().await.is_some());
    }
}

#[tokio::test]
async fn proxy_of_environment_is_used_for_tls_only() {
    let (address, mut tasks) = saying("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n").await;
    let variables = [
        (
            "HTTPS_PROXY",
            format!("http://localhost:{}", address.port()),
        ),
        ("NO_PROXY", "direct.invalid".to_owned()),
    ];
    let environment = Environment::of(variables.map(|(name, value)| (name.into(), value.into())));
    // The proxy is the user's: its own address is not checked.
    let client = Client::new(&environment, Networks::Public).unwrap();
    let sent = |url: &str| {
        let request = Request::post(url, Bytes::from_static(b"1"), PATIENCE).unwrap();
        client.send(request)
    };
    for url in ["https://direct.invalid/", "http://named.invalid/"] {
        let failed = sent(url).await.map(|_| ());
        assert!(matches!(failed, Err(Failure::Connect(_))), "{failed:?}");
    }
    let refused = sent("https://10.0.0.1/").await.map(|_| ());
    assert!(matches!(refused, Err(Failure::Network(_))), "{refused:?}");
    assert!(sent("https://named.invalid/").await.is_err());
    let request = tasks.next().await.unwrap();
    assert!(
        request.starts_with("CONNECT named.invalid:443 "),
        "{request}"
    );
}

#[tokio::test]
async fn error_body_is_cut() {
    for (length, body, expected) in [
        (3, "abc", "abc"),
        (9, "abcdefghi", "abcde"),
        (9, "ab", "ab"),
    ] {
        let answer = format!("HTTP/1.1 500 No\r\nContent-Length: {length}\r\n\r\n{body}");
        let (address, _tasks) = saying(answer).await;
        let mut answer = client().send(to(address, PATIENCE)).await.unwrap();
        assert_eq!(answer.beginning(5, LONG).await, expected);
    }
}

#[test]
fn unsendable_header_is_reported_without_value() {
    let bad = Request::post("no address", Bytes::new(), PATIENCE).map(|_| ());
    assert!(matches!(bad, Err(Failure::Unsendable(_))), "{bad:?}");
    for (name, value) in [("a b", "k3y"), ("a", "k3y\r\nb: 1")] {
        let request = Request::post("http://localhost", Bytes::new(), PATIENCE).unwrap();
        let error = request.secret_header(name, value).unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains("k3y"), "{error}");
    }
}

/// Environment that trusts the authorities of `file`.
fn trusting(file: &std::path::Path) -> Environment {
    Environment::of([(OsString::from("SSL_CERT_FILE"), file.as_os_str().to_owned())])
}

#[tokio::test]
async fn certificate_requires_trusted_authority() {
    let directory = tempfile::tempdir().unwrap();
    let names = vec!["localhost".to_owned()];
    let known = rcgen::generate_simple_self_signed(names.clone()).unwrap();
    let other = rcgen::generate_simple_self_signed(names).unwrap();
    for (trusted, is_taken) in [(known.cert.pem(), true), (other.cert.pem(), false)] {
        let file = directory.path().join("roots.pem");
        std::fs::write(&file, trusted).unwrap();
        let key = PrivateKeyDer::try_from(known.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![known.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = Group::new();
        tasks.spawn(async move {
            let (peer, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            let Ok(mut peer) = acceptor.accept(peer).await else {
                return;
            };
            read_request(&mut peer).await;
            let answer = b"HTTP/1.1 204 None\r\n\r\n";
            peer.write_all(answer).await.unwrap();
        });
        let client = Client::new(&trusting(&file), Networks::Private).unwrap();
        let url = format!("https://localhost:{port}/");
        let request = Request::post(&url, Bytes::from_static(b"{\"a\":1}"), PATIENCE).unwrap();
        let answer = client.send(request).await.map(|answer| answer.status());
        if is_taken {
            assert_eq!(answer, Ok(204));
        } else {
            assert!(matches!(answer, Err(Failure::Certificate(_))), "{answer:?}");
        }
    }
}

#[test]
fn file_without_certificates_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for file in [empty, directory.path().join("absent.pem")] {
        let error = Client::new(&trusting(&file), Networks::Private)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("SSL_CERT_FILE") && error.contains(&file.display().to_string()),
            "{error}"
        );
    }
}
