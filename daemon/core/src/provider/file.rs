//! Provider files.

mod models;

use super::endpoint::{Auth, BaseUrl, Endpoint, HeaderValue, Owner, Timeouts};
use super::protocol::Api;
use super::quirks::{
    CacheMarks, EndMark, IdRule, IndexRule, MaxTokensField, Quirks, ReasoningReplay, SystemRole,
    UsageReport,
};
use super::url;
use super::vendor::Provider;
use crate::clock::Timestamp;
use crate::declared::{self, At, Finding, ITEM, Key, Keys, shorten};
use crate::directive::CallStart;
use crate::id::ItemId;
use crate::yaml;

pub(super) use models::prices;

/// Most calls of one message at once, whatever a file says.
const MOST_PARALLEL: u32 = 25;

const FILE: Keys = Keys {
    required: &[
        ("version", "write version: \"1.0.0\""),
        (
            "category",
            "it is the folder of the file below `.ai/config`",
        ),
        ("name", "it is the name of the file"),
        (
            "api",
            "it says how the provider is talked to: anthropic or openai_chat",
        ),
        ("path", "it is appended to `base_url`, like /v1/messages"),
    ],
    misplaced: &[
        ("timeout", "write timeouts: {idle: 300}"),
        ("pricing", "write `prices` at each model"),
    ],
    ..Keys::new(
        "a provider file",
        &[
            ITEM,
            Key::named(&[
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
                REQUIRES,
            ]),
        ],
    )
};
/// A key of the original, without effect.
const REQUIRES: &str = "requires";
const VARIABLE: (&str, &str) = ("env", "it names a variable of the environment");
const ENV: Keys = Keys {
    required: &[VARIABLE],
    ..Keys::new("an address", &[Key::named(&["env", "default"])])
};
const HEADER: Keys = Keys {
    required: &[VARIABLE],
    ..Keys::new("the value of a header", &[Key::named(&["env"])])
};
const AUTH: Keys = Keys {
    required: &[
        ("header", "it carries the secret"),
        (
            "secret",
            "it is the name of the secret, never the secret itself",
        ),
    ],
    ..Keys::new(
        "an entry of `auth`",
        &[Key::named(&["header", "prefix", "secret"])],
    )
};
const TIMEOUTS: Keys = Keys::new(
    "`timeouts`",
    &[Key::named(&["connect", "headers", "first_event", "idle"])],
);
const QUIRKS_ANTHROPIC: Keys = Keys::new(
    "`quirks` of the api anthropic",
    &[Key::named(&["end", "cache"])],
);
const QUIRKS_CHAT: Keys = Keys::new(
    "`quirks` of the api openai_chat",
    &[Key::named(&[
        "end",
        "usage",
        "tool_ids",
        "tool_index",
        "system",
        "max_tokens_field",
        "reasoning_replay",
    ])],
);
const TOOLS: Keys = Keys::new("`tools`", &[Key::named(&["mode", "start", "max_parallel"])]);

/// The context of a reader of provider files, which needs nothing else.
pub(super) struct ProviderFile;

pub(super) type Reader<'d> = declared::Reader<'d, ProviderFile>;

impl<'d> Reader<'d> {
    fn provider(&mut self, id: &ItemId, owner: Owner) -> Option<Provider> {
        let root = self.root();
        self.map(&root, &FILE)?;
        if let Some(at) = root.child(REQUIRES) {
            let message = format!("`{REQUIRES}` has no effect; nothing here reads it");
            self.warn("no_effect", at.named(), message);
        }
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
            open: self.switch(&root, "open").unwrap_or(false),
            models,
            profiles,
        })
    }

    fn labels(&mut self, root: &At<'d>, id: &ItemId) {
        self.text(root, "version");
        let category = self.text(root, "category");
        let name = self.text(root, "name");
        for (key, found, wanted) in [
            ("category", category, id.category()),
            ("name", name, id.name()),
        ] {
            if let Some(found) = found.filter(|found| *found != wanted) {
                let message =
                    format!("`{key}` is `{found}`, by the place of the file it is `{wanted}`");
                self.error("wrong_name", root.at(&format!("/{key}")), message);
            }
        }
        if !is_plain(id.name()) {
            let message = "the name of a provider holds letters, digits, `_` and `-` only";
            self.error("bad_name", root, message);
        }
        for key in ["description", "author", "source"] {
            self.text(root, key);
        }
        if let Some(tags) = root.given("tags") {
            self.texts(&tags);
        }
    }

    fn api(&mut self, root: &At<'d>) -> Option<Api> {
        let word = self.text(root, "api")?;
        let at = root.child("api")?;
        match word {
            "anthropic" => Some(Api::Anthropic),
            "openai_chat" => Some(Api::OpenaiChat),
            "openai_responses" | "gemini" => {
                self.not_supported(&at, &format!("the api `{word}`"));
                None
            }
            _ => {
                let message =
                    format!("there is no api `{word}`; there are anthropic and openai_chat");
                self.error("unknown_value", &at, message);
                None
            }
        }
    }

    fn endpoint(&mut self, root: &At<'d>, owner: Owner) -> Option<Endpoint> {
        let base_url = self.base_url(root, owner);
        let path = self.path(root);
        let headers = self.headers(root);
        let auth = self.auth(root);
        let max_concurrent = self.whole(root, "max_concurrent", 1);
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
        let insecure = self.switch(root, "insecure").unwrap_or(false);
        if insecure && owner == Owner::Project {
            let message = "a file of a project cannot be `insecure`; write one in your own space";
            self.error("denied", root.at("/insecure"), message);
        }
        let Some(at) = root.given("base_url") else {
            let message = "`base_url` is missing: it says where the provider is";
            self.error("missing_key", root, message);
            return None;
        };
        let (env, default) = if at.value.is_string() {
            (None, self.text(root, "base_url"))
        } else {
            self.map(&at, &ENV)?;
            let env = self.variable(&at);
            (Some(env?), self.text(&at, "default"))
        };
        if let Some(default) = default
            && let Err(problem) = url::check(default.trim_end_matches('/'), insecure)
        {
            self.error("bad_url", &at, problem);
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
        let name = self.text(at, "env")?;
        self.secret_name(at, "env", name)
    }

    /// A name of a variable or a secret.
    fn secret_name(&mut self, at: &At<'d>, key: &str, name: &str) -> Option<String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.len() > 128 || !name.chars().all(plain) {
            // What is here by mistake may be the secret itself, which must not be repeated.
            let message =
                format!("`{key}` is a name of letters, digits and `_`, like ANTHROPIC_API_KEY");
            self.error("bad_name", at.at(&format!("/{key}")), message);
            return None;
        }
        Some(name.to_owned())
    }

    fn path(&mut self, root: &At<'d>) -> Option<String> {
        let path = self.text(root, "path")?;
        let rest = path.replace("{model}", "");
        let fine = path.starts_with('/')
            && !rest.contains(['{', '}', '#', '\\'])
            && !rest.split('/').any(|segment| segment == "..")
            && rest.chars().all(|c| c.is_ascii_graphic());
        if !fine {
            let message = "`path` begins with `/` and holds no placeholder but {model}";
            self.error("bad_url", root.at("/path"), message);
        }
        Some(path.to_owned())
    }

    fn headers(&mut self, root: &At<'d>) -> Vec<(String, HeaderValue)> {
        let Some(at) = root.given("headers") else {
            return Vec::new();
        };
        let members = self.members(&at, "a map of headers").unwrap_or_default();
        let mut headers = Vec::new();
        for (name, child) in members {
            self.header_name(&child, name);
            let value = if child.value.is_object() {
                self.map(&child, &HEADER)
                    .and_then(|_| self.variable(&child))
                    .map(HeaderValue::Env)
            } else {
                let text = self.text(&at, name);
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
            self.error("bad_header", at.named(), message);
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
            self.error("bad_header", at.named(), message);
        }
    }

    fn header_text(&mut self, at: &At<'d>, text: &str) -> Option<String> {
        let fine = text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        if !fine {
            let message = "a header holds visible ASCII characters and blanks";
            self.error("bad_header", at, message);
        }
        fine.then(|| text.to_owned())
    }

    fn auth(&mut self, root: &At<'d>) -> Vec<Auth> {
        let Some(at) = root.given("auth") else {
            return Vec::new();
        };
        let entries = self.entries(&at, "a list of {header, prefix, secret}");
        let entries = entries.unwrap_or_default();
        entries.iter().filter_map(|at| self.one_auth(at)).collect()
    }

    fn one_auth(&mut self, at: &At<'d>) -> Option<Auth> {
        self.map(at, &AUTH)?;
        let header = self.text(at, "header");
        if let (Some(header), Some(at)) = (header, at.child("header")) {
            self.header_name(&at, header);
        }
        let prefix = match (self.text(at, "prefix"), at.child("prefix")) {
            (Some(prefix), Some(at)) => self.header_text(&at, prefix),
            _ => Some(String::new()),
        };
        let secret = self.text(at, "secret")?;
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
            let given = at.and_then(|at| self.whole(&at, key, 1));
            given.unwrap_or(default)
        };
        let timeouts = Timeouts {
            connect: seconds("connect", 10),
            headers: seconds("headers", 120),
            first_event: seconds("first_event", 300),
            idle: seconds("idle", 300),
        };
        if let Some(at) = root.given("timeouts") {
            self.map(&at, &TIMEOUTS);
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
        if self.map(&at, keys).is_none() {
            return Quirks::default();
        }
        Quirks {
            end: self.quirk(&at, "end", EndMark::WORDS),
            cache: self.quirk(&at, "cache", CacheMarks::WORDS),
            usage: self.quirk(&at, "usage", UsageReport::WORDS),
            tool_ids: self.quirk(&at, "tool_ids", IdRule::WORDS),
            tool_index: self.quirk(&at, "tool_index", IndexRule::WORDS),
            system: self.quirk(&at, "system", SystemRole::WORDS),
            max_tokens_field: self.quirk(&at, "max_tokens_field", MaxTokensField::WORDS),
            reasoning_replay: self.quirk(&at, "reasoning_replay", ReasoningReplay::WORDS),
        }
    }

    /// The value of a quirk.
    fn quirk<T: Copy + Default>(&mut self, at: &At<'d>, key: &str, words: &[(&str, T)]) -> T {
        self.word(at, key, words).unwrap_or_default()
    }

    fn tools(&mut self, root: &At<'d>) -> (CallStart, u32) {
        let Some(at) = root.given("tools") else {
            return (CallStart::default(), MOST_PARALLEL);
        };
        self.map(&at, &TOOLS);
        let modes = [("native", false), ("text", true)];
        if self.word(&at, "mode", &modes) == Some(true)
            && let Some(mode) = at.child("mode")
        {
            self.not_supported(&mode, "the mode `text` of tools");
        }
        let starts = [
            ("streaming", CallStart::Streaming),
            ("message", CallStart::Message),
        ];
        let start = self.word(&at, "start", &starts).unwrap_or_default();
        let most = self.whole(&at, "max_parallel", 1);
        (start, most.unwrap_or(MOST_PARALLEL).min(MOST_PARALLEL))
    }

    fn as_of(&mut self, root: &At<'d>) -> Option<Timestamp> {
        let text = self.text(root, "as_of")?;
        let date = Timestamp::parse(&format!("{text}T00:00:00Z"));
        if date.is_none() {
            let text = shorten(text);
            let message = format!("`as_of` is a date like 2026-11-20, not `{text}`");
            self.error("wrong_type", root.at("/as_of"), message);
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
        let mut reader = Reader::new(&document, ProviderFile);
        let provider = reader.provider(id, owner);
        reader.end(provider)
    }
}
