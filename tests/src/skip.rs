//! Tests that this machine cannot run. They report that and pass.
//!
//! The output of a test that passes is not shown. So the tests append a line to the file that `RYE_TESTS_SKIPPED`
//! names.

use std::fs::File;
use std::io::Write as _;

/// Reports why the running test does not check everything.
#[expect(clippy::print_stdout, reason = "what a test says of itself")]
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    print!("skipped: {line}");
    let Some(path) = std::env::var_os("RYE_TESTS_SKIPPED") else {
        return;
    };
    let file = File::options().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("the file of RYE_TESTS_SKIPPED takes a line");
}
