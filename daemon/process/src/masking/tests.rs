use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

const KEY: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Masks `pieces` as one stream.
fn streamed<'p>(masker: &Arc<Masker>, pieces: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut stream = MaskedStream::new(Arc::clone(masker));
    let mut shown = Vec::new();
    for piece in pieces {
        shown.extend_from_slice(&stream.push(piece));
    }
    shown.extend(stream.end());
    String::from_utf8(shown).unwrap()
}

fn key() -> Arc<Masker> {
    Arc::new(Masker::new([KEY]))
}

#[test]
fn secret_is_masked_in_text_keys_and_numbers() {
    let masker = Masker::new([KEY, "1234567890"]);
    let mut value = serde_json::json!({
        KEY: [format!("a {KEY} b"), 1_234_567_890, 12, null],
        "plain": "text",
    });
    assert!(masker.value(&mut value));
    assert_eq!(
        value,
        serde_json::json!({"[redacted]": ["a [redacted] b", "[redacted]", 12, null], "plain": "text"})
    );
    assert!(!masker.value(&mut value));
    assert!(!Masker::default().value(&mut value));
}

#[test]
fn secret_in_base64_is_masked_at_each_alignment_and_across_lines() {
    for before in ["", "x", "xy", "xyz=", "a longer text with the key "] {
        for alphabet in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let encoded = alphabet.encode(format!("{before}{KEY}\n"));
            for width in [60, 76, 1000] {
                let lines: Vec<&str> = encoded
                    .as_bytes()
                    .chunks(width)
                    .map(|line| std::str::from_utf8(line).unwrap())
                    .collect();
                let text = lines.join("\r\n");
                let shown = key().text(&text).unwrap();
                assert!(shown.len() <= text.len() + 20 - KEY.len(), "{shown}");
                let bytes = streamed(&key(), text.as_bytes().chunks(1));
                assert_eq!(bytes, shown, "byte by byte");
            }
        }
    }
}

#[test]
fn overlapping_secrets_are_masked_as_one() {
    let masker = Arc::new(Masker::new(["abcdefgh", "abcdefghij", "ghijklmnop"]));
    for (text, expected) in [
        ("<abcdefgh>", "<[redacted]>"),
        ("<abcdefghi>", "<[redacted]i>"),
        ("<abcdefghij>", "<[redacted]>"),
        ("<abcdefghijklmnop>", "<[redacted]>"),
        ("abcdefghijklmno", "[redacted]klmno"),
    ] {
        assert_eq!(masker.text(text).unwrap(), expected);
        assert_eq!(streamed(&masker, text.as_bytes().chunks(1)), expected);
    }
}

#[test]
fn only_possible_beginnings_are_held_back() {
    let mut stream = MaskedStream::new(key());
    let pushed = |stream: &mut MaskedStream, piece: &str| {
        String::from_utf8(stream.push(piece.as_bytes()).into_owned()).unwrap()
    };
    assert_eq!(pushed(&mut stream, "building\n"), "building\n");
    assert_eq!(pushed(&mut stream, "3 tests\n"), "3 tests\n");
    assert_eq!(pushed(&mut stream, "key: sk-ant-a"), "key: ");
    assert_eq!(pushed(&mut stream, "nswer"), "sk-ant-answer");
    assert_eq!(pushed(&mut stream, KEY), "[redacted]");
    assert_eq!(pushed(&mut stream, "sk-ant"), "");
    assert_eq!(stream.end(), b"sk-ant");
    let mut plain = MaskedStream::new(Arc::default());
    assert!(matches!(plain.push(b"text"), Cow::Borrowed(b"text")));
}

#[test]
fn held_bytes_are_bounded() {
    let masker = Arc::new(Masker::new(["aaaaaaaa"]));
    let mut stream = MaskedStream::new(masker);
    let mut shown = 0;
    for _ in 0..100 {
        shown += stream.push(&[b'a'; 10_000]).len();
        assert!(stream.held.len() < 100_000);
    }
    assert!(shown > 0);
}

#[test]
fn project_cannot_mask_texts_of_others() {
    let known = KnownSecrets::default();
    known.learn(None, KEY);
    known.learn(Some("/a"), "a-password");
    known.learn(None, "short");
    let (a, b) = (known.masker("/a"), known.masker("/b"));
    let text = format!("{KEY} a-password short");
    assert_eq!(a.text(&text).unwrap(), "[redacted] [redacted] short");
    assert_eq!(b.text(&text).unwrap(), "[redacted] a-password short");
    assert!(Arc::ptr_eq(&b, &known.masker("/c")));
    known.learn(None, "one-more-secret");
    assert_eq!(known.masker("/b").text("one-more-secret").unwrap(), MASK);
    assert!(!format!("{known:?} {a:?}").contains("password"));
}

proptest! {
    /// The positions of cuts have no effect, unless one is at a line break within a secret.
    #[test]
    fn pieces_are_masked_like_whole(
        parts in prop::collection::vec(prop_oneof![
            Just("abcdefgh".to_owned()), Just("ghabcdab".to_owned()), Just("aaaaaaaa".to_owned()),
            "[a-h]{0,6}", Just(STANDARD_NO_PAD.encode("_abcdefgh_"))
        ], 0..8),
        cuts in prop::collection::vec(0_usize..80, 0..6),
    ) {
        let masker = Arc::new(Masker::new(["abcdefgh", "ghabcdab", "aaaaaaaa"]));
        let text = parts.concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]);
        let whole = masker.text(&text).unwrap_or_else(|| text.clone());
        prop_assert_eq!(streamed(&masker, pieces), whole);
    }
}
