//! HTTP calls to other hosts, with one shared client.
//!
//! **Owns** connections, certificates, the networks that may be reached, the bounds on the duration and size of an
//! answer, and the framing of event streams. **Never** interprets a body, follows a redirect, sends a request a second time, or sends plain HTTP through
//! a proxy: the request goes to the address that was checked. **Never** shows a secret header, or a body.
//!
//! HTTP/1.1 only, so that dropping a call, before or during its answer, closes the connection. The server can then stop
//! its work.
//!
//! **Order.** Events arrive in the order of the stream, and all complete events precede the failure that ends it. There
//! is no read-ahead, so a slow reader slows the sender down. **Failure.** A [`Failure`] states how far a call had come,
//! because that decides its cost.

mod networks;
#[cfg(test)]
pub(crate) mod peer;
mod roots;

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use reqwest::Url;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rustls::ClientConfig;
use rye_core::provider::sse::{Event, Splitter, Unreadable};
use tokio::time::timeout;

use crate::config::{Environment, Networks};
use rye_host::cache::{self, Cache};

use networks::Checked;
pub use networks::RefusedAddress;
pub use roots::BadRoots;

/// Maximum total size of the headers of an answer, in bytes.
const MOST_HEADERS: usize = 64 << 10;
/// Maximum number of headers of an answer. It bounds the memory of a connection before the size of an answer can be
/// measured.
const MOST_HEADER_LINES: usize = 100;
/// Capacity of the cache of connection pools. There is one for each connect timeout that a provider names, with a proxy
/// and without, and for the networks that a call may reach.
const MOST_POOLS: usize = 16;

/// Reason why an answer is missing or incomplete. Holds no text of the other side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The request is invalid and cannot be sent.
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
    /// The setting `http.networks` refuses the address, so nothing was sent.
    #[error(transparent)]
    Network(#[from] RefusedAddress),
    /// There was no connection, so nothing was sent.
    #[error("no connection: {0}")]
    Connect(String),
    /// The certificate was rejected, so nothing was sent.
    #[error("the certificate was refused: {0}")]
    Certificate(String),
    /// The request was sent, or may have been, and there was no answer.
    #[error("no answer: {0}")]
    Unanswered(String),
    #[error("the headers of the answer are larger than {} KiB", MOST_HEADERS >> 10)]
    Headers,
    /// No data arrived for this time.
    #[error("the answer stopped for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The body is larger than the limit, in bytes.
    #[error("the body of the answer is larger than {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// The connection ended before the body did.
    #[error("the answer was cut: {0}")]
    Cut(String),
    /// The body is not a stream of events.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Timeouts until the headers of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Time for the connection.
    pub connect: Duration,
    /// Additional time for the headers.
    pub headers: Duration,
}

pub struct Request {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    patience: Patience,
    /// True if the setting `http.networks` does not apply.
    is_exempt: bool,
}

impl Request {
    /// Makes a request that posts `body` to `url`.
    pub fn post(url: &str, body: Bytes, patience: Patience) -> Result<Self, Failure> {
        let url = Url::parse(url)
            .map_err(|error| Failure::Unsendable(format!("its address is none: {error}")))?;
        Self::new("POST", url, body, patience)
    }

    /// Makes a request with `body`, which may be empty.
    pub fn new(method: &str, url: Url, body: Bytes, patience: Patience) -> Result<Self, Failure> {
        let method = Method::from_bytes(method.as_bytes());
        let method = method.map_err(|error| Failure::Unsendable(error.to_string()))?;
        Ok(Self {
            method,
            url,
            headers: HeaderMap::new(),
            body,
            patience,
            is_exempt: false,
        })
    }

    /// Exempts the request from the setting `http.networks`, for an address that the user configured.
    #[must_use]
    pub fn to_any_network(mut self) -> Self {
        self.is_exempt = true;
        self
    }

    /// Sets the header `name`, which may be shown in logs.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, Failure> {
        let (name, value) = checked(name, value, false)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sets the header `name`, which is never shown. The copy that is sent is not zeroed.
    pub fn secret_header(mut self, name: &str, value: &str) -> Result<Self, Failure> {
        let (name, value) = checked(name, value, true)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Adds a header `name` without replacing others of that name.
    pub fn one_more(mut self, name: &str, value: &str, is_secret: bool) -> Result<Self, Failure> {
        let (name, value) = checked(name, value, is_secret)?;
        self.headers.append(name, value);
        Ok(self)
    }
}

/// Makes a header; a secret one is never shown.
fn checked(name: &str, value: &str, is_secret: bool) -> Result<(HeaderName, HeaderValue), Failure> {
    let bad = |what: &str| Failure::Unsendable(format!("{what} of the header `{name}`"));
    let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_error| bad("the name"))?;
    let mut value =
        HeaderValue::from_str(value).map_err(|_error| bad("a character in the value"))?;
    value.set_sensitive(is_secret);
    Ok((key, value))
}

/// A body is as secret as the data it was made of.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("headers", &self.headers)
            .field("body", &self.body.len())
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// The client; it keeps connections for further calls to the same host.
pub struct Client {
    tls: ClientConfig,
    networks: Networks,
    /// Proxy of the environment for TLS; empty for none.
    proxy: String,
    proxies: Matcher,
    pools: Cache<String, reqwest::Client>,
}

impl Client {
    /// Makes a client that trusts the certificate authorities of this host and reaches only `networks`. Blocks while it
    /// reads certificates.
    pub fn new(environment: &Environment, networks: Networks) -> Result<Self, BadRoots> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3")
            .with_root_certificates(roots::trusted(environment)?)
            .with_no_client_auth();
        // The variables are not in the environment of this process, which its tools could read.
        let first = |names: [&str; 2]| {
            let value = names.into_iter().find_map(|name| environment.get(name));
            value.and_then(|value| value.to_str()).unwrap_or_default()
        };
        let proxy = match first(["HTTPS_PROXY", "https_proxy"]) {
            "" => first(["ALL_PROXY", "all_proxy"]),
            proxy => proxy,
        };
        let proxies = Matcher::builder()
            .https(proxy)
            .no(first(["NO_PROXY", "no_proxy"]));
        Ok(Self {
            tls,
            networks,
            proxy: proxy.to_owned(),
            proxies: proxies.build(),
            pools: cache::of_count(MOST_POOLS),
        })
    }

    /// Sends `request` once, and waits for the headers of the answer. Dropping the future closes the connection.
    pub async fn send(&self, request: Request) -> Result<HttpResponse, Failure> {
        let Request {
            method,
            url,
            headers,
            body,
            patience,
            is_exempt,
        } = request;
        let networks = if is_exempt {
            Networks::Any
        } else {
            self.networks
        };
        networks::check_literal(&url, networks)?;
        let pool = self.pool(&url, patience.connect, networks)?;
        let request = pool.request(method, url).headers(headers);
        // An empty body is left out: a GET has no content length.
        let request = if body.is_empty() {
            request
        } else {
            request.body(body)
        };
        let sent = request.send();
        let whole = patience.connect.saturating_add(patience.headers);
        let Ok(answered) = timeout(whole, sent).await else {
            let seconds = patience.headers.as_secs_f64();
            return Err(Failure::Unanswered(format!("no headers for {seconds} s")));
        };
        let body = answered.map_err(unanswered)?;
        let line = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
        if body.headers().iter().map(line).sum::<usize>() > MOST_HEADERS {
            return Err(Failure::Headers);
        }
        Ok(HttpResponse { body })
    }

    /// Connection pool for `url`. Only TLS goes through a proxy: plain HTTP was allowed for one host only. A proxy
    /// resolves names itself, so these are not checked.
    fn pool(
        &self,
        url: &Url,
        connect: Duration,
        networks: Networks,
    ) -> Result<Arc<reqwest::Client>, Failure> {
        let is_proxied = url.scheme() == "https" && self.has_proxy(url);
        let key = format!("{} {is_proxied} {networks}", connect.as_millis());
        self.pools.get_or_insert_with(&key, || {
            let builder = reqwest::Client::builder()
                .tls_backend_preconfigured(self.tls.clone())
                .http1_only()
                .http1_max_headers(MOST_HEADER_LINES)
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .referer(false)
                .connect_timeout(connect)
                .no_proxy();
            let builder = if is_proxied {
                let proxy = reqwest::Proxy::all(&self.proxy);
                builder.proxy(proxy.map_err(|error| Failure::Unsendable(error_text(error)))?)
            } else {
                builder.dns_resolver(Checked(networks))
            };
            let built = builder.build().map(Arc::new);
            built.map_err(|error| Failure::Unsendable(error_text(error)))
        })
    }

    /// True if the environment names a proxy for `url`.
    fn has_proxy(&self, url: &Url) -> bool {
        let url = url.as_str().parse();
        url.is_ok_and(|url| self.proxies.intercept(&url).is_some())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// An answer whose headers have arrived. Dropping it closes the connection, unless the whole body has arrived.
#[derive(Debug)]
pub struct HttpResponse {
    body: reqwest::Response,
}

impl HttpResponse {
    pub fn status(&self) -> u16 {
        self.body.status().as_u16()
    }

    /// The header `name`, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.body.headers().get(name)?.to_str().ok()
    }

    /// All headers; invalid UTF-8 becomes U+FFFD.
    pub fn headers(&self) -> Vec<(String, String)> {
        let headers = self.body.headers().iter();
        let texts = headers.map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            (name.as_str().to_owned(), value.into_owned())
        });
        texts.collect()
    }

    /// Reads the whole body. Fails if it is larger than `most` bytes, or is cut.
    pub async fn whole(mut self, most: usize) -> Result<Vec<u8>, Failure> {
        let mut whole = Vec::new();
        loop {
            let part = self.body.chunk().await;
            let Some(part) = part.map_err(|error| Failure::Cut(error_text(error)))? else {
                return Ok(whole);
            };
            if whole.len() + part.len() > most {
                return Err(Failure::TooLarge(most));
            }
            whole.extend_from_slice(&part);
        }
    }

    /// The first `most` bytes of the body that arrive within `patience`, for error messages.
    pub async fn beginning(&mut self, most: usize, patience: Duration) -> String {
        let mut beginning = Vec::new();
        let whole = async {
            while let Ok(Some(part)) = self.body.chunk().await {
                let room = most - beginning.len();
                beginning.extend_from_slice(&part[..part.len().min(room)]);
                if beginning.len() == most {
                    break;
                }
            }
        };
        // After a timeout or a cut, the bytes so far are the result.
        timeout(patience, whole).await.unwrap_or_default();
        String::from_utf8_lossy(&beginning).into_owned()
    }

    /// Reads the body as a stream of events.
    pub fn events(self) -> Events {
        Events {
            body: self.body,
            splitter: Splitter::default(),
            ready: VecDeque::new(),
            broken: None,
        }
    }
}

/// Events of an answer. Dropping it closes the connection.
#[derive(Debug)]
pub struct Events {
    body: reqwest::Response,
    splitter: Splitter,
    /// Events of the last part of the body.
    ready: VecDeque<Event>,
    /// Error that follows these events.
    broken: Option<Unreadable>,
}

impl Events {
    /// Same as [`Events::next`], with a timeout. Cancel safe.
    pub async fn next_within(&mut self, patience: Duration) -> Result<Option<Event>, Failure> {
        timeout(patience, self.next())
            .await
            .unwrap_or(Err(Failure::Silent(patience)))
    }

    /// Returns the next event; `None` if the body ended properly. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if let Some(broken) = self.broken {
                return Err(broken.into());
            }
            let part = self.body.chunk().await;
            let Some(part) = part.map_err(|error| Failure::Cut(error_text(error)))? else {
                return Ok(None);
            };
            let ready = &mut self.ready;
            self.broken = self
                .splitter
                .push(&part, |event| ready.push_back(event))
                .err();
        }
    }
}

fn unanswered(error: reqwest::Error) -> Failure {
    if error.is_builder() {
        Failure::Unsendable(error_text(error))
    } else if let Some(refused) =
        chain(&error).find_map(|error| error.downcast_ref::<RefusedAddress>())
    {
        refused.clone().into()
    } else if !error.is_connect() {
        Failure::Unanswered(error_text(error))
    } else if is_refused_certificate(&error) {
        Failure::Certificate(error_text(error))
    } else {
        Failure::Connect(error_text(error))
    }
}

/// The innermost source of an error, which is the most specific.
fn error_text(error: reqwest::Error) -> String {
    let error = error.without_url();
    let innermost = chain(&error).last();
    innermost.map_or_else(String::new, ToString::to_string)
}

fn is_refused_certificate(error: &reqwest::Error) -> bool {
    chain(error)
        .filter_map(|error| error.downcast_ref::<rustls::Error>())
        .any(|error| matches!(error, rustls::Error::InvalidCertificate(_)))
}

/// `error` and its sources.
fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let first: &(dyn StdError + 'static) = error;
    std::iter::successors(Some(first), |error| reason(*error))
}

/// Source of `error`. The `source` of an I/O error skips the error it wraps, so that one is read directly.
fn reason<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e (dyn StdError + 'static)> {
    let held = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match held {
        Some(held) => Some(held),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests;
