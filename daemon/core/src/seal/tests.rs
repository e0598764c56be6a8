//! The original system made the test vectors, and its verifier accepted them.

use serde_json::{Value, json};

use super::*;
use crate::clock::Timestamp;

const SIGNED_AT: &str = "2026-04-01T00:00:00Z";

const KNOWLEDGE: &str = "```yaml\nname: hello\ntitle: \"Hello\"\nversion: \"1.0.0\"\nentry_type: reference\n\
                         category: demo\n```\n\n# Hello\n\nCaf\u{e9} \u{2603}\n";
const PYTHON: &str = "__version__ = \"1.0.0\"\n__tool_type__ = \"python\"\n\
                      __executor_id__ = \"rye/core/runtimes/python/function\"\n__category__ = \"demo\"\n\
                      __tool_description__ = \"demo tool\"\n\n\ndef execute(params, project_path):\n    \
                      return {\"success\": True}\n";
const DIRECTIVE: &str = "# Hi\n\n```xml\n<directive name=\"hi\" version=\"1.0.0\">\n  <metadata>\n    \
                         <description>Say hi</description>\n    <category>demo</category>\n    \
                         <author>me</author>\n  </metadata>\n</directive>\n```\n\nSay hi.\n";
const TYPESCRIPT: &str =
    "export const __version__ = \"1.0.0\";\nexport const __executor_id__ = null;\n";

const V1: &str = "<!-- rye:signed:2026-04-01T00:00:00Z:3f9592d8939467e055ca2527835de0c17e13498231e07b37e783942d10b7c8f3:JhZFKx-cJU8ZWBrAgWmdzUBz35noEP1bVQ0W8YOa0Ys6r6ZBP8EVhLVyXnAn2XzkRJ5BfgCTRRnXrTqEfuyYDw:45c50cb5ae48c0f6 -->";
const V2: &str = "# rye:signed:2026-04-01T00:00:00Z:156b78cdab57f9efb2bcdeb58a0fe001fb45c310d3ee7ced2c708ba69eb95b1b:z9_-iOrXHxEBgA6Vv8w1xPWrSaFw_dwA2G5ux5p8qLcz7tFuy7lttff89XGysXuNOf8vdwsJMNbzUHWFnW-7CA:45c50cb5ae48c0f6";
const V3: &str = "<!-- rye:signed:2026-04-01T00:00:00Z:6442c6a0053a1fafab461a675ba109acdb72946d5aeea7689d1a4bee094a27f2:Te74Yy8qwgdUxa7QG8OmYbli-T6VCTugRD5EqqWC5QEf0qsRuFlQJ8ELAPxCbNkx_C03yNGSvHU40J50YtuEBg:45c50cb5ae48c0f6 -->";
const V4: &str = "// rye:signed:2026-04-01T00:00:00Z:31ab9b33008ef257fd5f4b8e521831fe72dc8a0f4363381f766d850579555281:2TWrZa9M2Maab8o1uBOHQEymSBlYRXppdzPsiYWjtJFk5GIkrbcBiFTyYOjZj4Ox0NG8l9oTwRNUQOenvPGHBQ:45c50cb5ae48c0f6";
const V5: &str = "rye:signed:2026-04-01T00:00:00Z:8b20e087805ec987dd5eb1f378c76322e2423178b2109840a1df8cadece9feaf:Sndj7aHdHo-0_Z9b9RQUKZ8Xd2Amct4dQ6r1f_2ePCt-36PrGktLtYIXtwOF5yuGt1ABclz9ikYIOqeI-im1AA:45c50cb5ae48c0f6";

fn key() -> SecretKey {
    let seed: Vec<u8> = (1..=32).collect();
    SecretKey::from_seed(&seed.try_into().expect("32 bytes"))
}

fn at() -> Timestamp {
    Timestamp::parse(SIGNED_AT).unwrap()
}

fn sign(kind: ItemKind, extension: &str, text: &str) -> String {
    sign_text(kind, extension, text, &key(), at()).unwrap()
}

fn coverage(kind: ItemKind, extension: &str, text: &str) -> Option<Coverage> {
    let seal = inspect(kind, extension, text).ok()?;
    seal.token.verify(key().public()).ok()?;
    Some(seal.coverage)
}

#[test]
fn texts_without_shebang_or_prose_are_signed_as_the_original_signs_them() {
    let cases = [
        (ItemKind::Knowledge, "md", KNOWLEDGE, V1),
        (ItemKind::Tool, "py", PYTHON, V2),
        (ItemKind::Tool, "ts", TYPESCRIPT, V4),
    ];
    for (kind, extension, text, line) in cases {
        let signed = format!("{line}\n{text}");
        assert_eq!(sign(kind, extension, text), signed);
        let alone = signature_line(kind, extension, text, &key(), at()).unwrap();
        assert_eq!(alone + text, signed);
        assert_eq!(coverage(kind, extension, &signed), Some(Coverage::Full));
    }
}

#[test]
fn partial_coverage_is_reported_for_shebang_and_prose() {
    let shebang = "#!/usr/bin/env python3\n";
    let theirs = format!("{shebang}{V2}\n{PYTHON}");
    assert_eq!(
        coverage(ItemKind::Tool, "py", &theirs),
        Some(Coverage::Partial)
    );
    let ours = sign(ItemKind::Tool, "py", &theirs);
    assert!(ours.starts_with(&format!("{shebang}# rye:signed:")));
    assert_eq!(coverage(ItemKind::Tool, "py", &ours), Some(Coverage::Full));

    let theirs = format!("{V3}\n{DIRECTIVE}");
    assert_eq!(
        coverage(ItemKind::Directive, "md", &theirs),
        Some(Coverage::Partial)
    );
    let ours = sign(ItemKind::Directive, "md", &theirs);
    assert_eq!(
        coverage(ItemKind::Directive, "md", &ours),
        Some(Coverage::Full)
    );
    let edited = ours.replace("Say hi.", "Say no.");
    assert!(matches!(
        inspect(ItemKind::Directive, "md", &edited),
        Err(Error::Modified { .. })
    ));
}

#[test]
fn changed_byte_breaks_signature() {
    let cases = [
        (ItemKind::Tool, "py", format!("#!/bin/python3\n{PYTHON}")),
        (
            ItemKind::Knowledge,
            "md",
            format!("---\na: b\n---\n{KNOWLEDGE}"),
        ),
        (ItemKind::Directive, "md", DIRECTIVE.to_owned()),
        (
            ItemKind::Config,
            "yaml",
            "category: x\nversion: 1.0.0\n".to_owned(),
        ),
    ];
    for (kind, extension, text) in cases {
        let signed = sign(kind, extension, &text);
        assert_eq!(coverage(kind, extension, &signed), Some(Coverage::Full));
        let time = signed.find(SIGNED_AT).unwrap();
        for index in 0..signed.len() {
            let mut bytes = signed.clone().into_bytes();
            bytes[index] ^= 1;
            let Ok(tampered) = String::from_utf8(bytes) else {
                continue;
            };
            // The format leaves only the digits of the time unsigned.
            if (time..time + SIGNED_AT.len()).contains(&index) {
                continue;
            }
            assert_ne!(
                coverage(kind, extension, &tampered),
                Some(Coverage::Full),
                "byte {index} of {signed:?}"
            );
        }
        for extra in [
            format!("{signed}\n"),
            format!("\u{feff}{signed}"),
            format!("\n{signed}"),
        ] {
            assert_ne!(coverage(kind, extension, &extra), Some(Coverage::Full));
        }
    }
}

#[test]
fn signature_ignores_line_ends_and_padding() {
    let signed = sign(ItemKind::Tool, "py", PYTHON);
    // Line ends are kept, except those at which our lines do not end.
    for (line_end, kept) in [("\r\n", "\r\n"), ("\r", "\n")] {
        let text = signed.replace('\n', line_end);
        assert_eq!(coverage(ItemKind::Tool, "py", &text), Some(Coverage::Full));
        let again = sign(ItemKind::Tool, "py", &text);
        assert_eq!(again, signed.replace('\n', kept));
        assert_eq!(coverage(ItemKind::Tool, "py", &again), Some(Coverage::Full));
    }
    let padded = signed.replace(":45c50cb5ae48c0f6", "==:45c50cb5ae48c0f6");
    assert_eq!(
        coverage(ItemKind::Tool, "py", &padded),
        Some(Coverage::Full)
    );
}

#[test]
fn signing_replaces_every_older_signature_line() {
    let old =
        format!("# rye:validated:2025-01-01T00:00:00Z:abc\n{V2}\n# kiwi-mcp:signed:x\n{PYTHON}");
    assert_eq!(sign(ItemKind::Tool, "py", &old), format!("{V2}\n{PYTHON}"));
    assert_eq!(strip(ItemKind::Tool, "py", &old).unwrap(), PYTHON);
}

#[test]
fn text_after_token_is_not_covered() {
    let signed = format!("{V2} junk\n{PYTHON}");
    assert_eq!(
        coverage(ItemKind::Tool, "py", &signed),
        Some(Coverage::Partial)
    );
    let registry = format!("{V2}|registry@me\n{PYTHON}");
    assert_eq!(
        coverage(ItemKind::Tool, "py", &registry),
        Some(Coverage::Full)
    );
}

#[test]
fn a_file_type_without_comments_is_refused() {
    assert!(matches!(
        inspect(ItemKind::Directive, "yaml", "x: 1\n"),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        inspect(ItemKind::Tool, "yaml", "x: 1\n"),
        Err(Error::Unsigned)
    ));
}

#[test]
fn malformed_tokens_are_refused() {
    let good = V5;
    assert!(Token::parse(good).is_some());
    for bad in [
        good.replace("04-01T", "13-01T"),
        good.replace("00:00:00Z", "00:00:00+"),
        good.replace(":8b20", ":8B20"),
        good.replace("I-im1AA", "I-im1AB"),
        good.replace("I-im1AA", "I-im1A"),
        good.replace("c0f6", "c0f"),
        good.replace("c0f6", "c0f6 "),
        good.replace("c0f6", "c0f6|registry@"),
        good.replace("signed", "validated"),
        good.replace("2026-04", "2026\u{e9}4"),
    ] {
        assert_eq!(Token::parse(&bad), None, "{bad}");
    }
}

#[test]
fn keys_have_the_fingerprint_of_their_pem_text() {
    let key = key();
    assert_eq!(key.public().fingerprint().as_str(), "45c50cb5ae48c0f6");
    let pem = key.public().to_pem();
    assert!(pem.contains("\nMCowBQYDK2VwAyEAebVWLo/mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ=\n"));
    assert_eq!(
        &PublicKey::from_pem(&format!("\n{pem}\n")).unwrap(),
        key.public()
    );
}

#[test]
fn private_keys_are_read_in_both_versions_and_written_in_the_first() {
    use ed25519_dalek::pkcs8::EncodePrivateKey as _;
    let signing = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
    let line_end = ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF;
    let second = signing.to_pkcs8_pem(line_end).unwrap();
    let key = SecretKey::from_pem(&second).unwrap();
    let first = key.to_pem();
    assert!(first.len() < second.len());
    let again = SecretKey::from_pem(&first).unwrap();
    assert_eq!(again.public(), key.public());
    assert_eq!(SecretKey::from_seed(&[7; 32]).public(), key.public());
}

#[test]
fn secret_key_is_never_displayed() {
    assert_eq!(format!("{:?}", key()), "SecretKey(45c50cb5ae48c0f6, ..)");
    let error = SecretKey::from_pem("-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap_err();
    assert!(!crate::error::with_sources(&error).contains("AAAA"));
}

#[test]
fn json_is_signed_as_the_original_signs_it() {
    let Value::Object(mut thread) = json!({
        "thread_id": "t-1", "status": "running", "limits": {"turns": 3, "spend": 0.1},
        "capabilities": ["rye.execute.tool.*"], "note": "\u{e9}"
    }) else {
        unreachable!("it is an object");
    };
    assert!(matches!(verify_json(&thread), Err(Error::Unsigned)));
    sign_json(&mut thread, &key(), at());
    assert_eq!(thread["_signature"], V5);
    let token = verify_json(&thread).unwrap();
    token.verify(key().public()).unwrap();
    assert!(
        token
            .verify(SecretKey::from_seed(&[9; 32]).public())
            .is_err()
    );
    thread.insert("status".into(), "completed".into());
    assert!(matches!(verify_json(&thread), Err(Error::Modified { .. })));
}

#[test]
fn canonical_json_matches_python() {
    for (text, expected) in [
        (
            r#"{"b": 1, "a": [true, null, ""]}"#,
            r#"{"a":[true,null,""],"b":1}"#,
        ),
        (
            "\"\u{7f}\\u0001/\\\"\\\\\\n\\b\\f\u{1f600}\u{e9}\"",
            r#""\u007f\u0001/\"\\\n\b\f\ud83d\ude00\u00e9""#,
        ),
        ("[1e-7, 0.0001, 0.00001]", "[1e-07,0.0001,1e-05]"),
        (
            "[2.0, 1e16, 1e22, -0.0, 0.1, 123456789012345.6]",
            "[2.0,1e+16,1e+22,-0.0,0.1,123456789012345.6]",
        ),
        (
            "[9999999999999998.0, 1.5e300, 5e-324]",
            "[9999999999999998.0,1.5e+300,5e-324]",
        ),
        (
            "[18446744073709551615, -9223372036854775808]",
            "[18446744073709551615,-9223372036854775808]",
        ),
    ] {
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(canonical(&value), expected);
    }
}

#[test]
fn a_transcript_checkpoint_of_the_original_verifies() {
    let line = "{\"timestamp\": 1.0, \"thread_id\": \"t-1\", \"event_type\": \"cognition_in\", \"payload\": {\"text\": \"hi\"}}\n";
    let hash = sha256_hex(line);
    assert_eq!(
        hash,
        "58130afe6851261f800a4749dd6fd4a8d212a4be0fedeef0b894bc12fca927a0"
    );
    let signature = key().sign_hex(&hash);
    assert_eq!(
        signature.to_string(),
        "Uz4jW2AQvBMkfeKhiAWGzWwadLP9GNwAogwu1t7ywjvM5mCPFpwMmEtCrm5WTo6AkautduSlkbzScASMfCDuAA"
    );
    assert!(key().public().verifies(&hash, &signature));
}
