//! Rebuilds the crate when a system item is added or changed; the macro that embeds them only sees known files.

fn main() {
    // Cargo reads its instructions from the standard output of build scripts.
    #[expect(
        clippy::print_stdout,
        reason = "this is how a build script talks to cargo"
    )]
    {
        println!("cargo::rerun-if-changed=../../.ai/tools/rye");
    }
}
