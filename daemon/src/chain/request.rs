//! The request that a tool of the HTTP primitive describes.
//!
//! The tool sets scheme, host and port. Parameters of a caller fill slots: one percent-encoded segment of the path, a
//! whole value of the query or of a header, a typed value in the body. `${NAME}` of the chain's environment is allowed
//! only in `auth` and `headers`. Values with it are secret.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rye_core::declared::Fields as _;
use rye_core::model::{Effect, Object};
use serde_json::{Value, json};

use super::environment::Environment;
use super::error::Error;
use super::fields::{close_keys, malformed};
use super::template::{Settings, slot_name};
use super::terminal::HTTP;
use super::verified::Chain;
use crate::http::Url;
use crate::mcp::Remote;

/// Keys of `config` for HTTP tools.
pub(super) const KEYS: [&str; 10] = [
    "method", "url", "query", "headers", "body", "auth", "retry", "success", "timeout", "env",
];
pub(super) const AUTH_KEYS: [&str; 6] = ["type", "token", "key", "header", "user", "password"];
pub(super) const RETRY_KEYS: [&str; 2] = ["max_attempts", "backoff"];
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Headers that control the transmission, which a tool cannot set.
const OWN_HEADERS: [&str; 4] = ["host", "content-length", "transfer-encoding", "connection"];
const NOT_SET: &str = "is not a header that a tool may set";

/// Maximum number of attempts of one call.
const MOST_ATTEMPTS: u64 = 10;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Characters that are not encoded in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Pause before another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// One second.
    Fixed,
    /// 1, 2, 4 seconds and so on.
    Exponential,
}

#[derive(Clone)]
pub struct Header {
    pub name: String,
    pub value: String,
    /// True if the value is never shown.
    pub is_secret: bool,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A request, and the interpretation of its answer.
#[derive(Clone)]
pub struct RequestPlan {
    pub method: &'static str,
    pub url: Url,
    pub headers: Vec<Header>,
    pub body: Option<Vec<u8>>,
    /// Maximum number of attempts.
    pub attempts: u32,
    pub backoff: Backoff,
    /// True if the request is not sent again once it may have arrived.
    pub at_most_once: bool,
    /// Statuses of success; an empty list means 200 to 399.
    pub success: Vec<u16>,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Maximum duration of the call with all attempts and pauses.
    pub max_duration: Option<Duration>,
    /// Values that are redacted in answers. The longest is first, because one may be part of another.
    pub secrets: Vec<String>,
}

/// Omits values of headers, the query and the body, which may contain secrets.
impl fmt::Debug for RequestPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestPlan")
            .field("method", &self.method)
            .field("host", &self.url.host_str())
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

impl RequestPlan {
    pub fn is_success(&self, status: u16) -> bool {
        if self.success.is_empty() {
            (200..400).contains(&status)
        } else {
            self.success.contains(&status)
        }
    }

    /// Description for a preview, without the values of headers.
    pub(super) fn described(&self) -> Value {
        let names = self.headers.iter().map(|header| header.name.as_str());
        json!({
            "primitive": HTTP,
            "method": self.method,
            "url": self.url.as_str(),
            "headers": names.collect::<Vec<_>>(),
            "body_bytes": self.body.as_ref().map_or(0, Vec::len),
            "max_attempts": self.attempts,
            "timeout": self.timeout.as_secs_f64(),
        })
    }
}

/// Plans the request of `chain` with `params`.
pub(super) fn plan(
    chain: &Chain,
    params: &Object,
    environment: &Environment,
) -> Result<RequestPlan, Error> {
    let settings = Settings::merge(chain, &KEYS)?;
    let maker = Maker {
        chain,
        settings: &settings,
        params,
        environment,
    };
    maker.make()
}

/// Returns the address of an MCP server, and the headers of each request to it.
pub(super) fn server(
    settings: &Settings<'_>,
    chain: &Chain,
    environment: &Environment,
) -> Result<Remote, Error> {
    let maker = Maker {
        chain,
        settings,
        params: &Object::new(),
        environment,
    };
    let (headers, secrets) = maker.all_headers()?;
    let headers = headers.into_iter();
    Ok(Remote {
        url: maker.url()?,
        headers: headers
            .map(|header| (header.name, header.value, header.is_secret))
            .collect(),
        secrets,
    })
}

struct Maker<'a> {
    chain: &'a Chain,
    settings: &'a Settings<'a>,
    params: &'a Object,
    environment: &'a Environment,
}

impl Maker<'_> {
    fn make(&self) -> Result<RequestPlan, Error> {
        let (mut headers, secrets) = self.all_headers()?;
        let body = self.body(&mut headers)?;
        let (attempts, backoff) = self.retry()?;
        Ok(RequestPlan {
            method: self.method()?,
            url: self.url()?,
            headers,
            body,
            attempts,
            backoff,
            at_most_once: self.chain.effect() == Some(Effect::AtMostOnce),
            success: self.success()?,
            timeout: self.settings.seconds("timeout")?.unwrap_or(DEFAULT_TIMEOUT),
            max_duration: None,
            secrets,
        })
    }

    /// Returns the headers, and the values that are redacted in answers, longest first.
    fn all_headers(&self) -> Result<(Vec<Header>, Vec<String>), Error> {
        let mut secrets = Vec::new();
        let mut headers = self.headers(&mut secrets)?;
        headers.extend(self.auth(&mut secrets)?);
        secrets.sort_by(|one: &String, other| (other.len(), other).cmp(&(one.len(), one)));
        secrets.dedup();
        Ok((headers, secrets))
    }

    fn wrong(&self, field: &str, problem: &str) -> Error {
        let key = field.split('.').next().unwrap_or(field);
        self.settings.malformed_below(key, field, problem)
    }

    /// Returns the value of the parameter `name`, or `None` if it is not set. The tool must declare it.
    fn param(&self, field: &str, name: &str) -> Result<Option<&Value>, Error> {
        let schema = self.chain.schema();
        let declared = schema.is_some_and(|schema| schema["properties"].get(name).is_some());
        if !declared {
            let problem = format!("names `{{{name}}}`; declare it in `config_schema.properties`");
            return Err(self.wrong(field, &problem));
        }
        Ok(self.params.get(name).filter(|value| !value.is_null()))
    }

    fn refuse(&self, name: &str, problem: &str) -> Error {
        self.chain.refuse_params(format!("`{name}` {problem}"))
    }

    fn method(&self) -> Result<&'static str, Error> {
        let asked = self.settings.text("method")?.unwrap_or("GET");
        let known = METHODS.into_iter().find(|known| *known == asked);
        known.ok_or_else(|| self.wrong("method", &format!("must be one of {}", METHODS.join(", "))))
    }

    fn url(&self) -> Result<Url, Error> {
        let wrong = |problem: &str| self.wrong("url", problem);
        let template = self
            .settings
            .text("url")?
            .ok_or_else(|| wrong("is missing"))?;
        let (scheme, rest) = template.split_once("://").unwrap_or_default();
        if !matches!(scheme, "http" | "https") {
            return Err(wrong("must begin with `https://` or `http://`"));
        }
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (host, behind) = rest.split_at(end);
        if host.is_empty() || host.contains(['{', '$', '@']) {
            return Err(wrong(
                "must name its host in the text, without a slot and without a user",
            ));
        }
        let (path, query) = behind
            .split_once('?')
            .map_or((behind, None), |(path, query)| (path, Some(query)));
        if behind.contains('#') || query.is_some_and(|query| query.contains('{')) {
            return Err(wrong(
                "may not hold a `#`, nor a slot after its `?`: use `config.query`",
            ));
        }
        let path = self.path(path)?;
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        let mut url = Url::parse(&format!("{scheme}://{host}{path}{query}"))
            .map_err(|error| wrong(&format!("is no address: {error}")))?;
        for (name, template) in self.settings.mapping("query")?.into_iter().flatten() {
            for value in self.scalars(&format!("query.{name}"), template)? {
                let _pairs = url.query_pairs_mut().append_pair(name, &value);
            }
        }
        Ok(url)
    }

    /// Fills the slots of the path. Each value becomes one segment, and none may be `.` or `..`.
    fn path(&self, template: &str) -> Result<String, Error> {
        let mut path = String::new();
        let mut rest = template;
        while let Some((before, behind)) = rest.split_once('{') {
            let Some((name, after)) = behind.split_once('}') else {
                return Err(self.wrong("url", "holds a `{` that no `}` closes"));
            };
            let given = self.param("url", name)?;
            let text = given.and_then(scalar).filter(|text| !text.is_empty());
            let text = text
                .ok_or_else(|| self.refuse(name, "must be a text or a number that is not empty"))?;
            path.push_str(before);
            path.extend(utf8_percent_encode(&text, SEGMENT));
            rest = after;
        }
        path.push_str(rest);
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            let message = "a part of the path may not be `.` or `..`".to_owned();
            return Err(self.chain.refuse_params(message));
        }
        Ok(path)
    }

    /// Returns the texts for a value of the query or of a header. The list is empty if it is a slot that is not set.
    fn scalars(&self, field: &str, template: &Value) -> Result<Vec<String>, Error> {
        let slot = template.as_str().and_then(slot_name);
        let Some(name) = slot else {
            let text = scalar(template);
            let text =
                text.ok_or_else(|| self.wrong(field, "must be a text, a number or a slot"))?;
            return Ok(vec![text]);
        };
        let Some(value) = self.param(field, name)? else {
            return Ok(Vec::new());
        };
        let texts = match value.as_array() {
            Some(list) => list.iter().map(scalar).collect(),
            None => scalar(value).map(|text| vec![text]),
        };
        texts.ok_or_else(|| self.refuse(name, "must be a text, a number or a list of these"))
    }

    fn headers(&self, secrets: &mut Vec<String>) -> Result<Vec<Header>, Error> {
        let mut headers = Vec::new();
        for (name, template) in self.settings.mapping("headers")?.into_iter().flatten() {
            let field = format!("headers.{name}");
            if !may_be_set(name) {
                return Err(self.wrong(&field, NOT_SET));
            }
            if let Some(text) = template.as_str().filter(|text| text.contains("${")) {
                let value = self.secret(&field, text, secrets)?;
                headers.push(header(name, &value, true));
                secrets.push(value);
                continue;
            }
            for value in self.scalars(&field, template)? {
                if !is_header_value(&value) {
                    let problem =
                        "cannot be sent: a header holds no line ends and no control characters";
                    return Err(self.chain.refuse_params(format!("`{field}` {problem}")));
                }
                headers.push(header(name, &value, false));
            }
        }
        Ok(headers)
    }

    /// Expands the variables in `text`. Adds the value of each of them to `secrets`, because an answer may contain it
    /// alone.
    fn secret(&self, field: &str, text: &str, secrets: &mut Vec<String>) -> Result<String, Error> {
        let wrong = |problem: &str| self.wrong(field, problem);
        let expanded = self
            .environment
            .expand(text)
            .map_err(|problem| wrong(&problem))?;
        let value = expanded.text.into_string().ok();
        let value = value
            .filter(|value| is_header_value(value))
            .ok_or_else(|| wrong("becomes a value that no header can hold"))?;
        let values = expanded.values.into_iter();
        secrets.extend(values.filter_map(|value| value.into_string().ok()));
        Ok(value)
    }

    /// Returns the header that `auth` describes. It must not be in `headers` too.
    fn auth(&self, secrets: &mut Vec<String>) -> Result<Option<Header>, Error> {
        let Some(auth) = self.settings.mapping("auth")? else {
            return Ok(None);
        };
        if let Some(element) = self.settings.setter("auth") {
            close_keys(element, "config.auth", auth, &AUTH_KEYS)?;
        }
        let mut text = |key: &str| -> Result<String, Error> {
            let field = format!("auth.{key}");
            let text = auth.get(key).and_then(Value::as_str);
            let text = text.ok_or_else(|| self.wrong(&field, "must be a text"))?;
            let value = self.secret(&field, text, secrets)?;
            // A user name is no secret, unless it is the value of a variable.
            if key != "user" {
                secrets.push(value.clone());
            }
            Ok(value)
        };
        let made = match auth.get("type").and_then(Value::as_str) {
            Some("bearer") => {
                let token = text("token")?;
                header("Authorization", &format!("Bearer {token}"), true)
            }
            Some("api_key") => {
                let key = text("key")?;
                let name = auth.get("header").and_then(Value::as_str);
                let name = name.unwrap_or("X-API-Key");
                if !may_be_set(name) {
                    return Err(self.wrong("auth.header", NOT_SET));
                }
                header(name, &key, true)
            }
            Some("basic") => {
                let (user, password) = (text("user")?, text("password")?);
                let pair = BASE64.encode(format!("{user}:{password}"));
                let made = header("Authorization", &format!("Basic {pair}"), true);
                secrets.push(pair);
                made
            }
            _ => return Err(self.wrong("auth.type", "must be `bearer`, `api_key` or `basic`")),
        };
        let headers = self.settings.mapping("headers")?.into_iter().flatten();
        let mut others = headers.map(|(name, _)| name);
        if let Some(name) = others.find(|name| name.eq_ignore_ascii_case(&made.name)) {
            let field = format!("headers.{name}");
            return Err(self.wrong(&field, "is set by `config.auth`, too; drop one of them"));
        }
        Ok(Some(made))
    }

    /// Returns the body: a text unchanged, any other value as JSON.
    fn body(&self, headers: &mut Vec<Header>) -> Result<Option<Vec<u8>>, Error> {
        let Some(template) = self.settings.given("body") else {
            return Ok(None);
        };
        let Some(body) = self.filled("body", template)? else {
            return Ok(None);
        };
        let (bytes, kind) = match body.as_str() {
            Some(text) => (text.as_bytes().to_vec(), "text/plain; charset=utf-8"),
            None => (body.to_string().into_bytes(), "application/json"),
        };
        let is_named = |header: &Header| header.name.eq_ignore_ascii_case("content-type");
        if !headers.iter().any(is_named) {
            headers.push(header("Content-Type", kind, false));
        }
        Ok(Some(bytes))
    }

    /// Fills the slots in `template` with typed parameters. `None` if it is a slot that is not set.
    fn filled(&self, field: &str, template: &Value) -> Result<Option<Value>, Error> {
        Ok(match template {
            Value::String(text) => match slot_name(text) {
                Some(name) => self.param(field, name)?.cloned(),
                None => Some(template.clone()),
            },
            Value::Array(list) => {
                let filled = list.iter().map(|entry| self.filled(field, entry));
                let filled = filled.collect::<Result<Vec<_>, _>>()?;
                Some(filled.into_iter().flatten().collect())
            }
            Value::Object(map) => {
                let mut filled = Object::new();
                for (key, entry) in map {
                    let value = self.filled(&format!("{field}.{key}"), entry)?;
                    filled.extend(value.map(|value| (key.clone(), value)));
                }
                Some(Value::Object(filled))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(template.clone()),
        })
    }

    fn retry(&self) -> Result<(u32, Backoff), Error> {
        let Some(retry) = self.settings.mapping("retry")? else {
            return Ok((1, Backoff::Exponential));
        };
        if let Some(element) = self.settings.setter("retry") {
            close_keys(element, "config.retry", retry, &RETRY_KEYS)?;
        }
        let attempts = match retry.get("max_attempts") {
            None => Some(3),
            Some(value) => {
                let asked = value.as_u64().filter(|n| (1..=MOST_ATTEMPTS).contains(n));
                asked.and_then(|n| u32::try_from(n).ok())
            }
        };
        let wrong = |field: &str, problem: &str| self.wrong(&format!("retry.{field}"), problem);
        let problem = format!("must be a number from 1 to {MOST_ATTEMPTS}");
        let attempts = attempts.ok_or_else(|| wrong("max_attempts", &problem))?;
        let backoff = match retry.get("backoff").map(|backoff| backoff.as_str()) {
            None | Some(Some("exponential")) => Backoff::Exponential,
            Some(Some("fixed")) => Backoff::Fixed,
            Some(_) => return Err(wrong("backoff", "must be `exponential` or `fixed`")),
        };
        Ok((attempts, backoff))
    }

    fn success(&self) -> Result<Vec<u16>, Error> {
        let Some(asked) = self.settings.given("success") else {
            return Ok(Vec::new());
        };
        let status = |value: &Value| {
            let number = value.as_u64().filter(|n| (100..600).contains(n))?;
            u16::try_from(number).ok()
        };
        let statuses = asked.as_array().filter(|list| !list.is_empty());
        let statuses = statuses.and_then(|list| list.iter().map(status).collect());
        statuses.ok_or_else(|| {
            let problem = "must be a list of statuses such as [200, 404]";
            match self.settings.setter("success") {
                Some(element) => malformed(element, "config.success", problem),
                None => self.wrong("success", problem),
            }
        })
    }
}

fn header(name: &str, value: &str, is_secret: bool) -> Header {
    Header {
        name: name.to_owned(),
        value: value.to_owned(),
        is_secret,
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// True if `name` is a valid header name.
fn is_token(name: &str) -> bool {
    let is_sign = |byte: u8| b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || is_sign(byte))
}

fn may_be_set(name: &str) -> bool {
    is_token(name) && !OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str())
}

fn is_header_value(value: &str) -> bool {
    !value.chars().any(|c| c.is_control() && c != '\t')
}
