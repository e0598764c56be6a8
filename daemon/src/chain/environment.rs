//! Environment of a tool process. It contains only variables from the sources named here.
//!
//! Later sources override earlier ones: PATH, HOME, LANG, LC_… and TZ of the daemon and the names in `env.pass`; the `.env`
//! of the project; `env` of the primitive, the runtimes and the tool; the variables set by Rye. A value in an element
//! may refer to variables set so far by `${NAME}` or `${NAME:-default}`. Values of callers are not expanded. Variables
//! that a model provider uses as a secret are removed from the first two sources.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rye_core::model::Object;
use rye_item::Item;
use serde_json::Value;

use super::error::Error;
use super::fields::malformed;
use super::origin::CallOrigin;
use crate::config::Config;

/// File in a project that contains variables.
const DOT_ENV: &str = ".env";
/// Maximum size of `.env` in bytes.
const DOT_ENV_BYTES: usize = 64 * 1024;

/// Variables that Rye sets for each process.
pub(super) const OWN: [&str; 4] = [
    "RYE_RUN_ID",
    "RYE_PARENT_THREAD_ID",
    "RYE_IDEMPOTENCY_KEY",
    "RYE_ATTEMPT_NUMBER",
];

/// Variables that each tool of a project inherits, before its chain adds to them.
#[derive(Debug, Clone, Default)]
pub struct InheritedVariables {
    variables: BTreeMap<OsString, OsString>,
}

impl InheritedVariables {
    /// Reads the present variables; `.env` is read again for each process. Removes the names that `secrets` returns. It
    /// is called only if a variable could be a secret.
    pub fn of<E>(
        project: &Path,
        config: &Config,
        secrets: impl FnOnce() -> Result<BTreeSet<String>, E>,
    ) -> Result<Self, E> {
        let Self { mut variables } = Self::of_daemon(config);
        let own = dot_env(project);
        if own.is_empty() && config.env.pass.is_empty() {
            return Ok(Self { variables });
        }
        for (name, value) in own {
            variables.insert(name.into(), value.into());
        }
        for name in secrets()? {
            variables.remove(OsStr::new(&name));
        }
        Ok(Self { variables })
    }

    fn of_daemon(config: &Config) -> Self {
        let variables = config.env.base.iter().cloned().collect();
        Self { variables }
    }

    /// Value of `name` for each tool of the project. `None` also if it is not UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(OsStr::new(name))?.to_str()
    }

    /// True if the variable `name` is set for each tool of the project, or for a tool whose chain has `elements`. An
    /// empty value counts as set.
    pub fn has<'i>(&self, name: &str, elements: impl IntoIterator<Item = &'i Item>) -> bool {
        let mut of_chain = elements.into_iter().flat_map(declared);
        OWN.contains(&name)
            || self.variables.contains_key(OsStr::new(name))
            || of_chain.any(|(_, env)| env.get(name).is_some_and(|value| scalar(value).is_some()))
    }
}

/// The `env` maps of one element with the names of their sections. The later one takes precedence.
fn declared(element: &Item) -> impl Iterator<Item = (&'static str, &Value)> {
    [
        ("env_config", &element.metadata.env_config),
        ("config", &element.metadata.config),
    ]
    .into_iter()
    .filter_map(|(section, source)| Some((section, source.as_ref()?.get("env")?)))
}

/// True if a value in the `env` of `element` refers to `variable`.
pub(super) fn names(element: &Item, variable: &str) -> bool {
    let refers = |text: &str| {
        let mut parts = text.split("${").skip(1);
        parts.any(|part| {
            let rest = part.strip_prefix(variable);
            rest.is_some_and(|rest| rest.starts_with(['}', ':']))
        })
    };
    declared(element)
        .filter_map(|(_, env)| env.as_object())
        .flat_map(Object::values)
        .any(|value| value.as_str().is_some_and(refers))
}

/// Variables of one process.
#[derive(Debug, Default)]
pub(super) struct Environment {
    /// The variable and the path of the interpreter, to which values of elements may refer. The process does not get it.
    interpreter: Option<(String, PathBuf)>,
    variables: BTreeMap<OsString, OsString>,
    own: Vec<(&'static str, String)>,
    /// Expanded values in each variable that an element set, by the name of the variable.
    contained_values: BTreeMap<OsString, Vec<OsString>>,
}

/// A text with its variables expanded.
pub(super) struct Expanded {
    pub(super) text: OsString,
    /// The expanded values, and the values that these contain.
    pub(super) values: Vec<OsString>,
}

/// True for variables that control the loader, an interpreter or Rye itself.
fn is_protected(name: &str) -> bool {
    name == "PATH"
        || name == "USER_SPACE"
        || ["LD_", "RYE_", "PYTHON"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// True for variables that make a shell run or trust anything outside its command line.
fn steers_shell(name: &str) -> bool {
    const NAMES: [&str; 10] = [
        "BASHOPTS",
        "BASH_ENV",
        "BASH_LOADABLES_PATH",
        "CDPATH",
        "ENV",
        "GLOBIGNORE",
        "IFS",
        "PROMPT_COMMAND",
        "PS4",
        "SHELLOPTS",
    ];
    name.starts_with("BASH_FUNC_") || NAMES.contains(&name)
}

/// True for variables that `.env` must not set. `.env` is the only file of a project that is used without a signature,
/// so it may hold only data. A variable that makes a program load or start something else is refused. No complete list
/// of such names exists. This one covers the runtimes, the shell and the tools that scripts use most.
fn is_steering(name: &str) -> bool {
    const NAMES: [&str; 32] = [
        "BROWSER",
        "CLASSPATH",
        "CURL_HOME",
        "DOTNET_STARTUP_HOOKS",
        "EDITOR",
        "GLIBC_TUNABLES",
        "GNUPGHOME",
        "HOME",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "LESSCLOSE",
        "LESSOPEN",
        "LOCPATH",
        "MAKEFLAGS",
        "MANPAGER",
        "NODE_COMPILE_CACHE",
        "NODE_EXTRA_CA_CERTS",
        "NODE_OPTIONS",
        "NODE_PATH",
        "NODE_REPL_EXTERNAL_MODULE",
        "NODE_TLS_REJECT_UNAUTHORIZED",
        "PAGER",
        "PHPRC",
        "SHELL",
        "SSH_ASKPASS",
        "SUDO_ASKPASS",
        "TAR_OPTIONS",
        "TMPDIR",
        "VISUAL",
        "WGETRC",
        "ZDOTDIR",
        "_JAVA_OPTIONS",
    ];
    const PREFIXES: [&str; 14] = [
        "DYLD_",
        "ESBUILD_",
        "GCONV_",
        "GIT_",
        "LUA_",
        "NPM_CONFIG_",
        "OPENSSL_",
        "PERL",
        "PIP_",
        "RUBY",
        "TSX_",
        "UV_",
        "XDG_",
        "npm_config_",
    ];
    is_protected(name)
        || steers_shell(name)
        || NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl Environment {
    /// Inherited variables, and the variables of this run.
    pub(super) fn of(origin: &CallOrigin, offer: InheritedVariables) -> Self {
        let run = origin.run.to_string();
        let values = [
            run.clone(),
            run,
            origin.key.clone(),
            origin.attempt.to_string(),
        ];
        Self {
            interpreter: None,
            variables: offer.variables,
            own: OWN.into_iter().zip(values).collect(),
            contained_values: BTreeMap::new(),
        }
    }

    /// Lets values of elements refer to the interpreter by its variable.
    pub(super) fn set_interpreter(&mut self, variable: String, path: PathBuf) {
        self.interpreter = Some((variable, path));
    }

    /// Variable and path of the interpreter to which values of elements may refer.
    pub(super) fn interpreter(&self) -> Option<&(String, PathBuf)> {
        self.interpreter.as_ref()
    }

    /// Applies the `env` of one element over the present variables. Returns the names it sets.
    pub(super) fn overlay(&mut self, element: &Item) -> Result<Vec<String>, Error> {
        let mut set = Vec::new();
        for (section, env) in declared(element) {
            let Some(env) = env.as_object() else {
                let field = format!("{section}.env");
                return Err(malformed(element, &field, "must be a map of texts"));
            };
            for (name, value) in env {
                let wrong =
                    |problem: &str| malformed(element, &format!("{section}.env.{name}"), problem);
                let Some(value) = scalar(value) else {
                    return Err(wrong("must be a text or a number"));
                };
                if !is_name(name) || name.starts_with("RYE_") || name.starts_with("LD_") {
                    return Err(wrong("is not a name that an item may set"));
                }
                let value = self.expand(&value).map_err(|problem| wrong(&problem))?;
                self.variables.insert(name.into(), value.text);
                self.contained_values.insert(name.into(), value.values);
                set.push(name.clone());
            }
        }
        Ok(set)
    }

    /// Expands the variables in `text`.
    pub(super) fn expand(&self, text: &str) -> Result<Expanded, String> {
        let mut expanded = OsString::new();
        let mut values = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            expanded.push(before);
            let Some((inner, after)) = behind.split_once('}') else {
                return Err("holds a `${` that no `}` closes".to_owned());
            };
            let (name, default) = match inner.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inner, None),
            };
            if !is_name(name) {
                return Err(format!("names `${{{inner}}}`, which is no variable"));
            }
            let of_interpreter = self
                .interpreter
                .iter()
                .find(|(variable, _)| variable == name);
            let known = of_interpreter
                .map(|(_, path)| path.clone().into_os_string())
                .or_else(|| self.get(name))
                .filter(|value| default.is_none() || !value.is_empty());
            match (known, default) {
                (Some(value), _) => {
                    expanded.push(&value);
                    values.push(value);
                    let within = self.contained_values.get(OsStr::new(name));
                    values.extend(within.into_iter().flatten().cloned());
                }
                (None, Some(default)) => expanded.push(default),
                (None, None) => {
                    return Err(format!(
                        "names `${{{name}}}`, which is not set; set it in the project's `.env` or by `env.pass`, or write \
                         `${{{name}:-default}}`"
                    ));
                }
            }
            rest = after;
        }
        expanded.push(rest);
        Ok(Expanded {
            text: expanded,
            values,
        })
    }

    /// Present value of a variable.
    fn get(&self, name: &str) -> Option<OsString> {
        let own = self.own.iter().find(|(own, _)| *own == name);
        match own {
            Some((_, value)) => Some(value.into()),
            None => self.variables.get(OsStr::new(name)).cloned(),
        }
    }

    /// Returns the `names` that are not set.
    pub(super) fn missing<'n>(&self, names: &'n [String]) -> Vec<&'n str> {
        let unset = names.iter().filter(|name| self.get(name).is_none());
        unset.map(String::as_str).collect()
    }

    /// Sets a variable that the caller of `rye/bash` requests.
    pub(super) fn set_by_caller(&mut self, name: &str, value: &str) -> Result<(), String> {
        if !is_name(name) || is_protected(name) || steers_shell(name) {
            return Err(format!("`{name}` is not a name that a caller may set"));
        }
        if value.contains('\0') {
            return Err(format!("`{name}` holds a NUL byte"));
        }
        self.variables.insert(name.into(), value.into());
        Ok(())
    }

    /// Adds the directories `before` at the front and `behind` at the end of a variable that lists directories.
    pub(super) fn surround(
        &mut self,
        name: &str,
        before: &[PathBuf],
        behind: &[PathBuf],
    ) -> Result<(), String> {
        let known = self.get(name).unwrap_or_default();
        let known: Vec<PathBuf> = std::env::split_paths(&known)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        let mut all: Vec<&PathBuf> = Vec::new();
        for path in before.iter().chain(&known).chain(behind) {
            if !all.contains(&path) {
                all.push(path);
            }
        }
        let joined = std::env::join_paths(all).map_err(|error| error.to_string())?;
        self.variables.insert(name.into(), joined);
        Ok(())
    }

    /// Directories that are searched for programs.
    pub(super) fn path(&self) -> OsString {
        self.variables
            .get(OsStr::new("PATH"))
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn into_vec(self) -> Vec<(OsString, OsString)> {
        let own = self
            .own
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        let mut all = self.variables;
        all.extend(own);
        all.into_iter().collect()
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.contains('\0') => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the `KEY=VALUE` lines of the project's `.env`. A file that is a link, unreadable or too large is ignored
/// completely, with a warning in the log.
pub fn dot_env(project: &Path) -> Vec<(String, String)> {
    let path = project.join(DOT_ENV);
    let mut text = String::new();
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(&path);
    let read = opened.and_then(|file| {
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let most = u64::try_from(DOT_ENV_BYTES).map_err(io::Error::other)?;
        let read = file.take(most + 1).read_to_string(&mut text)?;
        if read > DOT_ENV_BYTES {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(())
    });
    match read {
        Ok(()) => text.lines().filter_map(dot_env_line).collect(),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "the variables of this file are left out");
            }
            Vec::new()
        }
    }
}

fn dot_env_line(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let unquoted = ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    let value = unquoted.unwrap_or(value);
    (is_name(name) && !is_steering(name) && !value.contains('\0'))
        .then(|| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_env_cannot_control_loader_or_rye() {
        for (line, expected) in [
            ("A=1", Some(("A", "1"))),
            ("export B='two words'", Some(("B", "two words"))),
            ("C=\"x\"", Some(("C", "x"))),
            ("D=a=b", Some(("D", "a=b"))),
            ("# comment", None),
            ("PATH=/evil", None),
            ("LD_PRELOAD=/evil.so", None),
            ("PYTHONPATH=/evil", None),
            ("RYE_SOCKET=/evil", None),
            ("USER_SPACE=/evil", None),
            ("BASH_ENV=/evil.sh", None),
            ("SHELLOPTS=xtrace", None),
            ("PS4=$(evil)", None),
            ("HOME=/evil", None),
            ("NODE_OPTIONS=--require /evil.js", None),
            ("PERL5OPT=-Mevil", None),
            ("RUBYOPT=-revil", None),
            ("GIT_SSH_COMMAND=evil", None),
            ("OPENSSL_CONF=/evil.cnf", None),
            ("NODE_ENV=production", Some(("NODE_ENV", "production"))),
            ("NODE_COMPILE_CACHE=/evil", None),
            ("NODE_REPL_EXTERNAL_MODULE=/evil.js", None),
            ("NODE_EXTRA_CA_CERTS=/evil.pem", None),
            ("NODE_TLS_REJECT_UNAUTHORIZED=0", None),
            ("UV_INDEX_URL=https://evil", None),
            ("TSX_TSCONFIG_PATH=/evil.json", None),
            ("ESBUILD_BINARY_PATH=/evil", None),
            ("XDG_CONFIG_HOME=/evil", None),
            ("XDG_CACHE_HOME=/evil", None),
            ("TMPDIR=/evil", None),
            ("1A=x", None),
            ("no equals sign", None),
        ] {
            let found = dot_env_line(line);
            let found = found
                .as_ref()
                .map(|(name, value)| (name.as_str(), value.as_str()));
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn expand_returns_contained_values() {
        let set = |name: &str, value: &str| (name.into(), value.into());
        let environment = Environment {
            variables: [set("A", "abc"), set("B", "Bearer abc")].into(),
            contained_values: [("B".into(), vec!["abc".into()])].into(),
            ..Environment::default()
        };
        let expanded = environment.expand("<${B}> ${NO:-default} ${A}").unwrap();
        assert_eq!(expanded.text, "<Bearer abc> default abc");
        assert_eq!(expanded.values, ["Bearer abc", "abc", "abc"]);
    }

    #[test]
    fn caller_variables_cannot_control_shell() {
        let mut environment = Environment::default();
        for name in [
            "BASH_ENV",
            "ENV",
            "SHELLOPTS",
            "BASHOPTS",
            "PS4",
            "IFS",
            "PROMPT_COMMAND",
            "BASH_FUNC_ls",
            "BASH_LOADABLES_PATH",
            "CDPATH",
            "GLOBIGNORE",
            "PATH",
            "LD_PRELOAD",
        ] {
            let refused = environment.set_by_caller(name, "x").unwrap_err();
            assert!(refused.contains("a caller may set"), "{name}: {refused}");
        }
        environment.set_by_caller("NAME", "x").unwrap();
        assert_eq!(environment.into_vec(), [("NAME".into(), "x".into())]);
    }
}
