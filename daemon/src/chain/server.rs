//! The server of an MCP tool. It is an item of its own and is verified like any element.
//!
//! A tool names its server; its caller names neither the server nor the program. Only the tool that lists the tools of
//! a server takes the server from its caller, who must be permitted to execute it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_core::declared::Fields as _;
use rye_core::id::{ItemId, ItemRef};
use rye_core::model::{Failure, Object};
use rye_item::{Item, Library, Space, system};
use rye_process as process;
use serde_json::{Value, json};

use super::confinement::{confinement, of_item, requested};
use super::environment::Environment;
use super::error::Error;
use super::fields::{Section, malformed};
use super::origin::CallOrigin;
use super::request;
use super::rules::refuse_unread;
use super::template::{Settings, Slots};
use super::template_paths::TemplatePaths;
use super::terminal::{McpTransport, Terminal};
use super::verified::Chain;
use crate::config::Config;
use crate::mcp::{self, Reached, ServerOperation};

/// Runtime of tools whose server is a process.
pub(super) const STDIO: &str = "rye/core/runtimes/mcp/stdio";
/// Runtime of tools whose server is another host.
pub(super) const HTTP: &str = "rye/core/runtimes/mcp/http";
/// Tool that lists the tools of a server.
pub(super) const TOOLS: &str = "rye/core/mcp/tools";

/// Keys of `config` of a tool.
pub(super) const TOOL_KEYS: [&str; 4] =
    ["server", "server_config_path", "tool_name", "schema_hash"];
/// Keys of `config` of a server that is a process.
pub(super) const STDIO_KEYS: [&str; 7] = [
    "transport",
    "command",
    "args",
    "env",
    "cwd",
    "start_timeout",
    "timeout",
];
pub(super) const HTTP_KEYS: [&str; 7] = [
    "transport",
    "url",
    "headers",
    "auth",
    "env",
    "start_timeout",
    "timeout",
];

const SERVER_TYPE: &str = "mcp_server";
const START_TIMEOUT: Duration = Duration::from_mins(2);
const TIMEOUT: Duration = Duration::from_mins(1);
/// Time between TERM and KILL of a server.
const GRACE: Duration = Duration::from_secs(2);

/// Returns the transport if `element` ends a chain as a call of a server.
pub(super) fn transport(element: &Item) -> Option<McpTransport> {
    match element.item.id.as_str() {
        STDIO => Some(McpTransport::Stdio),
        HTTP => Some(McpTransport::Http),
        TOOLS => Some(McpTransport::Any),
        _ => None,
    }
}

/// Returns the server that `tool` names. Its transport must be that of the tool's runtime.
pub(super) fn of_tool(
    tool: &Item,
    way: McpTransport,
    library: &Library,
) -> Result<Arc<Item>, Error> {
    let config = tool.metadata.config.clone().unwrap_or_default();
    let config = Section::new(tool, "config", &config, &TOOL_KEYS)?;
    let text = |key: &str| {
        config.read(key, "a text that is not empty", |value| {
            value.as_str().filter(|text| !text.is_empty())
        })
    };
    let _well_formed = text("schema_hash")?;
    if text("tool_name")?.is_none() {
        let problem = "is missing: name the tool as its server does";
        return Err(config.malformed("tool_name", problem));
    }
    let (field, id) = match (text("server_config_path")?, text("server")?) {
        (Some(path), _) => ("config.server_config_path", id_of_path(path)),
        (None, Some(id)) if id.contains('/') => ("config.server", id.to_owned()),
        // In the original, all servers are in one folder, and are called by their names in it.
        (None, Some(name)) => ("config.server", format!("mcp/servers/{name}")),
        (None, None) => {
            let problem = "is missing: name the server, such as `mcp/servers/docs`";
            return Err(config.malformed("server", problem));
        }
    };
    let id = ItemId::new(id)
        .map_err(|error| malformed(tool, field, &format!("names no server: {error}")))?;
    let server = server(&id, tool.space, library)?;
    let _sound = ServerSettings::of(&server, way, tool)?;
    Ok(server)
}

/// Returns the id in a path of the original, such as `{project_path}/.ai/tools/mcp/servers/docs.yaml`.
fn id_of_path(path: &str) -> String {
    let below = path.split_once(".ai/tools/").map_or(path, |(_, id)| id);
    let stem = below.rsplit_once('.').map_or(below, |(stem, _)| stem);
    stem.to_owned()
}

fn server(id: &ItemId, referrer: Space, library: &Library) -> Result<Arc<Item>, Error> {
    let item = ItemRef::tool(id.clone()).canonical();
    let server = library
        .resolve(&item, referrer)
        .map_err(|error| Error::Item(Box::new(error)))?;
    refuse_unread(&server)?;
    if server.metadata.tool_type.as_deref() != Some(SERVER_TYPE) {
        let problem = "must be `mcp_server` in an item that is named as a server";
        return Err(malformed(&server, "tool_type", problem));
    }
    Ok(server)
}

impl Chain {
    /// Returns the server that `params` name, if this is the tool that lists the tools of a server.
    pub fn requested_server(&self, params: &Object) -> Option<Result<ItemRef, Error>> {
        (self.terminal == Terminal::Mcp(McpTransport::Any)).then(|| {
            let named = params.get("server").and_then(Value::as_str);
            let id = ItemId::new(named.unwrap_or_default());
            let id = id.map_err(|error| self.refuse_params(format!("`server`: {error}")))?;
            Ok(ItemRef::tool(id).canonical())
        })
    }

    /// Checks the server that `params` name, if this is the tool that lists the tools of a server.
    pub fn check_requested_server(&self, params: &Object, library: &Library) -> Result<(), Error> {
        let Some(asked) = self.requested_server(params) else {
            return Ok(());
        };
        let server = server(&asked?.id, Space::Project, library)?;
        ServerSettings::of(&server, McpTransport::Any, self.tool()).map(drop)
    }

    /// Adds the server that `params` name, if this is the tool that lists the tools of a server.
    pub fn with_requested_server(
        mut self,
        params: &Object,
        library: &Library,
    ) -> Result<Self, Error> {
        if let Some(asked) = self.requested_server(params) {
            self.server = Some(server(&asked?.id, Space::Project, library)?);
        }
        Ok(self)
    }
}

/// Plans the request to the server of `chain`.
pub(super) fn plan(
    chain: &Chain,
    way: McpTransport,
    params: Object,
    origin: &CallOrigin,
    config: &Config,
    environment: Environment,
) -> Result<mcp::Plan, Error> {
    let Some(server) = &chain.server else {
        let failure = Failure::permanent("internal", "the server was not looked up");
        return Err(Error::Params {
            item: chain.item.clone(),
            failure: Box::new(failure),
        });
    };
    let asked = match way {
        McpTransport::Any => ServerOperation::Tools,
        McpTransport::Stdio | McpTransport::Http => {
            let tool = chain.tool();
            let told = tool.metadata.config.as_ref();
            let text = |key: &str| told.and_then(|told| told.get(key)?.as_str());
            ServerOperation::Call {
                // The lookup of the tool has checked that it exists.
                tool: text("tool_name").unwrap_or_default().to_owned(),
                pinned: text("schema_hash").map(str::to_owned),
                params,
            }
        }
    };
    Ok(mcp::Plan {
        server: reached(server, way, chain, origin, config, environment)?,
        operation: asked,
        max_duration: None,
    })
}

/// Settings in the file of a server, checked as far as possible without starting it.
struct ServerSettings {
    /// The server as a chain of its own.
    alone: Chain,
    is_http: bool,
    /// Permitted keys.
    keys: &'static [&'static str],
}

impl ServerSettings {
    /// Reads the file of `server`, which `tool` uses with the transport `way`.
    fn of(server: &Arc<Item>, way: McpTransport, tool: &Item) -> Result<Self, Error> {
        let config = server.metadata.config.as_ref();
        let transport = config.and_then(|config| config.get("transport")?.as_str());
        let (keys, is_http): (&[&str], _) = match transport {
            Some("stdio") => (&STDIO_KEYS, false),
            Some("http") => (&HTTP_KEYS, true),
            _ => {
                let problem = "must be `stdio` or `http`";
                return Err(malformed(server, "config.transport", problem));
            }
        };
        if way != McpTransport::Any && transport != Some(way.as_str()) {
            let executor = if way == McpTransport::Stdio {
                HTTP
            } else {
                STDIO
            };
            let problem = format!(
                "is for another kind of server than `{}`, which is reached by {}: write `executor_id: {executor}`",
                server.id(),
                transport.unwrap_or_default(),
            );
            return Err(malformed(tool, "executor_id", &problem));
        }
        let told = Self {
            alone: Chain {
                item: server.item.clone(),
                elements: vec![Arc::clone(server)],
                given: None,
                anchored: None,
                files_hash: None,
                server: None,
                terminal: Terminal::Mcp(way),
            },
            is_http,
            keys,
        };
        told.check()?;
        Ok(told)
    }

    fn check(&self) -> Result<(), Error> {
        let settings = self.settings()?;
        let _times = (
            settings.seconds("start_timeout")?,
            settings.seconds("timeout")?,
        );
        let needed = if self.is_http { "url" } else { "command" };
        match settings.text(needed)? {
            Some(_) => Ok(()),
            None => Err(settings.malformed(needed, "is missing")),
        }
    }

    fn settings(&self) -> Result<Settings<'_>, Error> {
        Settings::merge(&self.alone, self.keys)
    }
}

/// Returns the command or the address of `server`, with its settings.
fn reached(
    server: &Arc<Item>,
    way: McpTransport,
    chain: &Chain,
    origin: &CallOrigin,
    config: &Config,
    mut environment: Environment,
) -> Result<mcp::Server, Error> {
    let told = ServerSettings::of(server, way, chain.tool())?;
    let settings = told.settings()?;
    let _set = environment.overlay(server)?;
    let start_timeout = settings.seconds("start_timeout")?.unwrap_or(START_TIMEOUT);
    let timeout = settings.seconds("timeout")?.unwrap_or(TIMEOUT);
    let reached = if told.is_http {
        Reached::Http(Box::new(request::server(
            &settings,
            &told.alone,
            &environment,
        )?))
    } else {
        let process = process(&told.alone, &settings, origin, config, environment)?;
        Reached::Stdio(Box::new(process))
    };
    Ok(mcp::Server {
        id: server.id().clone(),
        hash: server.content_hash.clone(),
        reached,
        project: origin.spec.project.clone(),
        start_timeout,
        timeout,
    })
}

/// Plans the process of a server. The server belongs to a tree of runs, so it gets no variables of a single step.
fn process(
    alone: &Chain,
    settings: &Settings<'_>,
    origin: &CallOrigin,
    config: &Config,
    environment: Environment,
) -> Result<process::Plan, Error> {
    let project = Path::new(&origin.spec.project);
    let system = system::root(&config.state_dir);
    let places = TemplatePaths::of(alone.tool(), project, &config.user_space, &system);
    let slots = Slots {
        settings,
        paths: &places,
        interpreter: None,
        binary: None,
        cwd: project.to_owned(),
    };
    let confinement = confinement(None, origin, config);
    let confinement = confinement.map_err(|missing| of_item(alone, missing))?;
    let command = settings
        .text("command")?
        .ok_or_else(|| settings.malformed("command", "is missing"))?;
    let args = settings.texts("args")?;
    let args = args.iter().map(|arg| slots.fill("args", arg));
    let mut env: Vec<(OsString, OsString)> = environment.into_vec();
    env.retain(|(name, _)| !name.to_string_lossy().starts_with("RYE_"));
    Ok(process::Plan {
        program: PathBuf::from(slots.fill("command", command)?),
        args: args.collect::<Result<_, _>>()?,
        env,
        cwd: slots.cwd()?,
        confinement,
        resources: requested(None, config),
        stdin: process::Input::Pipe,
        files: Vec::new(),
        timeout: Duration::MAX,
        grace: GRACE,
        output_limit: 0,
    })
}

pub(super) fn traced(plan: &mcp::Plan) -> Value {
    let mut entry = json!({"step": "plan"});
    if let (Some(entry), Value::Object(described)) = (entry.as_object_mut(), plan.described()) {
        entry.extend(described);
    }
    entry
}
