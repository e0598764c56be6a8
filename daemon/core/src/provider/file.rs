//! Provider files.

mod models;

use serde_json::Value;

use super::endpoint::{Auth, BaseUrl, Endpoint, HeaderValue, Owner, Timeouts};
use super::protocol::Api;
use super::quirks::{
    CacheMarks, EndMark, IdRule, IndexRule, MaxTokensField, Quirks, ReasoningReplay, SystemRole,
    UsageReport,
};
use super::url;
use super::vendor::Provider;
use crate::clock::Timestamp;
use crate::definition::keys::Keys;
use crate::definition::read::{At, Reader, brief};
use crate::definition::{Finding, Severity};
use crate::directive::CallStart;
use crate::id::ItemId;
use crate::yaml::{self, Document};

pub(super) use models::prices;

/// Most calls of one message at once, whatever a file says.
const MOST_PARALLEL: u32 = 25;

const fn keys(what: &'static str, known: &'static [&'static str]) -> Keys {
    Keys {
        what,
        known,
        misplaced: &[],
    }
}

const FILE: Keys = Keys {
    misplaced: &[
        ("timeout", "write timeouts: {idle: 300}"),
        ("pricing", "write `prices` at each model"),
    ],
    ..keys(
        "a provider file",
        &[
            "version",
            "category",
            "name",
            "description",
            "author",
            "tags",
            "api",
            "base_url",
            "path",
            "headers",
            "auth",
            "max_concurrent",
            "timeouts",
            "quirks",
            "tools",
            "as_of",
            "source",
            "open",
            "insecure",
            "profiles",
            "models",
        ],
    )
};
const ENV: Keys = keys("an address", &["env", "default"]);
const HEADER: Keys = keys("the value of a header", &["env"]);
const AUTH: Keys = keys("an entry of `auth`", &["header", "prefix", "secret"]);
const TIMEOUTS: Keys = keys("`timeouts`", &["connect", "headers", "first_event", "idle"]);
const QUIRKS_ANTHROPIC: Keys = keys("`quirks` of the api anthropic", &["end", "cache"]);
const QUIRKS_CHAT: Keys = keys(
    "`quirks` of the api openai_chat",
    &[
        "end",
        "usage",
        "tool_ids",
        "tool_index",
        "system",
        "max_tokens_field",
        "reasoning_replay",
    ],
);
const TOOLS: Keys = keys("`tools`", &["mode", "start", "max_parallel"]);
/// Reads a file; the provider is `None` after an error that leaves a part without a value.
pub(super) fn read(
    document: &Document,
    id: &ItemId,
    owner: Owner,
) -> (Option<Provider>, Vec<Finding>) {
    let mut file = File {
        reader: Reader::new(document),
    };
    let provider = file.provider(id, owner);
    (provider, file.reader.finish())
}

struct File<'d> {
    reader: Reader<'d>,
}

impl<'d> File<'d> {
    fn provider(&mut self, id: &ItemId, owner: Owner) -> Option<Provider> {
        let root = self.reader.root();
        self.reader.map(&root, &FILE)?;
        self.labels(&root, id);
        let api = self.api(&root)?;
        let endpoint = self.endpoint(&root, owner);
        let quirks = self.quirks(&root, api);
        let (start, max_parallel) = self.tools(&root);
        let profiles = self.profiles(&root);
        let models = self.models(&root, &profiles, api);
        let as_of = self.as_of(&root);
        Some(Provider {
            name: id.name().to_owned(),
            api,
            endpoint: endpoint?,
            quirks,
            start,
            max_parallel,
            as_of,
            open: self.reader.switch(&root, "open").unwrap_or(false),
            models,
            profiles,
        })
    }

    fn labels(&mut self, root: &At<'d>, id: &ItemId) {
        let reader = &mut self.reader;
        reader.required_text(root, "version", "write version: \"1.0.0\"");
        let why = "it is the folder of the file below `.ai/config`";
        let category = reader.required_text(root, "category", why);
        let name = reader.required_text(root, "name", "it is the name of the file");
        for (key, found, wanted) in [
            ("category", category, id.category()),
            ("name", name, id.name()),
        ] {
            if let Some(found) = found
                && found != wanted
                && let Some(at) = root.child(key)
            {
                let message =
                    format!("`{key}` is `{found}`, the place of the file says `{wanted}`");
                reader.error("wrong_name", &at, message);
            }
        }
        if !is_plain(id.name()) {
            let message = "the name of a provider holds letters, digits, `_` and `-` only";
            reader.error("bad_name", root, message);
        }
        for key in ["description", "author", "source"] {
            reader.text(root, key);
        }
        if let Some(tags) = root.given("tags") {
            reader.texts(&tags);
        }
    }

    fn api(&mut self, root: &At<'d>) -> Option<Api> {
        let why = "it says how the provider is talked to: anthropic or openai_chat";
        let word = self.reader.required_text(root, "api", why)?;
        let at = root.child("api")?;
        match word {
            "anthropic" => Some(Api::Anthropic),
            "openai_chat" => Some(Api::OpenaiChat),
            "openai_responses" | "gemini" => {
                self.reader.not_supported(&at, &format!("the api `{word}`"));
                None
            }
            _ => {
                let message =
                    format!("there is no api `{word}`; there are anthropic and openai_chat");
                self.reader.error("unknown_value", &at, message);
                None
            }
        }
    }

    fn endpoint(&mut self, root: &At<'d>, owner: Owner) -> Option<Endpoint> {
        let base_url = self.base_url(root, owner);
        let path = self.path(root);
        let headers = self.headers(root);
        let auth = self.auth(root);
        let max_concurrent = self.reader.whole(root, "max_concurrent", 1);
        let timeouts = self.timeouts(root);
        Some(Endpoint {
            owner,
            base_url: base_url?,
            path: path?,
            headers,
            auth,
            max_concurrent: max_concurrent.unwrap_or(64),
            timeouts,
        })
    }

    fn base_url(&mut self, root: &At<'d>, owner: Owner) -> Option<BaseUrl> {
        let insecure = self.reader.switch(root, "insecure").unwrap_or(false);
        if insecure
            && owner == Owner::Project
            && let Some(at) = root.child("insecure")
        {
            let message = "a file of a project cannot be `insecure`; write one in your own space";
            self.reader.error("denied", &at, message);
        }
        let Some(at) = root.given("base_url") else {
            let message = "`base_url` is missing: it says where the provider is";
            self.reader.error("missing_key", root, message);
            return None;
        };
        let (env, default) = if at.value.is_string() {
            (None, self.reader.text(root, "base_url"))
        } else {
            self.reader.map(&at, &ENV)?;
            let env = self.variable(&at);
            (Some(env?), self.reader.text(&at, "default"))
        };
        if let Some(default) = default
            && let Err(problem) = url::check(default.trim_end_matches('/'), insecure)
        {
            self.reader.error("bad_url", &at, problem);
            return None;
        }
        Some(BaseUrl {
            env,
            default: default.map(ToOwned::to_owned),
            insecure,
        })
    }

    /// The name below `env`.
    fn variable(&mut self, at: &At<'d>) -> Option<String> {
        let why = "it names a variable of the environment";
        let name = self.reader.required_text(at, "env", why)?;
        self.secret_name(at, "env", name)
    }

    /// A name of a variable or a secret.
    fn secret_name(&mut self, at: &At<'d>, key: &str, name: &str) -> Option<String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.len() > 128 || !name.chars().all(plain) {
            let at = at.child(key)?;
            // What stands here by mistake may be the secret itself, which must not be repeated.
            let message =
                format!("`{key}` is a name of letters, digits and `_`, like ANTHROPIC_API_KEY");
            self.reader.error("bad_name", &at, message);
            return None;
        }
        Some(name.to_owned())
    }

    fn path(&mut self, root: &At<'d>) -> Option<String> {
        let why = "it is appended to `base_url`, like /v1/messages";
        let path = self.reader.required_text(root, "path", why)?;
        let rest = path.replace("{model}", "");
        let fine = path.starts_with('/')
            && !rest.contains(['{', '}', '#', '\\'])
            && !rest.split('/').any(|segment| segment == "..")
            && rest.chars().all(|c| c.is_ascii_graphic());
        if !fine && let Some(at) = root.child("path") {
            let message = "`path` begins with `/` and holds no placeholder but {model}";
            self.reader.error("bad_url", &at, message);
        }
        Some(path.to_owned())
    }

    fn headers(&mut self, root: &At<'d>) -> Vec<(String, HeaderValue)> {
        let Some(at) = root.given("headers") else {
            return Vec::new();
        };
        let Value::Object(map) = at.value else {
            self.reader.wrong_type(&at, "a map of headers");
            return Vec::new();
        };
        let mut headers = Vec::new();
        for name in map.keys() {
            let Some(child) = at.child(name) else {
                continue;
            };
            self.header_name(&child, name);
            let value = if child.value.is_object() {
                self.reader
                    .map(&child, &HEADER)
                    .and_then(|_| self.variable(&child))
                    .map(HeaderValue::Env)
            } else {
                let text = self.reader.text(&at, name);
                text.and_then(|text| self.header_text(&child, text))
                    .map(HeaderValue::Text)
            };
            headers.extend(value.map(|value| (name.to_ascii_lowercase(), value)));
        }
        headers
    }

    fn header_name(&mut self, at: &At<'d>, name: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(plain) {
            let message = "the name of a header holds letters, digits and `-`";
            self.reader.key_error("bad_header", at, message);
        }
        let ours = [
            "accept",
            "accept-encoding",
            "host",
            "content-length",
            "content-type",
            "transfer-encoding",
            "connection",
            "user-agent",
        ];
        if ours.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            let message = format!("the header `{name}` is set by Rye");
            self.reader.key_error("bad_header", at, message);
        }
    }

    fn header_text(&mut self, at: &At<'d>, text: &str) -> Option<String> {
        let fine = text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        if !fine {
            let message = "a header holds visible ASCII characters and blanks";
            self.reader.error("bad_header", at, message);
        }
        fine.then(|| text.to_owned())
    }

    fn auth(&mut self, root: &At<'d>) -> Vec<Auth> {
        let Some(at) = root.given("auth") else {
            return Vec::new();
        };
        let entries = self
            .reader
            .entries(&at, "a list of {header, prefix, secret}");
        let entries = entries.unwrap_or_default();
        entries.iter().filter_map(|at| self.one_auth(at)).collect()
    }

    fn one_auth(&mut self, at: &At<'d>) -> Option<Auth> {
        self.reader.map(at, &AUTH)?;
        let header = self
            .reader
            .required_text(at, "header", "it carries the secret");
        if let (Some(header), Some(at)) = (header, at.child("header")) {
            self.header_name(&at, header);
        }
        let prefix = match (self.reader.text(at, "prefix"), at.child("prefix")) {
            (Some(prefix), Some(at)) => self.header_text(&at, prefix),
            _ => Some(String::new()),
        };
        let why = "it is the name of the secret, never the secret itself";
        let secret = self.reader.required_text(at, "secret", why)?;
        let secret = self.secret_name(at, "secret", secret)?;
        Some(Auth {
            header: header?.to_ascii_lowercase(),
            prefix: prefix?,
            secret,
        })
    }

    fn timeouts(&mut self, root: &At<'d>) -> Timeouts {
        let mut seconds = |key: &str, default: u32| {
            let at = root.given("timeouts");
            let given = at.and_then(|at| self.reader.whole(&at, key, 1));
            given.unwrap_or(default)
        };
        let timeouts = Timeouts {
            connect: seconds("connect", 10),
            headers: seconds("headers", 120),
            first_event: seconds("first_event", 300),
            idle: seconds("idle", 300),
        };
        if let Some(at) = root.given("timeouts") {
            self.reader.map(&at, &TIMEOUTS);
        }
        timeouts
    }

    fn quirks(&mut self, root: &At<'d>, api: Api) -> Quirks {
        let Some(at) = root.given("quirks") else {
            return Quirks::default();
        };
        let keys = match api {
            Api::Anthropic => &QUIRKS_ANTHROPIC,
            Api::OpenaiChat => &QUIRKS_CHAT,
        };
        if self.reader.map(&at, keys).is_none() {
            return Quirks::default();
        }
        Quirks {
            end: self.word(&at, "end", EndMark::WORDS),
            cache: self.word(&at, "cache", CacheMarks::WORDS),
            usage: self.word(&at, "usage", UsageReport::WORDS),
            tool_ids: self.word(&at, "tool_ids", IdRule::WORDS),
            tool_index: self.word(&at, "tool_index", IndexRule::WORDS),
            system: self.word(&at, "system", SystemRole::WORDS),
            max_tokens_field: self.word(&at, "max_tokens_field", MaxTokensField::WORDS),
            reasoning_replay: self.word(&at, "reasoning_replay", ReasoningReplay::WORDS),
        }
    }

    /// The value of a quirk.
    fn word<T: Copy + Default>(&mut self, at: &At<'d>, key: &str, words: &[(&str, T)]) -> T {
        self.reader.word(at, key, words).unwrap_or_default()
    }

    fn tools(&mut self, root: &At<'d>) -> (CallStart, u32) {
        let Some(at) = root.given("tools") else {
            return (CallStart::default(), MOST_PARALLEL);
        };
        self.reader.map(&at, &TOOLS);
        let modes = [("native", false), ("text", true)];
        if self.reader.word(&at, "mode", &modes) == Some(true)
            && let Some(mode) = at.child("mode")
        {
            self.reader.not_supported(&mode, "the mode `text` of tools");
        }
        let starts = [
            ("streaming", CallStart::Streaming),
            ("message", CallStart::Message),
        ];
        let start = self.reader.word(&at, "start", &starts).unwrap_or_default();
        let most = self.reader.whole(&at, "max_parallel", 1);
        (start, most.unwrap_or(MOST_PARALLEL).min(MOST_PARALLEL))
    }

    fn as_of(&mut self, root: &At<'d>) -> Option<Timestamp> {
        let text = self.reader.text(root, "as_of")?;
        let date = Timestamp::parse(&format!("{text}T00:00:00Z"));
        if date.is_none()
            && let Some(at) = root.child("as_of")
        {
            let message = format!(
                "`as_of` is a date like 2026-11-20, not `{}`",
                brief(at.value)
            );
            self.reader.error("wrong_type", &at, message);
        }
        date
    }
}

/// Whether a name may stand before the `/` of `provider/model`.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.chars().all(plain)
}

impl Provider {
    /// Reads the provider file `id`, which belongs to `owner`: the provider with warnings, or all errors and warnings.
    pub fn parse(
        text: &str,
        id: &ItemId,
        owner: Owner,
    ) -> Result<(Self, Vec<Finding>), Vec<Finding>> {
        let document = yaml::parse(text).map_err(|fault| vec![Finding::of_yaml(fault)])?;
        let (provider, findings) = read(&document, id, owner);
        match provider {
            Some(provider) if findings.iter().all(|f| f.severity == Severity::Warning) => {
                Ok((provider, findings))
            }
            Some(_) | None => Err(findings),
        }
    }
}
