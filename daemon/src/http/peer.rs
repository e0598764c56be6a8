//! The other side of a call, for tests: a server that sends a given answer to its caller.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use rye_host::task::Group;

/// Timeout that no correct test reaches.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Head of an answer that is a stream.
pub(crate) const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Reads a request up to the end of its body.
pub(crate) async fn read_request(peer: &mut (impl AsyncRead + Unpin)) -> String {
    let mut heard = String::new();
    while !is_whole(&heard) {
        let mut part = [0; 1024];
        let count = peer.read(&mut part).await.unwrap();
        assert!(count > 0, "the request was cut: {heard}");
        heard.push_str(std::str::from_utf8(&part[..count]).unwrap());
    }
    heard
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() >= length.parse().unwrap())
}

/// A server that handles one connection with `talk`, after reading the request.
pub(crate) async fn server<T, F>(
    talk: impl FnOnce(TcpStream, String) -> F + Send + 'static,
) -> (SocketAddr, Group<T>)
where
    T: Send + 'static,
    F: Future<Output = T> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = Group::new();
    tasks.spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        let request = read_request(&mut peer).await;
        talk(peer, request).await
    });
    (address, tasks)
}

/// A server that sends `answer` and closes the connection.
pub(crate) async fn saying(answer: impl Into<String>) -> (SocketAddr, Group<String>) {
    let answer = answer.into();
    server(|mut peer, request| async move {
        // The client may close the connection before it has read everything.
        drop(peer.write_all(answer.as_bytes()).await);
        drop(peer.shutdown().await);
        request
    })
    .await
}

/// One chunk of a body.
pub(crate) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// True if the other side closed the connection; a reset counts as closed.
pub(crate) async fn is_closed(mut peer: TcpStream) -> bool {
    let end = timeout(LONG, peer.read(&mut [0; 1])).await.unwrap();
    end.unwrap_or(0) == 0
}
