//! Tests that this machine cannot do: they say so, and pass.
//!
//! `RYE_TESTS_SKIPPED` names a file that they add a line to, since what a test that passes prints is shown to nobody.

use std::fs::File;
use std::io::Write as _;

/// Says why the test that runs does not look at all that it is there for.
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
