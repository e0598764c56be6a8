//! The process of an attempt of a managed process.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rye_core::model::{ProcessSpec, Readiness};

use super::environment::{Environment, InheritedVariables};
use super::origin::CallOrigin;
use super::process_plan::tag;
use super::shell::{path_in_project, shell};
use rye_process::{self as process, MAX_ARGUMENT_BYTES};

/// The process of one attempt, and the sign by which it is ready.
#[derive(Debug)]
pub struct ManagedPlan {
    pub process: process::Plan,
    /// Tag of the attempt, by which its processes are found.
    pub tag: String,
    /// Name of the managed process, for people.
    pub name: String,
    pub ready: Readiness,
}

/// Plans an attempt of `spec`. The error names the key of the request that is wrong.
pub fn managed(
    spec: &ProcessSpec,
    origin: &CallOrigin,
    offer: InheritedVariables,
) -> Result<ManagedPlan, String> {
    let (program, args): (_, Vec<OsString>) = if let Some(args) = &spec.args {
        let args = args.iter().map(OsString::from);
        (Path::new(&spec.command), args.collect())
    } else {
        let (shell, mut args) = shell();
        args.extend(["-c".into(), (&spec.command).into()]);
        (shell, args)
    };
    if args.iter().any(|arg| arg.len() > MAX_ARGUMENT_BYTES) {
        return Err(format!(
            "`command` and each of `args` have at most {MAX_ARGUMENT_BYTES} bytes"
        ));
    }
    let mut environment = Environment::of(origin, offer);
    for (name, value) in &spec.env {
        environment
            .set_by_caller(name, value)
            .map_err(|problem| format!("`env`: {problem}"))?;
    }
    let project = Path::new(&origin.spec.project);
    let cwd = match &spec.cwd {
        None => project.to_owned(),
        Some(wanted) => {
            path_in_project(project, wanted).map_err(|problem| format!("`cwd`: {problem}"))?
        }
    };
    Ok(ManagedPlan {
        process: process::Plan {
            program: program.to_owned(),
            args,
            env: environment.into_vec(),
            cwd,
            stdin: process::Input::Bytes(Vec::new()),
            files: Vec::new(),
            timeout: Duration::MAX,
            grace: spec.grace(),
            output_limit: 0,
        },
        tag: tag(&origin.run, &origin.key, origin.attempt),
        name: spec.name.clone(),
        ready: spec.ready.clone(),
    })
}
