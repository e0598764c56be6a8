//! One source of settings, and the precedence of sources.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use rye_core::model::{Durability, Isolation, Recovery, Resources};
use rye_core::money::Usd;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_yaml::{Mapping, Value};

use super::{
    Args, Containment, Environment, Error, LogFormat, Networks, PortRange, SettingOrigin, absolute,
};

/// A setting as users know it.
#[derive(Debug)]
pub(super) struct Setting {
    /// Key in the file; a dot leads into a section.
    pub(super) key: &'static str,
    pub(super) variable: &'static str,
    shape: Shape,
    /// Description for `--print-config`.
    pub(super) meaning: &'static str,
}

/// Conversion from the text of an environment variable to a value.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Number,
    /// `true` or `false`.
    Switch,
    /// Comma-separated parts.
    List,
    /// Comma-separated `NAME=VALUE` pairs.
    Pairs,
}

const fn setting(
    key: &'static str,
    variable: &'static str,
    shape: Shape,
    meaning: &'static str,
) -> Setting {
    Setting {
        key,
        variable,
        shape,
        meaning,
    }
}

/// All settings, grouped by section, in the order in which they are printed.
pub(super) const SETTINGS: [Setting; 33] = [
    setting(
        "state_dir",
        "RYE_STATE_DIR",
        Shape::Text,
        "Directory of the daemon's log, store and keys; mode 0700.",
    ),
    setting(
        "socket",
        "RYE_SOCKET",
        Shape::Text,
        "Unix socket of the control API; at most 107 bytes.",
    ),
    setting(
        "user_space",
        "USER_SPACE",
        Shape::Text,
        "Directory whose .ai is the user space.",
    ),
    setting(
        "durability",
        "RYE_DURABILITY",
        Shape::Text,
        "strict: a step is on disk before the next effect; relaxed: written, not waited for.",
    ),
    setting(
        "recovery",
        "RYE_RECOVERY",
        Shape::Text,
        "What a restart does to live runs: resume or suspend.",
    ),
    setting(
        "restarts",
        "RYE_RESTARTS",
        Shape::Number,
        "How often in a minute the daemon is started again after it died; 0: never.",
    ),
    setting(
        "shutdown_grace_seconds",
        "RYE_SHUTDOWN_GRACE_SECONDS",
        Shape::Number,
        "How long runs may take to stop at a shutdown.",
    ),
    setting(
        "interpreters",
        "RYE_INTERPRETERS",
        Shape::Pairs,
        "Programs that runtimes use instead of looking for one, by the variable they call it: RYE_PYTHON=/usr/bin/python3.",
    ),
    setting(
        "containment.cgroup",
        "RYE_CONTAINMENT_CGROUP",
        Shape::Text,
        "Whether each attempt of a tool has a cgroup: auto (if the host allows it) or off.",
    ),
    setting(
        "containment.signals",
        "RYE_CONTAINMENT_SIGNALS",
        Shape::Text,
        "Whether a tool can signal only its own processes: auto (if the host allows it) or off.",
    ),
    setting(
        "isolation.least",
        "RYE_ISOLATION_LEAST",
        Shape::Text,
        "Weakest isolation of the processes of tools: none, scoped or sandbox.",
    ),
    setting(
        "resources.default",
        "RYE_RESOURCES_DEFAULT",
        Shape::Pairs,
        "Limits of the processes of each attempt that sets none: memory, pids, cpu, such as memory=2GiB,pids=500,cpu=1.5.",
    ),
    setting(
        "resources.required",
        "RYE_RESOURCES_REQUIRED",
        Shape::Switch,
        "Whether an attempt is refused if the host does not enforce its limits; else it runs with a warning.",
    ),
    setting(
        "journal.segment_bytes",
        "RYE_JOURNAL_SEGMENT_BYTES",
        Shape::Number,
        "Length of a segment of the journal's log, 65536 to 1073741824; three are zeroed at the first start.",
    ),
    setting(
        "log.format",
        "RYE_LOG_FORMAT",
        Shape::Text,
        "human, json, or auto: human on a terminal, JSON otherwise.",
    ),
    setting(
        "log.level",
        "RYE_LOG_LEVEL",
        Shape::Text,
        "error, warn, info, debug, trace, or a filter by module.",
    ),
    setting(
        "env.pass",
        "RYE_ENV_PASS",
        Shape::List,
        "Variables of the daemon that children get in addition to PATH, HOME, LANG, LC_* and TZ.",
    ),
    setting(
        "env.path",
        "RYE_ENV_PATH",
        Shape::Text,
        "PATH of children, or auto: that of the daemon.",
    ),
    setting(
        "env.secrets",
        "RYE_ENV_SECRETS",
        Shape::List,
        "Variables of the daemon whose values are masked in what tools print; patterns with `*`.",
    ),
    setting(
        "limits.max_steps",
        "RYE_LIMITS_MAX_STEPS",
        Shape::Number,
        "Most steps of a graph run that sets no limit.",
    ),
    setting(
        "limits.tool_timeout_seconds",
        "RYE_LIMITS_TOOL_TIMEOUT_SECONDS",
        Shape::Number,
        "How long a tool may run that sets no timeout.",
    ),
    setting(
        "limits.bash_timeout_seconds",
        "RYE_LIMITS_BASH_TIMEOUT_SECONDS",
        Shape::Number,
        "How long a shell command may run that sets no timeout.",
    ),
    setting(
        "limits.output_bytes",
        "RYE_LIMITS_OUTPUT_BYTES",
        Shape::Number,
        "Most bytes kept of each output stream of a process.",
    ),
    setting(
        "limits.message_bytes",
        "RYE_LIMITS_MESSAGE_BYTES",
        Shape::Number,
        "Largest message on the control API.",
    ),
    setting(
        "limits.memory_mb",
        "RYE_LIMITS_MEMORY_MB",
        Shape::Number,
        "Memory in MiB that the values of all runs together may take; auto: half of what the host, or its cgroup, has.",
    ),
    setting(
        "limits.tree_runs",
        "RYE_LIMITS_TREE_RUNS",
        Shape::Number,
        "Most runs of one tree, a run and all below it, that are not over at once.",
    ),
    setting(
        "budget.day",
        "RYE_BUDGET_DAY",
        Shape::Text,
        "Most US dollars that all runs together may spend in a day (UTC); none is no limit.",
    ),
    setting(
        "budget.month",
        "RYE_BUDGET_MONTH",
        Shape::Text,
        "Most US dollars that all runs together may spend in a month (UTC); none is no limit.",
    ),
    setting(
        "retention.older_than_days",
        "RYE_RETENTION_OLDER_THAN_DAYS",
        Shape::Number,
        "Trees of runs in which nothing has happened for so many days are removed, once an hour; never: none are.",
    ),
    setting(
        "retention.keep",
        "RYE_RETENTION_KEEP",
        Shape::Number,
        "The newest so many trees of each project are not removed, however old they are.",
    ),
    setting(
        "retention.keys_days",
        "RYE_RETENTION_KEYS_DAYS",
        Shape::Number,
        "The idempotency key of a removed run starts nothing for so many days.",
    ),
    setting(
        "http.networks",
        "RYE_HTTP_NETWORKS",
        Shape::Text,
        "Hosts that items may call: public; private: also loopback and private networks; any: also link-local addresses and metadata services.",
    ),
    setting(
        "ports.range",
        "RYE_PORTS_RANGE",
        Shape::Text,
        "Ports that managed processes are given for `auto`: the first and the last.",
    ),
];

/// Values of one source.
/// Value of a setting that the daemon chooses.
pub(super) const AUTO: &str = "auto";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Layer {
    pub(super) state_dir: Option<PathBuf>,
    pub(super) socket: Option<PathBuf>,
    pub(super) user_space: Option<PathBuf>,
    pub(super) durability: Option<Durability>,
    pub(super) recovery: Option<Recovery>,
    pub(super) restarts: Option<u32>,
    pub(super) containment: ContainmentLayer,
    pub(super) isolation: IsolationLayer,
    pub(super) resources: ResourcesLayer,
    pub(super) shutdown_grace_seconds: Option<u64>,
    pub(super) interpreters: Option<BTreeMap<String, PathBuf>>,
    pub(super) journal: JournalLayer,
    pub(super) log: LogLayer,
    pub(super) env: EnvLayer,
    pub(super) limits: LimitsLayer,
    pub(super) budget: BudgetLayer,
    pub(super) retention: RetentionLayer,
    pub(super) http: HttpLayer,
    pub(super) ports: PortsLayer,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ContainmentLayer {
    pub(super) cgroup: Option<Containment>,
    pub(super) signals: Option<Containment>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct IsolationLayer {
    pub(super) least: Option<Isolation>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResourcesLayer {
    pub(super) default: Option<Resources>,
    pub(super) required: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JournalLayer {
    pub(super) segment_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LogLayer {
    pub(super) format: Option<LogFormat>,
    pub(super) level: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EnvLayer {
    pub(super) pass: Option<Vec<String>>,
    pub(super) path: Option<String>,
    pub(super) secrets: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsLayer {
    pub(super) max_steps: Option<NonZeroU32>,
    pub(super) tool_timeout_seconds: Option<NonZeroU64>,
    pub(super) bash_timeout_seconds: Option<NonZeroU64>,
    pub(super) output_bytes: Option<NonZeroUsize>,
    pub(super) message_bytes: Option<NonZeroUsize>,
    pub(super) memory_mb: Option<Megabytes>,
    pub(super) tree_runs: Option<NonZeroUsize>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RetentionLayer {
    pub(super) older_than_days: Option<Days>,
    pub(super) keep: Option<usize>,
    pub(super) keys_days: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HttpLayer {
    pub(super) networks: Option<Networks>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PortsLayer {
    pub(super) range: Option<PortRange>,
}

/// A number of days, or `never`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Days(pub(super) Option<NonZeroU32>);

impl<'de> Deserialize<'de> for Days {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or(deserializer, "never").map(Self)
    }
}

/// A number of MiB, or `auto`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Megabytes(pub(super) Option<NonZeroUsize>);

impl<'de> Deserialize<'de> for Megabytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or(deserializer, AUTO).map(Self)
    }
}

/// A number; `None` for `word`.
fn number_or<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
    word: &str,
) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    if value == word {
        return Ok(None);
    }
    let number = serde_json::from_value(value);
    number
        .map(Some)
        .map_err(|error| D::Error::custom(format!("{error}, or `{word}`")))
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BudgetLayer {
    pub(super) day: Option<Cap>,
    pub(super) month: Option<Cap>,
}

/// An amount of money, or `none`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cap(pub(super) Option<Usd>);

impl<'de> Deserialize<'de> for Cap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        if value == "none" {
            return Ok(Self(None));
        }
        let amount = Usd::from_json(&value);
        amount
            .map(|amount| Self(Some(amount)))
            .map_err(|error| D::Error::custom(format!("{error}; `none` is no limit")))
    }
}

impl Layer {
    /// Values of the flags.
    pub(super) fn from_args(args: &Args) -> Self {
        Self {
            state_dir: args.state_dir.clone(),
            socket: args.socket.clone(),
            log: LogLayer {
                format: args.log_format,
                level: args.log_level.clone(),
            },
            ..Self::default()
        }
    }

    /// Values of the file at `path`. An empty file sets nothing.
    pub(super) fn from_yaml(path: &Path, text: &str) -> Result<Self, Error> {
        match serde_yaml::from_str::<Option<Self>>(text) {
            Ok(layer) => Ok(layer.unwrap_or_default()),
            Err(source) => Err(Error::File {
                path: path.display().to_string(),
                source,
            }),
        }
    }

    /// Values of the variables: one layer for each variable that is set.
    pub(super) fn from_environment(
        environment: &Environment,
    ) -> Result<Vec<(SettingOrigin, Self)>, Error> {
        let mut layers = Vec::new();
        for setting in &SETTINGS {
            let name = setting.variable;
            if let Some(text) = environment.get(name) {
                let text = text.to_str().ok_or(Error::NotText { name })?;
                let layer = serde_yaml::from_value(setting.nested(text))
                    .map_err(|source| Error::Variable { name, source })?;
                layers.push((SettingOrigin::Variable(name), layer));
            }
        }
        Ok(layers)
    }
}

impl Setting {
    /// A document that sets only this setting, to `text`.
    fn nested(&self, text: &str) -> Value {
        let value = match self.shape {
            Shape::Text => Value::from(text),
            // An invalid number is left for the type to refuse, with its own message.
            Shape::Number => text
                .parse::<u64>()
                .map_or_else(|_| text.into(), Value::from),
            Shape::Switch => text
                .parse::<bool>()
                .map_or_else(|_| text.into(), Value::from),
            Shape::List => text.split(',').map(str::trim).collect(),
            Shape::Pairs => Value::Mapping(text.split(',').map(pair).collect()),
        };
        self.key.rsplit('.').fold(value, |inner, key| {
            Value::Mapping(Mapping::from_iter([(Value::from(key), inner)]))
        })
    }
}

/// `NAME=VALUE`; a part without `=` is left for the type to refuse.
fn pair(text: &str) -> (Value, Value) {
    match text.split_once('=') {
        Some((name, value)) => (name.trim().into(), value.trim().into()),
        None => (text.trim().into(), Value::Null),
    }
}

/// All sources, the strongest first.
#[derive(Debug)]
pub(super) struct Stack {
    layers: Vec<(SettingOrigin, Layer)>,
    origins: Vec<(&'static str, SettingOrigin)>,
}

impl Stack {
    pub(super) fn new(layers: Vec<(SettingOrigin, Layer)>) -> Self {
        Self {
            layers,
            origins: Vec::new(),
        }
    }

    /// Value of `key` from the strongest layer that has one; records its source.
    pub(super) fn pick<T>(
        &mut self,
        key: &'static str,
        get: impl Fn(&Layer) -> Option<T>,
    ) -> Option<T> {
        let found = self
            .layers
            .iter()
            .find_map(|(origin, layer)| Some((origin.clone(), get(layer)?)));
        let (origin, value) = match found {
            Some((origin, value)) => (origin, Some(value)),
            None => (SettingOrigin::Default, None),
        };
        self.origins.push((key, origin));
        value
    }

    /// Same as [`Self::pick`], as an absolute path. `~` is the home directory. A path in the file is relative to the
    /// file, any other to the working directory.
    pub(super) fn path(
        &mut self,
        key: &'static str,
        environment: &Environment,
        get: impl Fn(&Layer) -> Option<PathBuf>,
    ) -> Result<Option<PathBuf>, Error> {
        let Some(path) = self.pick(key, get) else {
            return Ok(None);
        };
        if let Ok(rest) = path.strip_prefix("~") {
            let home = environment.home().ok_or(Error::NoHome { setting: key })?;
            return Ok(Some(home.join(rest)));
        }
        let directory = match self.origin(key) {
            SettingOrigin::File(file) => file.parent().map(Path::to_owned),
            SettingOrigin::Flag | SettingOrigin::Variable(_) | SettingOrigin::Default => None,
        };
        absolute(&directory.unwrap_or_default().join(path)).map(Some)
    }

    /// Source of the value of `key`.
    pub(super) fn origin(&self, key: &str) -> SettingOrigin {
        self.origins
            .iter()
            .find(|(known, _)| *known == key)
            .map_or(SettingOrigin::Default, |(_, origin)| origin.clone())
    }

    /// Records that `key` is derived from `source`, whatever it was set to.
    pub(super) fn derive(&mut self, key: &'static str, source: &str) {
        let origin = self.origin(source);
        self.origins.retain(|(known, _)| *known != key);
        self.origins.push((key, origin));
    }

    pub(super) fn into_origins(self) -> Vec<(&'static str, SettingOrigin)> {
        self.origins
    }
}
