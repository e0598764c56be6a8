//! `rye/bash`, the only tool whose command comes from its caller.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rye_core::model::{Object, Resources};
use rye_item::{Item, Space};
use rye_process::{self as process, MAX_ARGUMENT_BYTES};
use serde_json::Value;

use super::environment::Environment;
use super::error::Error;
use super::origin::CallOrigin;
use super::process_plan::{OutputForm, ProcessPlan, tag};
use super::template::{SECONDS, seconds};
use super::terminal::is_native;
use super::verified::Chain;
use crate::config::Config;

/// Parameter with the working directory.
const WORKING_DIR: &str = "working_dir";

/// True if `tool` is the built-in one or an edited copy of it, and not another tool of the same name.
pub(super) fn is(tool: &Item) -> bool {
    let is_shipped = tool.space == Space::System || is_native(tool);
    is_shipped && tool.id().as_str() == "rye/bash"
}

/// Returns the shell, and its first arguments.
pub(super) fn shell() -> (&'static Path, Vec<OsString>) {
    let bash = Path::new("/bin/bash");
    if bash.exists() {
        // With `-p`, bash reads no start-up file and takes no options from its environment.
        (bash, vec!["-p".into()])
    } else {
        (Path::new("/bin/sh"), Vec::new())
    }
}

/// Plans the process: an argument list made of typed parameters.
pub(super) fn plan(
    chain: &Chain,
    params: &Object,
    origin: &CallOrigin,
    config: &Config,
    mut environment: Environment,
) -> Result<ProcessPlan, Error> {
    let path = &chain.tool().path;
    let malformed = |field: &str, problem: String| Error::Malformed {
        path: path.clone(),
        field: format!("`{field}`"),
        problem,
    };
    refuse_long(params).map_err(|message| chain.refuse_params(message))?;
    let project = Path::new(&origin.spec.project);
    let command = params
        .get("command")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let (program, mut args) = shell();
    args.extend(["-c".into(), command.into(), "bash".into()]);
    args.extend(
        params
            .get("args")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|arg| plain(arg).into()),
    );
    for (name, value) in params
        .get("env")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        environment
            .set_by_caller(name, &plain(value))
            .map_err(|problem| malformed("env", problem))?;
    }
    let cwd = match params.get(WORKING_DIR).and_then(Value::as_str) {
        None => project.to_owned(),
        Some(wanted) => {
            path_in_project(project, wanted).map_err(|problem| malformed(WORKING_DIR, problem))?
        }
    };
    let stdin = params.get("stdin").and_then(Value::as_str);
    let stdin = stdin.unwrap_or_default();
    let timeout = match params.get("timeout").filter(|given| !given.is_null()) {
        None => config.limits.bash_timeout,
        Some(given) => {
            let timeout = given.as_f64().and_then(seconds);
            timeout
                .ok_or_else(|| malformed("timeout", format!("must be {SECONDS}, not {given}")))?
        }
    };
    Ok(ProcessPlan {
        process: process::Plan {
            program: program.to_owned(),
            args,
            env: environment.into_vec(),
            cwd,
            confinement: process::Confinement::default(),
            resources: Resources::default(),
            stdin: process::Input::Bytes(stdin.into()),
            files: Vec::new(),
            timeout,
            grace: process::DEFAULT_GRACE,
            output_limit: config.limits.output_bytes.get(),
        },
        tag: tag(&origin.run, &origin.key, origin.attempt),
        callbacks: None,
        output_form: OutputForm::Shell,
        time_set_by: "`timeout` in the params of `rye/bash`",
    })
}

/// Refuses values that are too long for the kernel, by the name of their parameter.
fn refuse_long(params: &Object) -> Result<(), String> {
    let long = |field: &str, bytes: usize| {
        if bytes <= MAX_ARGUMENT_BYTES {
            return Ok(());
        }
        Err(format!(
            "`{field}` has {bytes} bytes, and the kernel takes at most {MAX_ARGUMENT_BYTES} in one argument or variable: pass large data by `stdin`"
        ))
    };
    let command = params.get("command").and_then(Value::as_str);
    long("command", command.map_or(0, str::len))?;
    let args = params.get("args").and_then(Value::as_array);
    for (index, arg) in args.into_iter().flatten().enumerate() {
        long(&format!("args[{index}]"), plain(arg).len())?;
    }
    let env = params.get("env").and_then(Value::as_object);
    for (name, value) in env.into_iter().flatten() {
        // With the name and the equals sign.
        long(&format!("env.{name}"), name.len() + 1 + plain(value).len())?;
    }
    Ok(())
}

/// Text of a scalar value.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns `wanted` with symbolic links resolved. It must be in `project`.
pub(super) fn path_in_project(project: &Path, wanted: &str) -> Result<PathBuf, String> {
    let real = project
        .join(wanted)
        .canonicalize()
        .map_err(|error| format!("`{wanted}` cannot be used: {error}"))?;
    let root = project
        .canonicalize()
        .map_err(|error| format!("the project cannot be used: {error}"))?;
    if real.starts_with(&root) {
        Ok(real)
    } else {
        Err(format!("`{wanted}` is outside the project"))
    }
}
