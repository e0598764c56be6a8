use std::collections::HashMap;

use serde_json::json;

use super::*;
use crate::error::Kinded;

fn origin() -> Origin {
    Origin {
        provider: "anthropic".to_owned(),
        model: "m".to_owned(),
    }
}

fn root() -> Root {
    Root {
        system: Some("Be brief".to_owned()),
        tools: vec![Tool {
            name: "echo".to_owned(),
            description: "Says it again".to_owned(),
            schema: json!({"type": "object", "properties": {"z": {}, "a": {}}}),
        }],
        tool_mode: ToolMode::Native,
        origin: origin(),
    }
}

fn call(id: &str) -> Block {
    Block::Call {
        id: id.to_owned(),
        name: "echo".to_owned(),
        input: json!({"text": "é", "n": 1.5}).as_object().cloned().unwrap(),
    }
}

fn said(blocks: Vec<Block>) -> Message {
    Message::Assistant {
        origin: origin(),
        blocks,
        raw: Some(Raw(r#"[{"z":1e2,"a":12345678901234567890123}]"#.to_owned())),
        stop: Some(Stop::Calls),
        partial: false,
    }
}

fn result(id: &str) -> Block {
    Block::Result {
        id: id.to_owned(),
        content: "ok".to_owned(),
        is_error: false,
    }
}

fn results(ids: &[&str]) -> Message {
    Message::User {
        source: Source::Tools,
        blocks: ids.iter().map(|id| result(id)).collect(),
    }
}

/// Returns a store with a conversation of `turns` turns, each with one call, and the names of its entries from the
/// root.
fn stored(turns: u32) -> (HashMap<Digest, String>, Vec<Digest>) {
    let mut store = HashMap::new();
    let mut names: Vec<Digest> = Vec::new();
    for turn in 0..=turns {
        let entry = match names.last() {
            None => Entry::root(root(), vec![Message::text(Source::Directive, "Go")]),
            Some(prev) => {
                let id = format!("call-{turn}");
                let messages = vec![said(vec![call(&id)]), results(&[&id])];
                Entry::turn(*prev, turn, messages)
            }
        };
        let encoded = entry.encode();
        let name = Digest::of(&encoded.text);
        assert_eq!(name.to_string(), encoded.hash);
        store.insert(name, encoded.text);
        names.push(name);
    }
    (store, names)
}

fn walked(store: &HashMap<Digest, String>, head: &Digest) -> Result<Conversation, Damage> {
    walk(head, |name| Ok(store.get(name).cloned()))
}

#[test]
fn entry_text_is_canonical_and_reads_back() {
    let entry = Entry::root(root(), vec![Message::text(Source::Directive, "Hi")]);
    assert_eq!(
        entry.encode().text,
        "{\"kind\":\"conversation\",\"messages\":[{\"blocks\":[{\"text\":\"Hi\",\"type\":\"text\"}],\
         \"role\":\"user\",\"source\":\"directive\"}],\"prev\":null,\"root\":{\"origin\":\
         {\"model\":\"m\",\"provider\":\"anthropic\"},\"system\":\"Be brief\",\"tool_mode\":\"native\",\
         \"tools\":[{\"description\":\"Says it again\",\"name\":\"echo\",\"schema\":{\"properties\":\
         {\"a\":{},\"z\":{}},\"type\":\"object\"}}]},\"schema\":1,\"turn\":0}"
    );
    let prev = Digest::of("x");
    let turn = Entry::turn(
        prev,
        7,
        vec![
            said(vec![
                Block::Thinking {
                    text: "hm".to_owned(),
                },
                Block::Text {
                    text: "\u{1f600}".to_owned(),
                },
                call("a"),
            ]),
            results(&["a"]),
        ],
    );
    let text = turn.encode().text;
    let read = Entry::decode(&text).unwrap();
    // Raw text of a provider is kept as text, so numbers of any length survive.
    assert_eq!(read, turn);
    assert_eq!(read.encode().text, text);
}

#[test]
fn entry_decode_reports_invalid_texts() {
    let text = Entry::root(root(), Vec::new()).encode().text;
    for (text, told) in [
        (String::new(), "EOF"),
        ("[]".to_owned(), "invalid"),
        (
            text.replace("\"schema\":1", "\"schema\":2"),
            "the version 2",
        ),
        (
            text.replace("\"kind\":\"conversation\"", "\"kind\":\"node_result\""),
            "another kind",
        ),
        (
            text.replace("\"prev\":null", "\"prev\":\"../../x\""),
            "hexadecimal",
        ),
        (text.replace("\"turn\":0", "\"turn\":-1"), "invalid value"),
    ] {
        let error = Entry::decode(&text).unwrap_err();
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn walk_reads_conversation_from_its_head() {
    let (store, names) = stored(3);
    let conversation = walked(&store, &names[3]).unwrap();
    assert_eq!(conversation.root, root());
    assert_eq!(
        (&conversation.first, &conversation.head),
        (&names[0], &names[3])
    );
    assert_eq!(conversation.turn, 3);
    assert_eq!(conversation.messages.len(), 7);
    assert_eq!(conversation.unanswered(), [""; 0]);
    assert!(conversation.bytes() > root().bytes());

    // Pushing entries one by one gives the same conversation.
    let mut grown = Conversation::begin(
        names[0],
        root(),
        vec![Message::text(Source::Directive, "Go")],
    )
    .unwrap();
    for turn in 1..=3 {
        let id = format!("call-{turn}");
        let at = usize::try_from(turn).unwrap();
        let messages = vec![said(vec![call(&id)]), results(&[&id])];
        grown.push(names[at], turn, messages).unwrap();
    }
    assert_eq!(grown, conversation);
}

#[test]
fn damage_names_its_entry() {
    for broken in 0..4 {
        let (mut store, names) = stored(3);
        store.remove(&names[broken]);
        let damage = walked(&store, &names[3]).unwrap_err();
        assert_eq!(
            (&damage.entry, &damage.fault),
            (&names[broken], &EntryFault::Missing)
        );
        assert!(
            damage.to_string().contains(&names[broken].to_string()),
            "{damage}"
        );

        let (mut store, names) = stored(3);
        store.get_mut(&names[broken]).unwrap().push(' ');
        let damage = walked(&store, &names[3]).unwrap_err();
        assert_eq!(
            (&damage.entry, &damage.fault),
            (&names[broken], &EntryFault::Changed)
        );
    }
    let (_, names) = stored(0);
    let damage = walk(&names[0], |_| Err("no space".to_owned())).unwrap_err();
    assert_eq!(damage.kind(), crate::error::ErrorKind::Unavailable);
}

#[test]
fn walk_refuses_misplaced_entries() {
    let (store, names) = stored(1);
    let again = said(vec![call("x")]);
    for (entry, told) in [
        (Entry::turn(names[1], 1, Vec::new()), "turn is not below"),
        (
            Entry {
                root: Some(root()),
                ..Entry::turn(names[1], 2, Vec::new())
            },
            "no other, has a root",
        ),
        (
            Entry {
                root: None,
                ..Entry::root(root(), Vec::new())
            },
            "has a root",
        ),
        (
            Entry::turn(names[1], 2, vec![results(&["x"])]),
            "answers no open call",
        ),
        (
            Entry::turn(names[1], 2, vec![again.clone(), results(&["x", "x"])]),
            "answers no open call",
        ),
        (
            Entry::turn(names[1], 2, vec![again.clone(), again]),
            "were not answered",
        ),
        (
            Entry::turn(names[1], 2, vec![said(vec![call("x"), call("x")])]),
            "one id",
        ),
        (
            Entry::turn(names[1], 2, vec![said(vec![result("x")])]),
            "wrong side",
        ),
        (
            Entry::turn(
                names[1],
                2,
                vec![Message::User {
                    source: Source::Hook,
                    blocks: vec![call("x")],
                }],
            ),
            "wrong side",
        ),
    ] {
        let mut store = store.clone();
        let text = entry.encode().text;
        let name = Digest::of(&text);
        store.insert(name, text);
        let damage = walked(&store, &name).unwrap_err();
        assert!(damage.to_string().contains(told), "{damage}");
        assert_eq!(damage.kind(), crate::error::ErrorKind::DataLoss);
    }
}

#[test]
fn unanswered_lists_open_calls() {
    let (_, names) = stored(0);
    let mut conversation = Conversation::begin(names[0], root(), Vec::new()).unwrap();
    let name = Digest::of("turn");
    conversation
        .push(name, 1, vec![said(vec![call("a"), call("b"), call("c")])])
        .unwrap();
    assert_eq!(conversation.unanswered(), ["a", "b", "c"]);
    conversation.push(name, 1, vec![results(&["b"])]).unwrap();
    assert_eq!(conversation.unanswered(), ["a", "c"]);
    conversation
        .push(name, 1, vec![results(&["a", "c"])])
        .unwrap();
    assert_eq!(conversation.unanswered(), [""; 0]);
}

#[test]
fn tokens_are_rounded_up() {
    let size = TokenSize::from_thousandths(2500).unwrap();
    for (bytes, tokens) in [(0, 0), (1, 1), (5, 2), (6, 3), (2_500_000, 1_000_000)] {
        assert_eq!(size.tokens(bytes), tokens, "{bytes}");
    }
    assert_eq!(TokenSize::from_thousandths(0), None);
    let finest = TokenSize::from_thousandths(1).unwrap();
    assert_eq!(finest.tokens(usize::MAX), u64::MAX);
}

/// Returns a conversation with two messages of reasoning, one of them without any other block.
fn with_reasoning() -> Conversation {
    let thought = Block::Thinking {
        text: "Hm.".to_owned(),
    };
    let text = Block::Text {
        text: "I <look>.".to_owned(),
    };
    let failed = Message::User {
        source: Source::Tools,
        blocks: vec![Block::Result {
            id: "c1".to_owned(),
            content: "</result> \"no\" & no".to_owned(),
            is_error: true,
        }],
    };
    let (store, names) = stored(0);
    let mut conversation = walk(&names[0], |name| Ok(store.get(name).cloned())).unwrap();
    let turns = [
        vec![said(vec![thought.clone(), text, call("c1")]), failed],
        vec![said(vec![thought])],
        vec![Message::text(Source::Nudge, "Well?")],
    ];
    for (turn, messages) in (1..).zip(turns) {
        let name = Digest::of(format!("{turn}"));
        conversation.push(name, turn, messages).unwrap();
    }
    conversation
}

#[test]
fn reseed_as_pairs_drops_reasoning() {
    let entry = with_reasoning().reseeded(Reseed::Pairs);
    assert_eq!((&entry.prev, entry.turn), (&None, 0));
    assert_eq!(entry.root, Some(root()), "prompt, tools and model stay");
    let [first, said, results, told] = entry.messages.as_slice() else {
        panic!("{entry:?}");
    };
    assert_eq!(first, &Message::text(Source::Directive, "Go"));
    let Message::Assistant {
        blocks, raw: None, ..
    } = said
    else {
        panic!("what was received does not go back: {said:?}");
    };
    assert_eq!(blocks.len(), 2);
    assert!(!matches!(blocks[0], Block::Thinking { .. }));
    assert_eq!(results.results().collect::<Vec<_>>(), ["c1"]);
    assert_eq!(told, &Message::text(Source::Nudge, "Well?"));
    let whole = Conversation::begin(Digest::of("x"), root(), entry.messages).unwrap();
    assert!(whole.unanswered().is_empty());
}

#[test]
fn reseed_as_text_is_one_message() {
    let entry = with_reasoning().reseeded(Reseed::Text);
    let [first, told] = entry.messages.as_slice() else {
        panic!("{entry:?}");
    };
    assert_eq!(first, &Message::text(Source::Directive, "Go"));
    let [Block::Text { text }] = told.blocks() else {
        panic!("{told:?}");
    };
    let expected = "This is what you have said and done so far. Continue from there.\n\n\
        <assistant>\nI &lt;look>.\n</assistant>\n\n\
        <call id=\"c1\" name=\"echo\">{\"text\":\"é\",\"n\":1.5}</call>\n\n\
        <result id=\"c1\" error=\"true\">\n&lt;/result> \"no\" &amp; no\n</result>\n\n\
        <user>\nWell?\n</user>";
    assert_eq!(text, expected);
}

#[test]
fn reseed_keeps_conversation_without_answers() {
    let (store, names) = stored(0);
    for how in [Reseed::Text, Reseed::Pairs] {
        let begun = walk(&names[0], |name| Ok(store.get(name).cloned())).unwrap();
        assert_eq!(begun.reseeded(how).encode().text, store[&names[0]]);
    }
}
