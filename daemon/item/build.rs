//! Rebuilds the crate when a system item is added or changed; the macro that embeds them tracks only known files.

fn main() {
    println!("cargo::rerun-if-changed=../../.ai/tools/rye");
    println!("cargo::rerun-if-changed=../../.ai/directives");
    println!("cargo::rerun-if-changed=../../.ai/knowledge");
    println!("cargo::rerun-if-changed=../../.ai/config/agent");
}
