use super::*;
use crate::directive::CallStart;
use crate::directive::{ToolUse, Wish};

fn providers() -> BTreeMap<String, Provider> {
    let one = provider(
        "one",
        "auth: [{header: a, secret: ONE}]\nmodels: [{id: big, aliases: [b], window: 200000, max_output: 64000, prices: free, reasoning: {kind: effort, levels: [low, high]}}, {id: both, window: 9000, max_output: 8000, prices: free}]",
    );
    let two = provider(
        "two",
        "auth: [{header: a, secret: TWO}, {header: a, secret: SECOND}]\nmodels: [{id: both, window: 9000, max_output: 8000, prices: free, temperature: false}, {id: dear, window: 9000, max_output: 8000}, {id: thinks, window: 90000, max_output: 32000, prices: free, reasoning: {kind: budget, max: 16000}}]",
    );
    let open = provider(
        "open",
        "auth: []\nopen: true\nprofiles: [{match: \"*\", model: {window: 8000, max_output: 2000, prices: free}}]\nmodels: []",
    );
    let all = [one, two, open];
    all.into_iter().map(|one| (one.name.clone(), one)).collect()
}

fn config() -> Value {
    json!({
        "tiers": {"general": ["one/big", "two/both"], "gone": ["nobody/x", "one/none", "one/both"]},
        "aliases": {"low": "general", "favourite": "two/both"},
    })
}

fn try_resolve(
    asked: &ModelRequest<'_>,
    config: &Value,
    secrets: &[&str],
) -> Result<String, String> {
    let resolved = resolve(asked, &agent(config), &providers(), &|_, name| {
        secrets.contains(&name)
    });
    resolved
        .map(|(model, warning)| {
            let warned = if warning.is_some() { "!" } else { "" };
            format!("{}/{}{warned}", model.provider, model.id)
        })
        .map_err(|error| format!("{}: {error}", error.code()))
}

#[test]
fn name_resolves_to_model() {
    let all: &[&str] = &["ONE", "TWO"];
    for (model, hint, secrets, expected) in [
        (None, None, all, Ok("one/big")),
        (None, None, &["SECOND"], Ok("two/both")),
        (None, Some("two"), all, Ok("two/both")),
        (None, None, &[], Err("model_unusable: the model `general`")),
        (Some("low"), None, all, Ok("one/big")),
        (Some("favourite"), None, all, Ok("two/both")),
        (Some("big"), None, all, Ok("one/big")),
        (Some("b"), None, all, Ok("one/big")),
        (Some("one/both"), None, all, Ok("one/both")),
        (Some("both"), Some("two"), all, Ok("two/both")),
        (
            Some("both"),
            None,
            all,
            Err(
                "ambiguous_model: the model `both` is with one, two; name one of them, like `one/both`",
            ),
        ),
        (Some("big"), None, &["TWO"], Err("needs the secret ONE")),
        (Some("both"), Some("two"), &["ONE"], Err("TWO or SECOND")),
        // A prefix does not name a model.
        (Some("bi"), None, all, Err("unknown_model")),
        (Some("bigg"), None, all, Err("did you mean `big`?")),
        (Some("one/bigg"), None, all, Err("did you mean `big`?")),
        (
            Some("big"),
            Some("three"),
            all,
            Err("unknown_provider: there is no provider `three`; there are one, open, two"),
        ),
        (Some("anything"), Some("open"), &[], Ok("open/anything")),
        (Some("open/any/thing"), None, &[], Ok("open/any/thing")),
        (Some("anything"), None, all, Err("unknown_model")),
        (
            Some("dear"),
            None,
            all,
            Err("price_unknown: the price of `two/dear`"),
        ),
        (
            Some("gone"),
            None,
            &["TWO"],
            Err(
                "`nobody/x` is with no provider; `one/none` is with no provider; `one/both`: the provider `one` needs",
            ),
        ),
    ] {
        let asked = ModelRequest {
            model,
            provider: hint,
            ..ModelRequest::default()
        };
        let found = try_resolve(&asked, &config(), secrets);
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{model:?}"),
            (Err(error), Err(told)) => assert!(error.contains(told), "{model:?}: {error}"),
            _ => panic!("{model:?}: {found:?}, not {expected:?}"),
        }
    }
}

#[test]
fn the_default_provider_settles_a_tie_and_prices_can_be_given() {
    let mut config = config();
    config["provider"] = json!({"default": "two"});
    config["prices"] = json!({"two/dear": [{"input": "1", "output": "2"}]});
    for (model, expected) in [("both", "two/both"), ("dear", "two/dear")] {
        let asked = ModelRequest {
            model: Some(model),
            ..ModelRequest::default()
        };
        assert_eq!(
            try_resolve(&asked, &config, &["ONE", "TWO"]).unwrap(),
            expected
        );
    }
}

#[test]
fn call_takes_precedence_over_directive() {
    let wish = Wish {
        id: Some("b".to_owned()),
        tier: Some("gone".to_owned()),
        provider: Some("one".to_owned()),
        fallback: Some("two/both".to_owned()),
        ..Wish::default()
    };
    let asked = ModelRequest {
        wish: Some(&wish),
        ..ModelRequest::default()
    };
    assert_eq!(
        try_resolve(&asked, &config(), &["ONE", "TWO"]).unwrap(),
        "one/big"
    );
    assert_eq!(
        try_resolve(&asked, &config(), &["TWO"]).unwrap(),
        "two/both!"
    );
    let called = ModelRequest {
        model: Some("one/both"),
        ..asked
    };
    assert_eq!(
        try_resolve(&called, &config(), &["ONE"]).unwrap(),
        "one/both"
    );
    // A model named by the call has no fallback.
    assert!(try_resolve(&called, &config(), &["TWO"]).is_err());
}

fn fitted(model: &str, wish: &Wish) -> Result<ResolvedModel, Unresolved> {
    let asked = ModelRequest {
        model: Some(model),
        wish: Some(wish),
        tools: ToolUse {
            start: Some(CallStart::Message),
            max_parallel: Some(99),
        },
        ..ModelRequest::default()
    };
    resolve(&asked, &agent(&config()), &providers(), &|_, _| true).map(|(model, _)| model)
}

#[test]
fn provider_file_uses_secrets_of_its_owner_only() {
    for (owner, other, told) in [
        (Owner::User, Owner::Project, "environment of the daemon"),
        (Owner::Project, Owner::User, "`.env` of the project"),
    ] {
        let (one, _) = Provider::parse(&file("one", ""), &id("one"), owner).unwrap();
        let providers = BTreeMap::from([("one".to_owned(), one)]);
        let asked = ModelRequest {
            model: Some("m"),
            ..ModelRequest::default()
        };
        let agent = agent(&json!({}));
        let has_one_of = |those: Owner| {
            resolve(&asked, &agent, &providers, &|owner, name| {
                owner == those && name == "KEY"
            })
        };
        assert_eq!(has_one_of(owner).unwrap().0.endpoint.owner, owner);
        let refused = has_one_of(other).unwrap_err().to_string();
        assert!(
            refused.contains("the secret KEY") && refused.contains(told),
            "{refused}"
        );
    }
}

#[test]
fn model_gets_supported_settings() {
    let effort = |word: &str| Wish {
        effort: Some(word.to_owned()),
        temperature: Some(0.5),
        ..Wish::default()
    };
    let plain = fitted(
        "one/both",
        &Wish {
            temperature: Some(0.5),
            max_output: Some(99_999),
            ..Wish::default()
        },
    )
    .unwrap();
    assert_eq!((plain.temperature, plain.max_output), (Some(0.5), 8000));
    assert_eq!((plain.start, plain.max_parallel), (CallStart::Message, 25));
    assert_eq!(
        fitted(
            "two/both",
            &Wish {
                temperature: Some(0.5),
                ..Wish::default()
            }
        )
        .unwrap()
        .temperature,
        None
    );
    let high = fitted("one/big", &effort("high")).unwrap();
    assert_eq!(
        high.thinking,
        Some(Thinking::Effort(Some("high".to_owned())))
    );
    assert_eq!((high.temperature, high.max_output), (None, 16_384));
    assert_eq!(
        fitted("one/big", &Wish::default()).unwrap().thinking,
        Some(Thinking::Effort(None))
    );
    for (word, tokens) in [
        ("low", 4000),
        ("medium", 8000),
        ("high", 16_000),
        ("5000", 5000),
    ] {
        let model = fitted("two/thinks", &effort(word)).unwrap();
        assert_eq!(model.thinking, Some(Thinking::Budget(tokens)), "{word}");
        assert_eq!(model.least_output(), tokens + 1024);
        assert!(model.max_output >= model.least_output());
    }
    for (model, word) in [
        ("one/both", "low"),
        ("one/big", "max"),
        ("two/thinks", "99999"),
        ("two/thinks", "10"),
    ] {
        let error = fitted(model, &effort(word)).unwrap_err();
        assert_eq!(error.code(), "unknown_effort", "{model} {word}");
    }
    let stored = serde_json::to_string(&high).unwrap();
    assert_eq!(
        serde_json::from_str::<ResolvedModel>(&stored).unwrap(),
        high
    );
}

#[test]
fn an_agent_file_is_checked() {
    let (read, findings) =
        Agent::from_config(&json!({"tier_mapping": {"fast": "one/big"}})).unwrap();
    assert_eq!(read.tiers["fast"], ["one/big"]);
    assert_eq!(findings[0].code, "old_spelling");
    assert_eq!(
        (read.default_tier.as_str(), read.max_output),
        ("general", 16_384)
    );
    for (config, told) in [
        (json!([]), "a map"),
        (json!({"teirs": {}}), "did you mean `tiers`?"),
        (json!({"tiers": []}), "`tiers` must be a map"),
        (json!({"tiers": {"a": "b"}}), "list of texts"),
        (json!({"aliases": {"a": 1}}), "name of a tier or a model"),
        (json!({"prices": {"m": "free"}}), "provider/model"),
        (
            json!({"prices": {"p/m": [{"input": "x", "output": "1"}]}}),
            "not an amount",
        ),
        (json!({"provider": {"dflt": "a"}}), "has no key `dflt`"),
        (json!({"max_output_tokens": 0}), "from 1"),
    ] {
        let findings = Agent::from_config(&config).unwrap_err();
        assert!(
            findings.iter().any(|found| found.message.contains(told)),
            "{config}: {findings:?}"
        );
    }
}

#[test]
fn tier_replaces_unknown_model_or_provider() {
    let wish = |id: Option<&str>, provider: Option<&str>, fallback: Option<&str>| Wish {
        id: id.map(str::to_owned),
        provider: provider.map(str::to_owned),
        fallback: fallback.map(str::to_owned),
        tier: Some("low".to_owned()),
        ..Wish::default()
    };
    let secrets = &["ONE", "TWO"];
    for (wish, expected) in [
        (wish(Some("absent"), None, None), Ok("one/big!")),
        (wish(Some("absent"), Some("two"), None), Ok("two/both!")),
        (wish(None, Some("nobody"), None), Ok("one/big!")),
        (wish(Some("thinks"), Some("nobody"), None), Ok("one/big!")),
        // A fallback is meant more than a tier.
        (
            wish(Some("absent"), None, Some("thinks")),
            Ok("two/thinks!"),
        ),
        // The model exists; what it lacks must be supplied.
        (wish(Some("dear"), None, None), Err("price_unknown")),
        (wish(Some("both"), None, None), Err("ambiguous_model")),
    ] {
        let asked = ModelRequest {
            wish: Some(&wish),
            ..ModelRequest::default()
        };
        match (try_resolve(&asked, &config(), secrets), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{wish:?}"),
            (Err(told), Err(part)) => assert!(told.contains(part), "{told}"),
            (found, expected) => panic!("{found:?} {expected:?} {wish:?}"),
        }
    }
    // A model that the call itself names is not replaced.
    let own = wish(None, None, None);
    for (model, provider) in [(Some("absent"), None), (None, Some("nobody"))] {
        let asked = ModelRequest {
            wish: Some(&own),
            model,
            provider,
            ..ModelRequest::default()
        };
        assert!(try_resolve(&asked, &config(), secrets).is_err());
    }
}
