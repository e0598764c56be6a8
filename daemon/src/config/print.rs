//! Output of the settings as a settings file.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use rye_core::money::Usd;
use serde_json::{Value, json};

use super::layer::{AUTO, SETTINGS};
use super::{Config, Loaded, SettingOrigin};

impl Loaded {
    /// Settings as YAML that sets each of them again, with description, variable and source as comments.
    pub fn to_yaml(&self) -> String {
        let mut text = String::from(
            "# Settings of ryed in force. Each comes from its flag, else its environment variable, else the settings\n\
             # file, else its default.\n",
        );
        let mut section = "";
        for setting in &SETTINGS {
            let (parent, key) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
            if parent != section {
                section = parent;
                write!(text, "\n{section}:").expect("writing to a String cannot fail");
            }
            let indent = if parent.is_empty() { "" } else { "  " };
            let origin = self
                .origins
                .iter()
                .find(|(known, _)| *known == setting.key)
                .map_or(&SettingOrigin::Default, |(_, origin)| origin);
            let value = value(&self.config, setting.key);
            let (meaning, variable) = (setting.meaning, setting.variable);
            write!(
                text,
                "\n{indent}# {meaning} [{variable}]\n{indent}{key}: {value}  # {origin}\n"
            )
            .expect("writing to a String cannot fail");
        }
        text
    }
}

/// Value of `key` as JSON, which is YAML.
fn value(config: &Config, key: &str) -> Value {
    let path = |path: &Path| json!(path.to_string_lossy());
    let cap = |cap: Option<Usd>| cap.map_or_else(|| json!("none"), |cap| json!(cap));
    match key {
        "state_dir" => path(&config.state_dir),
        "socket" => path(&config.socket),
        "user_space" => path(&config.user_space),
        "durability" => json!(config.durability),
        "recovery" => json!(config.recovery),
        "restarts" => json!(config.restarts),
        "containment.cgroup" => json!(config.cgroups),
        "containment.signals" => json!(config.signals),
        "isolation.least" => json!(config.least_isolation),
        "resources.default" => json!(config.resources.default),
        "resources.required" => json!(config.resources.are_required),
        "shutdown_grace_seconds" => json!(config.shutdown_grace.as_secs()),
        "interpreters" => {
            let programs = config.interpreters.iter();
            programs
                .map(|(name, program)| (name.clone(), path(program)))
                .collect()
        }
        "journal.segment_bytes" => json!(config.segment_bytes),
        "log.format" => json!(config.log.format),
        "log.level" => json!(config.log.level),
        "env.pass" => json!(config.env.pass),
        "env.path" => json!(config.env.path.as_deref().unwrap_or(AUTO)),
        "env.secrets" => json!(config.env.secrets),
        "limits.max_steps" => json!(config.limits.max_steps),
        "limits.tool_timeout_seconds" => json!(config.limits.tool_timeout.as_secs()),
        "limits.bash_timeout_seconds" => json!(config.limits.bash_timeout.as_secs()),
        "limits.output_bytes" => json!(config.limits.output_bytes),
        "limits.message_bytes" => json!(config.limits.message_bytes),
        "limits.memory_mb" => {
            let most = config.limits.memory_mb;
            most.map_or_else(|| json!(AUTO), |most| json!(most))
        }
        "limits.tree_runs" => json!(config.limits.tree_runs),
        "budget.day" => cap(config.budget.day),
        "budget.month" => cap(config.budget.month),
        "retention.older_than_days" => {
            let days = config.retention.older_than.map(days);
            days.map_or_else(|| json!("never"), |days| json!(days))
        }
        "retention.keep" => json!(config.retention.keep),
        "retention.keys_days" => json!(days(config.retention.keys)),
        "http.networks" => json!(config.networks),
        "ports.range" => json!(config.port_range.to_string()),
        other => unreachable!("`{other}` is in the table of settings and has no value"),
    }
}

const fn days(time: Duration) -> u64 {
    time.as_secs() / (24 * 60 * 60)
}
