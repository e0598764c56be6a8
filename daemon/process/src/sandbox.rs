//! The sandbox of a plan: the program runs below `bwrap`.
//!
//! **Order.** Later mounts cover earlier ones: the whole host read-only, then what is hidden, then what is shown or can be
//! written. **Failure.** Where `bwrap` is missing, or the host forbids what it does, nothing starts.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::model::{Isolation, Resources};

use super::error::Error;
use super::image::find_program;
use super::plan::{Confinement, DEFAULT_GRACE, Input, Plan, SandboxView};

/// Time limit of the test.
const PROBE_TIME: Duration = Duration::from_secs(10);
/// Most bytes of the messages of a failed test.
const MOST_MESSAGES: usize = 1000;

/// Settings of the kernel that forbid namespaces to ordinary users, with the value that does.
const FORBIDDING: [(&str, &str); 3] = [
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    ("kernel.unprivileged_userns_clone", "0"),
    ("user.max_user_namespaces", "0"),
];

/// Finds `bwrap` in `search`, a `PATH`.
pub(super) fn find(search: &OsStr) -> Result<PathBuf, Error> {
    let directories = std::env::split_paths(search);
    let mut found = directories.map(|directory| directory.join("bwrap"));
    let found = found.find(|path| path.is_file());
    found.ok_or_else(|| unavailable("`bwrap` is not on the PATH; install bubblewrap".to_owned()))
}

/// Returns a plan that does nothing in a sandbox of `bwrap`.
pub(super) fn probe(bwrap: &Path) -> Plan {
    let mut args = own_namespaces();
    args.extend(["--", "/bin/true"].map(OsString::from));
    Plan {
        program: bwrap.to_owned(),
        args,
        env: Vec::new(),
        cwd: PathBuf::from("/"),
        confinement: Confinement::Scoped,
        resources: Resources::default(),
        stdin: Input::Bytes(Vec::new()),
        files: Vec::new(),
        timeout: PROBE_TIME,
        grace: DEFAULT_GRACE,
        output_limit: MOST_MESSAGES,
    }
}

/// Error of a test that printed `messages`.
pub(super) fn refused(messages: &[u8]) -> Error {
    let forbidding = FORBIDDING.iter().find(|(name, value)| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        fs::read_to_string(path).is_ok_and(|is| is.trim() == *value)
    });
    let why = forbidding.map(|(name, value)| format!(" ({name} is {value})"));
    let messages = String::from_utf8_lossy(messages);
    unavailable(format!(
        "`bwrap` failed: {}{}",
        messages.trim(),
        why.unwrap_or_default()
    ))
}

fn unavailable(cause: String) -> Error {
    let level = Isolation::Sandbox;
    Error::NoIsolation { level, cause }
}

/// Returns `plan`, whose program runs below `bwrap` with `view`.
pub(super) fn wrap(plan: &Plan, view: &SandboxView, bwrap: &Path) -> Result<Plan, Error> {
    let mut args = own_namespaces();
    let mut mount = |how: &str, path: &Path| {
        args.push(how.into());
        args.push(path.into());
        if how != "--tmpfs" {
            args.push(path.into());
        }
    };
    for path in &view.hidden {
        mount("--tmpfs", path);
    }
    for path in &view.shown {
        mount("--ro-bind-try", path);
    }
    mount("--bind", &view.project);
    if let Some(socket) = &view.socket {
        mount("--bind", socket);
    }
    args.extend(["--chdir".into(), plan.cwd.clone().into(), "--".into()]);
    args.push(find_program(plan)?.into());
    args.extend(plan.args.iter().cloned());
    Ok(Plan {
        program: bwrap.to_owned(),
        args,
        confinement: Confinement::Scoped,
        ..plan.clone()
    })
}

/// Arguments for a read-only host, and own processes, devices and temporary files.
fn own_namespaces() -> Vec<OsString> {
    [
        "--die-with-parent",
        "--unshare-pid",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
    ]
    .map(OsString::from)
    .into()
}
