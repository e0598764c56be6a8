//! The committed code is what the contract generates.

use std::path::Path;

use prost::Message as _;

#[test]
fn committed_code_is_what_the_contract_generates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().expect("a temporary directory");
    let files =
        protox::compile(["rye/v1/rye.proto"], [root.join("proto")]).expect("the contract compiles");
    let descriptors = files.encode_to_vec();
    tonic_prost_build::configure()
        .out_dir(out.path())
        .compile_fds(files)
        .expect("code is generated");
    let code = std::fs::read(out.path().join("rye.v1.rs")).expect("generated code");
    let committed = root.join("src/gen");
    for (name, fresh) in [("rye.v1.rs", code), ("rye.v1.bin", descriptors)] {
        let path = committed.join(name);
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(&path, &fresh).expect("the generated file is written");
        }
        let old = std::fs::read(&path).unwrap_or_default();
        assert!(
            old == fresh,
            "{} is out of date: run `UPDATE_GENERATED=1 cargo test -p rye-proto`",
            path.display()
        );
    }
}
