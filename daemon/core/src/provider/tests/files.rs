//! Provider files.

use super::*;
use crate::clock::Timestamp;
use crate::directive::CallStart;

#[test]
fn a_file_is_read() {
    let provider = provider(
        "p",
        "base_url: {env: BASE, default: \"https://a.example/\"}\n\
         headers: {X-Version: \"1\", x-org: {env: ORG}}\n\
         auth: [{header: Authorization, prefix: \"Bearer \", secret: A}, {header: x-key, secret: B}]\n\
         timeouts: {idle: 60}\n\
         quirks: {end: lenient, cache: none}\n\
         tools: {start: message, max_parallel: 99}\n\
         as_of: 2026-11-20\n\
         profiles: [{match: \"m*\", model: {window: 5, max_output: 4, temperature: false}}, {match: \"*x\", model: {window: 9, bytes_per_token: 3.125}}]\n\
         models: [{id: mx, prices: free}, {id: m, window: 7, reasoning: {kind: effort, levels: [low]}}]",
    );
    assert_eq!(provider.name, "p");
    assert_eq!(
        provider.endpoint.headers,
        [
            ("x-version".to_owned(), HeaderValue::Text("1".to_owned())),
            ("x-org".to_owned(), HeaderValue::Env("ORG".to_owned()))
        ]
    );
    assert_eq!(provider.endpoint.auth[0].prefix, "Bearer ");
    assert_eq!(provider.endpoint.auth[0].header, "authorization");
    assert_eq!(provider.endpoint.secrets().collect::<Vec<_>>(), ["A", "B"]);
    assert_eq!(
        (
            provider.endpoint.timeouts.idle,
            provider.endpoint.timeouts.connect
        ),
        (60, 10)
    );
    assert_eq!(provider.quirks.end, EndMark::Lenient);
    assert_eq!(provider.quirks.cache, CacheMarks::None);
    assert_eq!(
        (provider.start, provider.max_parallel),
        (CallStart::Message, 25)
    );
    let both = provider.model("mx").unwrap();
    assert_eq!(
        (both.window, both.max_output),
        (9, 4),
        "the later profile lies on top"
    );
    assert!(!both.temperature);
    assert_eq!(
        both.token_size,
        crate::conversation::TokenSize::from_thousandths(3125).unwrap()
    );
    let own = provider.model("m").unwrap();
    assert_eq!(own.window, 7, "what the model says itself goes first");
    assert_eq!(own.prices, None);
    assert_eq!(provider.model("other"), None);

    let url = |value: Option<&str>| {
        let env = |name: &str| {
            assert_eq!(name, "BASE");
            value.map(ToOwned::to_owned)
        };
        provider.endpoint.url("m", env)
    };
    assert_eq!(url(None).unwrap(), "https://a.example/v1/messages");
    assert_eq!(url(Some(" ")).unwrap(), "https://a.example/v1/messages");
    assert_eq!(
        url(Some("http://localhost:1/x/")).unwrap(),
        "http://localhost:1/x/v1/messages"
    );
    let refused = url(Some("http://a.example")).unwrap_err();
    assert!(refused.contains("plain HTTP"), "{refused}");

    let day = |text: &str| Timestamp::parse(&format!("{text}T00:00:00Z")).unwrap();
    assert!(!provider.is_stale(day("2027-02-18")));
    assert!(provider.is_stale(day("2027-02-19")));
}

#[test]
fn endpoint_is_kept_with_thread() {
    let text = file(
        "p",
        "base_url: {env: BASE, default: \"https://a.example/\"}\n\
         headers: {x-version: \"1\", x-org: {env: ORG}}\n\
         auth: [{header: authorization, prefix: \"Bearer \", secret: A}, {header: x-key, secret: B}]\n\
         max_concurrent: 3\n\
         timeouts: {idle: 60}",
    );
    let (provider, _) = Provider::parse(&text, &id("p"), Owner::Project).unwrap();
    let stored = json!({
        "owner": "project",
        "base_url": {"env": "BASE", "default": "https://a.example/"},
        "path": "/v1/messages",
        "headers": [["x-version", {"text": "1"}], ["x-org", {"env": "ORG"}]],
        "auth": [
            {"header": "authorization", "prefix": "Bearer ", "secret": "A"},
            {"header": "x-key", "secret": "B"},
        ],
        "max_concurrent": 3,
        "timeouts": {"connect": 10, "headers": 120, "first_event": 300, "idle": 60},
    });
    let resolved = ResolvedModel {
        endpoint: provider.endpoint,
        ..model()
    };
    let written = serde_json::to_value(&resolved).unwrap();
    assert_eq!(written["endpoint"], stored);
    let read: ResolvedModel = serde_json::from_value(written).unwrap();
    assert_eq!(read, resolved);
    let plain = serde_json::to_string(&model().endpoint).unwrap();
    assert_eq!(
        serde_json::from_str::<Endpoint>(&plain).unwrap(),
        model().endpoint
    );
}

#[test]
fn an_open_provider_takes_any_model() {
    let open = provider(
        "p",
        "open: true\npath: /v1/{model}:go\nprofiles: [{match: \"free-*\", model: {window: 8000, max_output: 2000, prices: free}}]\nmodels: []",
    );
    let model = open.model("free-1/a").unwrap();
    assert_eq!((model.id.as_str(), model.window), ("free-1/a", 8000));
    assert_eq!(open.model("other"), None, "nobody says how large it is");
    assert_eq!(open.listed("free-1/a"), None);
    assert_eq!(
        open.endpoint.url("free-1/a", |_| None).unwrap(),
        "https://api.example.com/v1/free-1%2Fa:go"
    );
}

/// Keys of a file, the code of a finding, and a part of its message.
const FAULTS: &[(&str, &str, &str)] = &[
    ("modles: []", "unknown_key", "did you mean `models`?"),
    ("pricing: {}", "unknown_key", "at each model"),
    (
        "name: q",
        "wrong_name",
        "by the place of the file it is `p`",
    ),
    ("category: agent", "wrong_name", "agent/providers"),
    ("api: anthropc", "unknown_value", "there are anthropic"),
    (
        "api: openai_chat\nquirks: {cache: marked}",
        "unknown_key",
        "openai_chat",
    ),
    (
        "api: openai_chat\nmodels: [{id: m, window: 90000, max_output: 9000, reasoning: {kind: budget, max: 2000}}]",
        "conflict",
        "no budget",
    ),
    ("api: gemini", "not_supported", "the api `gemini`"),
    ("base_url: http://a.example", "bad_url", "plain HTTP"),
    (
        "base_url: {env: \"sk-ant-123 456\"}",
        "bad_name",
        "letters, digits",
    ),
    ("base_url: {dflt: a}", "unknown_key", "env, default"),
    ("base_url: null", "missing_key", "`base_url` is missing"),
    ("path: v1", "bad_url", "begins with `/`"),
    ("path: /v1/{key}", "bad_url", "but {model}"),
    ("path: /../x", "bad_url", "begins with `/`"),
    ("headers: {\"a b\": c}", "bad_header", "letters, digits"),
    ("headers: {Host: c}", "bad_header", "set by Rye"),
    ("headers: {User-Agent: c}", "bad_header", "set by Rye"),
    (
        "auth: [{header: accept, secret: A}]",
        "bad_header",
        "set by Rye",
    ),
    ("headers: {a: \"b\\nc\"}", "bad_header", "visible ASCII"),
    (
        "headers: {a: {evn: B}}",
        "unknown_key",
        "did you mean `env`?",
    ),
    (
        "auth: [{header: a}]",
        "missing_key",
        "never the secret itself",
    ),
    (
        "auth: [{header: a, secret: \"sk-ant-oops\"}]",
        "bad_name",
        "letters, digits",
    ),
    ("max_concurrent: 0", "wrong_type", "from 1"),
    ("timeouts: {idle: soon}", "wrong_type", "whole number"),
    ("timeouts: {total: 1}", "unknown_key", "`timeouts`"),
    ("quirks: {end: soft}", "unknown_value", "strict, lenient"),
    ("quirks: {tool_index: id}", "unknown_key", "anthropic"),
    ("tools: {mode: text}", "not_supported", "mode `text`"),
    ("as_of: yesterday", "wrong_type", "like 2026-11-20"),
    ("profiles: [{match: \"[\"}]", "bad_pattern", "`match`"),
    (
        "profiles: [{match: a, model: {id: b}}]",
        "unknown_key",
        "has no key `id`",
    ),
    (
        "models: [{id: m, max_output: 1}]",
        "missing_key",
        "has no `window`",
    ),
    (
        "models: [{id: m, window: 1, max_output: 2}]",
        "conflict",
        "larger than its `window`",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9}, {id: n, aliases: [m], window: 9, max_output: 9}]",
        "duplicate_id",
        "called `m`",
    ),
    (
        "models: [{id: \"a b\", window: 9, max_output: 9}]",
        "bad_name",
        "blanks",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, bytes_per_token: 0}]",
        "wrong_type",
        "above 0",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, bytes_per_token: 2.0001}]",
        "wrong_type",
        "three decimals",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, reasoning: {kind: much}}]",
        "unknown_value",
        "none, effort and budget",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, reasoning: {kind: level}}]",
        "not_supported",
        "`level`",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, reasoning: {kind: effort}}]",
        "missing_key",
        "`levels`",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, reasoning: {kind: effort, levels: [a], default: b}}]",
        "unknown_value",
        "among `levels`",
    ),
    (
        "models: [{id: m, window: 9999, max_output: 2000, reasoning: {kind: budget, max: 1500}}]",
        "conflict",
        "for an answer",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, prices: []}]",
        "bad_prices",
        "there are none",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, prices: cheap}]",
        "wrong_type",
        "`free` or a list",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, prices: [{input: \"1\"}]}]",
        "missing_key",
        "`input` and `output`",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, prices: [{input: \"-1\", output: \"1\"}]}]",
        "bad_prices",
        "less than zero",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, prices: [{input: \"1\", output: \"10001\"}]}]",
        "bad_prices",
        "more than 10000",
    ),
    (
        "models: [{id: m, window: 9, max_output: 9, prices: [{input: \"1\", output: \"1\", until_prompt: 5}]}]",
        "bad_prices",
        "any size",
    ),
];

#[test]
fn each_fault_has_a_code_and_a_hint() {
    for (keys, code, told) in FAULTS {
        let text = file("p", keys);
        let findings = Provider::parse(&text, &id("p"), Owner::User).expect_err(keys);
        let hit = findings
            .iter()
            .any(|found| found.code == *code && found.message.contains(told));
        assert!(hit, "{keys}: {findings:?}");
        let all = format!("{findings:?}");
        assert!(
            !all.contains("sk-ant"),
            "what may be a secret is repeated: {all}"
        );
    }
}

#[test]
fn findings_have_positions() {
    let text = file("p", "quirks: {end: soft}");
    let findings = Provider::parse(&text, &id("p"), Owner::User).unwrap_err();
    assert_eq!((findings[0].line, findings[0].column), (9, 15));
}

#[test]
fn project_file_cannot_be_insecure() {
    let text = file("p", "base_url: http://10.0.0.1\ninsecure: true");
    assert!(Provider::parse(&text, &id("p"), Owner::User).is_ok());
    let findings = Provider::parse(&text, &id("p"), Owner::Project).unwrap_err();
    assert_eq!(findings[0].code, "denied");
}

#[test]
fn values_of_any_type_never_panic() {
    let whole = json!({
        "version": "1.0.0", "category": "agent/providers", "name": "p", "api": "anthropic",
        "base_url": {"env": "A", "default": "https://a.example"}, "path": "/v1/messages",
        "headers": {"a": "b", "c": {"env": "D"}},
        "auth": [{"header": "a", "prefix": "b", "secret": "C"}],
        "max_concurrent": 1, "timeouts": {"connect": 1}, "quirks": {"end": "strict"},
        "tools": {"mode": "native", "start": "message", "max_parallel": 1}, "as_of": "2026-11-20",
        "source": "x", "open": true, "insecure": false,
        "profiles": [{"match": "*", "model": {"window": 9000, "reasoning": {"kind": "budget", "max": 2000}}}],
        "models": [{
            "id": "m", "aliases": ["n"], "window": 9000, "max_input": 9, "max_output": 8000, "bytes_per_token": 2.5,
            "tools": true, "reseed": "text", "reasoning": {"kind": "effort", "levels": ["low"], "default": "low"},
            "temperature": true, "prices": [{"until_prompt": null, "input": "1", "cache_read": "1", "cache_write": "1", "output": "1"}],
        }],
    });
    assert!(Provider::parse(&whole.to_string(), &id("p"), Owner::User).is_ok());
    for file in warped(&[whole]) {
        let text = file[0].to_string();
        if let Err(findings) = Provider::parse(&text, &id("p"), Owner::Project) {
            let refused = crate::definition::errors(&findings).next();
            assert!(refused.is_some(), "refused without a reason: {text}");
        }
    }
}

#[test]
fn provider_page_lists_quirks() {
    fn words<T>(words: &[(&'static str, T)]) -> Vec<&'static str> {
        words.iter().map(|(word, _)| *word).collect()
    }
    let table = rye_pages::Table::read("docs/providers.md", "quirks");
    let quirks = [
        ("end", words(EndMark::WORDS)),
        ("cache", words(CacheMarks::WORDS)),
        ("usage", words(UsageReport::WORDS)),
        ("tool_ids", words(IdRule::WORDS)),
        ("tool_index", words(IndexRule::WORDS)),
        ("system", words(SystemRole::WORDS)),
        ("max_tokens_field", words(MaxTokensField::WORDS)),
        ("reasoning_replay", words(ReasoningReplay::WORDS)),
    ];
    table.assert_lists(quirks.iter().map(|(name, _)| *name));
    for (name, words) in quirks {
        let said = table.cell(name, "values, the usual one first");
        let expected: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        assert_eq!(said, expected.join(", "), "{name}");
    }
}

#[test]
fn provider_files_of_the_page_are_read_without_a_finding() {
    let blocks = rye_pages::blocks("docs/providers.md");
    let text = |part: &str| {
        let mut blocks = blocks.iter().filter(|block| block.language == "yaml");
        let found = blocks.find(|block| block.text.contains(part));
        found.unwrap().text.clone()
    };
    let whole = text("base_url:");
    let (head, _) = whole.split_once("models:").unwrap();
    for file in [whole.clone(), format!("{head}{}", text("until_prompt"))] {
        let (provider, findings) = Provider::parse(&file, &id("local"), Owner::Project).unwrap();
        assert_eq!((provider.name.as_str(), findings), ("local", Vec::new()));
    }
    let agent = crate::yaml::parse(&text("tiers:")).unwrap().value;
    let (agent, findings) = Agent::from_config(&agent).unwrap();
    assert_eq!(
        (agent.tiers["fast"].as_slice(), findings),
        (&["local/local-1".to_owned()][..], Vec::new())
    );
}

#[test]
fn key_of_the_original_in_provider_file_has_no_effect() {
    let text = file("p", "requires: [net.call]\n");
    let (_, findings) = Provider::parse(&text, &id("p"), Owner::User).unwrap();
    let codes: Vec<&str> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["no_effect"]);
}
