//! The binaries under test, built once per run of the tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use crate::command::program;

/// Returns the root of the clone.
pub fn clone_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate lies in the clone")
}

/// Returns the directory of the test data.
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

pub fn ryed() -> PathBuf {
    directory().join("ryed")
}

/// Returns the `ryectl` under test. It finds `ryed` in its own directory.
pub fn ryectl() -> PathBuf {
    directory().join("ryectl")
}

pub fn model_server() -> PathBuf {
    directory().join("model-server")
}

/// Copies a program in a process of its own. A child that another test starts meanwhile inherits a file that this
/// process has open for writing. The copy then fails with `ETXTBSY` until that child has executed its own program.
pub fn copy(from: &Path, to: &Path) {
    let status = program("cp").arg(from).arg(to).status().expect("cp starts");
    assert!(status.success(), "{} is not copied", from.display());
}

/// Builds the library that injects faults of the system, next to the binaries under test. `LD_PRELOAD` loads it.
pub fn faults() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let (target, profile) = target();
        build(&["--package", "rye-faults", "--lib"], &target, profile);
        let folder = if profile == "dev" { "debug" } else { profile };
        target.join(folder).join("librye_faults.so")
    })
}

/// Variable with a directory of other binaries to test, such as those of another revision.
const OTHERS: &str = "RYE_TESTS_BINARIES";

/// Returns the directory that [`OTHERS`] names. Else builds both binaries, with the profile and into the target
/// directory of this test binary.
fn directory() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(others) = std::env::var_os(OTHERS) {
            return PathBuf::from(others);
        }
        let (target, profile) = target();
        // The whole workspace, so that the features are those of the tests and nothing is built twice.
        build(&["--workspace", "--bins"], &target, profile);
        target.join(if profile == "dev" { "debug" } else { profile })
    })
}

/// Returns the target directory of this test binary, and its profile.
fn target() -> (PathBuf, &'static str) {
    static FOUND: OnceLock<(PathBuf, String)> = OnceLock::new();
    let (target, profile) = FOUND.get_or_init(|| {
        let this = std::env::current_exe().expect("a running program has a path");
        // <target>/<profile>/deps/<this>
        let directory = this
            .ancestors()
            .nth(2)
            .expect("cargo puts test binaries below the profile's directory");
        let profile = match directory.file_name().and_then(|name| name.to_str()) {
            None | Some("debug") => "dev",
            Some(profile) => profile,
        };
        let target = directory
            .parent()
            .expect("the profile's directory lies in the target directory");
        (target.to_owned(), profile.to_owned())
    });
    (target.clone(), profile)
}

fn build(what: &[&str], target: &Path, profile: &str) {
    let status = program(env!("CARGO"))
        .args(["build", "--quiet", "--profile", profile])
        .args(what)
        .arg("--target-dir")
        .arg(target)
        .current_dir(clone_root())
        .stdin(Stdio::null())
        .status()
        .expect("cargo starts");
    assert!(
        status.success(),
        "what is under test does not build: {what:?}"
    );
}
