//! The committed code is what the contract generates.

use std::path::Path;

use prost::Message as _;

/// Messages that derive `Serialize`.
const SERIALIZED: &[&str] = &[
    "AdoptedProcess",
    "Approval",
    "Budget",
    "CacheEntry",
    "Cancel",
    "CapabilityLayer",
    "Cost",
    "Delta",
    "EndedProcess",
    "Event",
    "Finding",
    "GetBudgetResponse",
    "InfoResponse",
    "Item",
    "ItemCount",
    "KillReceipt",
    "LeftOutTool",
    "Limits",
    "Meter",
    "Model",
    "ModelPrice",
    "ModelsResponse",
    "OfferedTool",
    "PermissionRisk",
    "ProcessEnd",
    "RunError",
    "ShadowedItem",
    "ShellCommand",
    "Step",
    "SuppressedError",
    "Suspension",
    "ToolEnvironment",
    "UncertainAttempt",
    "ValidateResponse",
    "Waiting",
];

/// How fields are written that are not written as they are.
const FIELDS: &[(&str, &[&str])] = &[
    (
        r#"serialize_with = "crate::json::field::text""#,
        &[
            "Approval.node",
            "CacheEntry.node",
            "CacheEntry.result_hash",
            "Cancel.reason",
            "Finding.node",
            "Item.problem",
            "Item.fingerprint",
            "Item.owner",
            "Item.title",
            "Item.description",
            "Item.version",
            "Item.tool_type",
            "RunError.node",
            "RunError.class",
            "Suspension.code",
            "Suspension.node",
            "Suspension.child",
            "UncertainAttempt.key",
            "UncertainAttempt.item",
        ],
    ),
    (
        r#"serialize_with = "crate::json::field::time""#,
        &[
            "Approval.created_at",
            "Approval.expires_at",
            "CacheEntry.cached_at",
            "Cancel.at",
            "Event.timestamp",
            "InfoResponse.started_at",
            "UncertainAttempt.started_at",
            "Waiting.until",
        ],
    ),
    (
        r#"serialize_with = "crate::json::field::amount""#,
        &["Suspension.current", "Suspension.max"],
    ),
    ("flatten", &["RunError.process", "Step.process"]),
    (
        "skip",
        &[
            "Budget.parent",
            "Budget.cost",
            "Budget.used",
            "Limits.steps",
            "Suspension.begun",
            "ValidateResponse.path",
        ],
    ),
    (
        r#"skip_serializing_if = "String::is_empty""#,
        &[
            "Delta.heading",
            "Suspension.account",
            "UncertainAttempt.run_id",
        ],
    ),
    (
        r#"skip_serializing_if = "Vec::is_empty""#,
        &["InfoResponse.history_notes", "Suspension.attempts"],
    ),
    (
        r#"skip_serializing_if = "Option::is_none""#,
        &[
            "InfoResponse.tools",
            "ProcessEnd.exit_code",
            "ProcessEnd.signal",
            "Step.items",
            "Step.command",
        ],
    ),
    (
        r#"rename = "payload", serialize_with = "crate::json::field::payload_json""#,
        &["Event.payload_json"],
    ),
    (
        r#"rename = "params", serialize_with = "crate::json::field::params_json""#,
        &["UncertainAttempt.params_json"],
    ),
    (
        r#"rename = "schema", serialize_with = "crate::json::field::schema_json""#,
        &["Approval.schema_json", "OfferedTool.schema_json"],
    ),
    (
        r#"rename = "id", serialize_with = "crate::json::field::item""#,
        &["Item.item"],
    ),
    (r#"rename = "class""#, &["PermissionRisk.risk"]),
    (
        r#"serialize_with = "crate::json::field::delta_kind""#,
        &["Delta.kind"],
    ),
    (
        r#"serialize_with = "crate::json::field::isolation""#,
        &["InfoResponse.isolation"],
    ),
    (
        r#"serialize_with = "crate::json::field::tiers""#,
        &["ModelsResponse.tiers"],
    ),
    (
        r#"serialize_with = "crate::json::field::sorted""#,
        &["ModelsResponse.aliases"],
    ),
];

/// Fields with money, each written by the function of its name.
const MONEY: &[&str] = &[
    "Budget.max",
    "Budget.reserved",
    "Budget.held",
    "Budget.own",
    "Budget.actual",
    "Budget.overrun",
    "Budget.remaining",
    "Cost.spend",
    "Meter.max",
    "Meter.spent",
    "Meter.held",
];

fn builder() -> tonic_prost_build::Builder {
    let mut builder = tonic_prost_build::configure();
    for message in SERIALIZED {
        builder =
            builder.type_attribute(format!(".rye.v1.{message}"), "#[derive(serde::Serialize)]");
    }
    for (attribute, fields) in FIELDS {
        for field in *fields {
            builder = builder
                .field_attribute(format!(".rye.v1.{field}"), format!("#[serde({attribute})]"));
        }
    }
    for field in MONEY {
        let (_, name) = field.split_once('.').expect("a field of a message");
        let attribute = format!("#[serde(serialize_with = \"crate::json::field::{name}\")]");
        builder = builder.field_attribute(format!(".rye.v1.{field}"), attribute);
    }
    builder
}

#[test]
fn committed_code_is_what_the_contract_generates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().expect("a temporary directory");
    let files =
        protox::compile(["rye/v1/rye.proto"], [root.join("proto")]).expect("the contract compiles");
    let descriptors = files.encode_to_vec();
    builder()
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
