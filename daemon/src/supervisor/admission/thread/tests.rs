use std::collections::BTreeMap;
use std::path::PathBuf;

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded as _, with_sources};
use rye_core::id::{ItemId, ItemKind, RunId};
use rye_core::model::{ChildTerms, Fate, Funding, ParentEnd, RunKind};
use rye_core::money::Usd;
use rye_core::policy::OnExceed;

use super::*;
use crate::node::tests::rig::{Daemon, Rig, request};
use crate::supervisor::Lineage as Parent;

/// The secret of the shipped provider.
const KEY: (&str, &str) = ("ANTHROPIC_API_KEY", "sk-a-secret-of-the-daemon");

/// A project with directives `t/…`, and a daemon that can admit them.
struct World {
    rig: Rig,
    daemon: Daemon,
    project: PathBuf,
}

impl World {
    async fn new() -> Self {
        Self::with(&[KEY]).await
    }

    async fn with(variables: &[(&str, &str)]) -> Self {
        let rig = Rig::with_variables(variables);
        let daemon = rig.start().await;
        let project = rig.project("p", &[]);
        Self {
            rig,
            daemon,
            project,
        }
    }

    fn directive(&self, name: &str, text: &str) -> PathBuf {
        let file = format!("t/{name}.md");
        self.rig
            .item(&self.project, ItemKind::Directive, &file, text)
    }

    fn start(&self, name: &str) -> Start {
        let id = ItemId::new(format!("t/{name}")).unwrap();
        let item = ItemRef {
            kind: ItemKind::Directive,
            id,
        };
        request(item, &self.project)
    }

    async fn admit(&self, start: Start) -> Result<Admitted, Error> {
        let run = RunId::new("t-run-1767225600-abcdefghij").unwrap();
        self.daemon.supervisor.admit(&run, start).await
    }

    async fn admitted(&self, name: &str) -> Admitted {
        self.admit(self.start(name))
            .await
            .unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Returns the kind and the message of the refusal of `start`.
    async fn refused(&self, start: Start) -> (ErrorKind, String) {
        match self.admit(start).await {
            Ok(admitted) => panic!("it was admitted: {:?}", admitted.spec),
            Err(error) => (error.kind(), with_sources(&error)),
        }
    }
}

/// A directive with these elements in its `metadata`, followed by `rest`.
fn file(name: &str, attributes: &str, metadata: &str, rest: &str) -> String {
    format!(
        "# T\n```xml\n<directive name=\"{name}\" version=\"1.0.0\"{attributes}>\n<metadata>\n\
         <description>d</description><author>me</author><category>t</category>\n{metadata}\n</metadata>\n\
         {rest}\n</directive>\n```\nCount {{input:path}}.\n"
    )
}

fn plain(name: &str) -> String {
    file(name, "", "", "")
}

fn knowledge(name: &str) -> String {
    format!("```yaml\nversion: \"1.0.0\"\ncategory: t\nname: {name}\n```\nWhat {name} knows.\n")
}

fn read(spec: &Spec) -> Contract {
    serde_json::from_str(&spec.thread().unwrap().contract).unwrap()
}

fn offered(contract: &Contract) -> Vec<&str> {
    let tools = contract.offered.iter();
    tools.map(|offered| offered.tool.name.as_str()).collect()
}

#[tokio::test]
async fn admission_fixes_contract_of_thread() {
    let world = World::new().await;
    let text = file(
        "count",
        "",
        "<model tier=\"general\" effort=\"low\"/><limits turns=\"6\" spend=\"0.25\"/>\
         <permissions><execute><tool>rye.bash</tool></execute>\
         <acknowledge risk=\"elevated\">it counts</acknowledge></permissions>",
        "<inputs><input name=\"path\" required=\"true\">P</input>\
         <input name=\"most\" type=\"integer\" default=\"3\"/></inputs>\
         <outputs><output name=\"words\" type=\"integer\" required=\"true\">W</output></outputs>",
    );
    world.directive("count", &text);
    let mut start = world.start("count");
    let given = [
        ("path".to_owned(), "a.txt".to_owned()),
        ("most".to_owned(), "5".to_owned()),
    ];
    start.text_inputs = BTreeMap::from(given);
    let admitted = world.admit(start).await.unwrap();
    assert_eq!(admitted.fault, None);
    assert_eq!(admitted.warnings, Vec::<String>::new());
    let spec = &admitted.spec;
    assert_eq!((spec.kind(), spec.depth), (RunKind::Thread, 0));
    assert_eq!(json!(spec.inputs), json!({"path": "a.txt", "most": 5}));
    assert_eq!(spec.limits.turns, Some(6));
    let Funding::Open { limit, .. } = &spec.budget.funding else {
        panic!("{:?}", spec.budget);
    };
    assert_eq!(*limit, Usd::parse("0.25").ok());
    let layers: Vec<_> = spec
        .layers
        .iter()
        .map(|layer| (&*layer.source, layer.patterns.join(" ")))
        .collect();
    let own = (
        "permissions of directive:t/count",
        "rye.execute.tool.rye.bash".to_owned(),
    );
    assert_eq!(layers, [("a test", "rye.*".to_owned()), own]);
    let source = spec.thread().unwrap();
    assert!(source.text.ends_with(&text) && source.text.starts_with("<!-- rye:signed:"));
    let contract = read(spec);
    let tools = [
        "directive_return",
        "read_artifact",
        "rye_bash",
        "rye_execute",
    ];
    assert_eq!(offered(&contract), tools);
    assert_eq!(
        (&*contract.model.provider, contract.max_retries),
        ("anthropic", 3)
    );
    assert_eq!(
        *source.contract,
        canonical(&json!(contract)),
        "it is read back as it was written"
    );
    assert!(!format!("{spec:?}").contains(KEY.1));
}

#[tokio::test]
async fn limits_prefer_caller_then_directive_then_defaults() {
    let world = World::new().await;
    world.directive("bare", &plain("bare"));
    let spec = world.admitted("bare").await.spec;
    let defaults = Limits {
        steps: None,
        depth: Some(10),
        spawns: Some(50),
        turns: Some(25),
        tokens: Some(200_000),
        duration_ms: Some(1_800_000),
        spend: None,
    };
    assert_eq!(spec.limits, defaults);
    let Funding::Open { limit, .. } = spec.budget.funding else {
        panic!("{:?}", spec.budget);
    };
    assert_eq!(limit, Usd::parse("1.00").ok(), "as for graphs");
    let limits =
        "<limits turns=\"2\" tokens=\"3\" spawns=\"4\" depth=\"5\" duration_seconds=\"6\"/>";
    world.directive("strict", &file("strict", "", limits, ""));
    let own = Limits {
        depth: Some(5),
        spawns: Some(4),
        turns: Some(2),
        tokens: Some(3),
        duration_ms: Some(6_000),
        ..defaults.clone()
    };
    assert_eq!(world.admitted("strict").await.spec.limits, own);
    let asked = Limits {
        turns: Some(9),
        duration_ms: Some(10),
        spend: Usd::parse("0.5").ok(),
        ..Limits::default()
    };
    let mut start = world.start("strict");
    start.limits = asked;
    let spec = world.admit(start).await.unwrap().spec;
    let expected = Limits {
        turns: Some(9),
        duration_ms: Some(10),
        spend: Usd::parse("0.5").ok(),
        ..own
    };
    assert_eq!(spec.limits, expected);
}

#[tokio::test]
async fn directive_without_permissions_may_do_nothing_but_inherits() {
    let world = World::new().await;
    world.directive("bare", &plain("bare"));
    let spec = world.admitted("bare").await.spec;
    assert_eq!(spec.layers.last().unwrap().patterns, Vec::<String>::new());
    assert_eq!(offered(&read(&spec)), Vec::<&str>::new());
    let permissions = "<permissions><execute><tool>*</tool></execute></permissions>";
    let context = "<context><before>t/rules</before></context>";
    world.directive(
        "base",
        &file("base", "", &format!("{permissions}{context}"), ""),
    );
    world.directive("leaf", &file("leaf", " extends=\"t/base\"", "", ""));
    let rules = knowledge("rules");
    world
        .rig
        .item(&world.project, ItemKind::Knowledge, "t/rules.md", &rules);
    let spec = world.admitted("leaf").await.spec;
    let contract = read(&spec);
    assert_eq!(offered(&contract), ["read_artifact", "rye_execute"]);
    assert_eq!(contract.directive.parents.len(), 1);
    assert_eq!(contract.directive.directive.context.before.len(), 1);
    // The run that starts it may restrict its permissions.
    let mut start = world.start("leaf");
    start.capabilities = Some(vec!["rye.fetch.*".to_owned()]);
    let contract = read(&world.admit(start).await.unwrap().spec);
    assert_eq!(offered(&contract), Vec::<&str>::new());
}

/// A shell tool with these additional keys.
fn shell_tool(category: &str, name: &str, more: &str) -> String {
    format!(
        "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: {category}\nname: {name}\n\
         description: Does {name}\nconfig: {{script: \"true\"}}\n{more}"
    )
}

#[tokio::test]
async fn named_tools_and_small_folders_are_offered_by_name() {
    let world = World::new().await;
    let tool = |file: &str, text: &str| {
        let put = &world.rig;
        put.item(&world.project, ItemKind::Tool, file, text)
    };
    let schema = "config_schema: {type: object, properties: {n: {type: integer}}}\n";
    tool("t/one.yaml", &shell_tool("t", "one", schema));
    tool("t/deep/two.yaml", &shell_tool("t/deep", "two", ""));
    tool(
        "t/internal/three.yaml",
        &shell_tool("t/internal", "three", ""),
    );
    let four = tool("t/four.yaml", &shell_tool("t", "four", ""));
    std::fs::write(&four, shell_tool("t", "four", "")).unwrap();
    for number in 0..101 {
        let name = format!("m{number}");
        tool(&format!("many/{name}.yaml"), &shell_tool("many", &name, ""));
    }
    let permissions = "<permissions><execute><tool>t/*</tool><tool>many/*</tool><tool>many/m7</tool>\
                       <tool>rye/core/*</tool><tool>gone</tool></execute></permissions>";
    world.directive("calls", &file("calls", "", permissions, ""));
    let admitted = world.admitted("calls").await;
    let contract = read(&admitted.spec);
    let tools = offered(&contract);
    for name in ["t_one", "t_deep_two", "many_m7", "rye_core_echo"] {
        assert!(tools.contains(&name), "{name}: {tools:?}");
    }
    for name in [
        "t_internal",
        "t_four",
        "many_m1",
        "rye_core_runtimes",
        "rye_core_primitives",
    ] {
        let is_there = tools.iter().any(|tool| tool.starts_with(name));
        assert!(!is_there, "{name}: {tools:?}");
    }
    let one = contract
        .offered
        .iter()
        .find(|tool| tool.tool.name == "t_one");
    let told = &one.unwrap().tool;
    assert_eq!(told.description, "Does one");
    assert_eq!(told.schema["properties"]["n"]["type"], "integer");
    let warnings = admitted.warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for words in [
        "`t/four` (its signature",
        "`many/*` (it holds more than 100",
        "`gone` (it is not there",
    ] {
        assert!(warnings[0].contains(words), "{warnings:?}");
    }
    // A caller that grants less is named. A tool it does not grant is not read.
    let mut start = world.start("calls");
    start.capabilities = Some(vec!["rye.execute.tool.t.one".to_owned()]);
    let admitted = world.admit(start).await.unwrap();
    let contract = read(&admitted.spec);
    assert_eq!(
        offered(&contract),
        ["read_artifact", "rye_execute", "t_one"]
    );
    let told = &admitted.warnings[0];
    assert!(
        told.contains("`rye.execute.tool.many.*` by the caller's capabilities"),
        "{told}"
    );
    assert!(!told.contains("`rye.execute.tool.t.*`"), "{told}");
}

#[tokio::test]
async fn unacknowledged_risks_warn_or_refuse_despite_project() {
    let world = World::new().await;
    let put = |name: &str, inside: &str| {
        let permissions = format!("<permissions>{inside}</permissions>");
        world.directive(name, &file(name, "", &permissions, ""));
    };
    let known = |risk: &str| format!("<acknowledge risk=\"{risk}\">meant</acknowledge>");
    put("all", "*");
    put("all-known", &format!("*{}", known("unrestricted")));
    put("all-told", &format!("*{}", known("elevated")));
    put("shell", "<execute><tool>rye/bash</tool></execute>");
    put("team", "<execute><tool>t/*</tool></execute>");
    world.directive("heir", &file("heir", " extends=\"t/all-known\"", "", ""));
    for name in ["all", "all-told"] {
        let (kind, text) = world.refused(world.start(name)).await;
        assert_eq!(kind, ErrorKind::Denied);
        assert!(
            text.contains("`rye.*`") && text.contains("<acknowledge"),
            "{text}"
        );
    }
    for (name, told) in [("all-known", 0), ("heir", 0), ("shell", 1), ("team", 0)] {
        let warnings = world.admitted(name).await.warnings;
        let risks = warnings.iter().filter(|text| text.contains("takes a risk"));
        assert_eq!(risks.count(), told, "{name}: {warnings:?}");
    }
    let mild = "version: \"1.0.0\"\ncategory: agent\nname: capability_risk\n\
                risks: [{id: everything, pattern: \"rye.*\", risk: safe}]\n";
    let config = "agent/capability_risk.yaml";
    world
        .rig
        .item(&world.project, ItemKind::Config, config, mild);
    let (kind, _) = world.refused(world.start("all")).await;
    assert_eq!(kind, ErrorKind::Denied, "a project does not judge itself");
    let of_user = world
        .rig
        .item(world.rig.home(), ItemKind::Config, config, mild);
    let warnings = world.admitted("all").await.warnings;
    assert_eq!(warnings.len(), 1, "it reaches the shell: {warnings:?}");
    std::fs::write(of_user, mild).unwrap();
    let (kind, text) = world.refused(world.start("team")).await;
    assert_eq!(
        kind,
        ErrorKind::Denied,
        "what is not signed lets nothing begin"
    );
    assert!(
        text.contains("ryectl sign config:agent/capability_risk"),
        "{text}"
    );
    let odd = mild.replace("risk: safe", "risk: mild");
    world
        .rig
        .item(world.rig.home(), ItemKind::Config, config, &odd);
    let (kind, text) = world.refused(world.start("team")).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("`risk` is one of"), "{text}");
}

#[tokio::test]
async fn project_configuration_only_lowers_limits() {
    let world = World::new().await;
    world.directive("bare", &plain("bare"));
    let put = |space: &Path, body: &str| {
        let text = format!("version: \"1.0.0\"\ncategory: agent\nname: resilience\n{body}\n");
        world
            .rig
            .item(space, ItemKind::Config, "agent/resilience.yaml", &text)
    };
    put(
        world.rig.home(),
        "limits: {defaults: {turns: 30, depth: none}}",
    );
    let limits = world.admitted("bare").await.spec.limits;
    assert_eq!((limits.turns, limits.depth), (Some(30), None));
    let body = "limits: {defaults: {turns: 9, tokens: 900000}, repeated_calls: 0, enforcement: {on_exceed: fail}}\n\
                checkpoint: {}";
    put(&world.project, body);
    let admitted = world.admitted("bare").await;
    let limits = admitted.spec.limits.clone();
    assert_eq!((limits.turns, limits.tokens), (Some(9), Some(200_000)));
    let contract = read(&admitted.spec);
    let rules = (contract.on_exceed, contract.repeated_calls);
    assert_eq!(rules, (OnExceed::Fail, 6));
    let told = admitted.warnings.join("\n");
    for words in [
        "limits.defaults.tokens: 900000` is ignored",
        "limits.repeated_calls: 0` is ignored",
        "`checkpoint` has no effect",
    ] {
        assert!(told.contains(words), "{told}");
    }
    put(&world.project, "limits: null");
    let admitted = world.admitted("bare").await;
    assert_eq!(admitted.spec.limits.turns, Some(30));
    assert!(admitted.warnings[0].contains("`limits: null` is ignored"));
}

#[tokio::test]
async fn missing_or_modified_dependencies_of_directive_are_refused() {
    let world = World::new().await;
    let spoil = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("1.0.0", "1.0.1")).unwrap();
    };
    spoil(world.directive("tampered", &plain("tampered")));
    world.directive(
        "of-tampered",
        &file("of-tampered", " extends=\"t/tampered\"", "", ""),
    );
    world.directive("of-none", &file("of-none", " extends=\"t/none\"", "", ""));
    world.directive("circle", &file("circle", " extends=\"t/circle\"", "", ""));
    for (name, id) in [("lost", "t/none"), ("false", "t/false")] {
        let context = format!("<context><system>{id}</system></context>");
        world.directive(name, &file(name, "", &context, ""));
    }
    let context = "<context><system>t/false</system><suppress>t/false</suppress></context>";
    world.directive("careful", &file("careful", "", context, ""));
    let text = knowledge("false");
    spoil(
        world
            .rig
            .item(&world.project, ItemKind::Knowledge, "t/false.md", &text),
    );
    world.directive("broken", &file("broken", "", "<permission/>", ""));
    let table = [
        ("nobody", ErrorKind::NotFound, "directive:t/nobody"),
        ("tampered", ErrorKind::Denied, "was changed after"),
        ("of-tampered", ErrorKind::Denied, "directive:t/tampered"),
        ("of-none", ErrorKind::NotFound, "directive:t/none"),
        ("circle", ErrorKind::Invalid, "extends itself"),
        ("lost", ErrorKind::NotFound, "knowledge:t/none"),
        ("false", ErrorKind::Denied, "knowledge:t/false"),
        ("broken", ErrorKind::Invalid, "t/broken.md:7:1: "),
    ];
    for (name, kind, words) in table {
        let (found, text) = world.refused(world.start(name)).await;
        assert_eq!(found, kind, "{name}: {text}");
        assert!(text.contains(words), "{name}: {text}");
    }
    world.admitted("careful").await;
}

#[tokio::test]
async fn unfit_inputs_create_no_thread() {
    let world = World::new().await;
    let inputs = "<inputs><input name=\"path\" required=\"true\"/><input name=\"most\" type=\"integer\"/></inputs>";
    world.directive("count", &file("count", "", "", inputs));
    let table = [
        (json!({}), "path"),
        (json!({"path": "a", "most": "many"}), "most"),
        (json!({"path": "a", "paht": "b"}), "did you mean `path`?"),
    ];
    for (inputs, words) in table {
        let mut start = world.start("count");
        start.inputs = serde_json::from_value(inputs).unwrap();
        let (kind, text) = world.refused(start).await;
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(text.contains(words), "{text}");
    }
}

#[tokio::test]
async fn admission_chooses_model() {
    let world = World::new().await;
    let wish = "<model id=\"claude-haiku-5-5\"/>";
    world.directive("wish", &file("wish", "", wish, ""));
    let spec = world.admitted("wish").await.spec;
    assert_eq!(read(&spec).model.id, "claude-haiku-5-5");
    let asked = async |model: &str, provider: &str| {
        let given = |word: &str| Some(word.to_owned()).filter(|word| !word.is_empty());
        let mut start = world.start("wish");
        (start.model, start.provider) = (given(model), given(provider));
        match world.admit(start).await {
            Ok(admitted) => Ok(read(&admitted.spec).model.id),
            Err(error) => Err((error.kind(), with_sources(&error))),
        }
    };
    assert_eq!(
        asked("anthropic/claude-opus-5-5", "").await.unwrap(),
        "claude-opus-5-5"
    );
    assert_eq!(asked("high", "").await.unwrap(), "claude-opus-5-5");
    let (kind, text) = asked("claude-haiku-5", "").await.unwrap_err();
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.contains("did you mean `claude-haiku-5-5`?"), "{text}");
    assert_eq!(
        asked("", "nobody").await.unwrap_err().0,
        ErrorKind::NotFound
    );
    let (kind, text) = asked("gpt-6-luna", "").await.unwrap_err();
    assert_eq!(kind, ErrorKind::Precondition);
    assert!(text.contains("OPENAI_API_KEY"), "{text}");
}

#[tokio::test]
async fn project_provider_gets_only_project_secrets() {
    let mine = ("MY_KEY", "a-secret-of-the-daemon");
    let world = World::with(&[mine]).await;
    let provider = "version: \"1.0.0\"\ncategory: agent/providers\nname: mine\napi: openai_chat\n\
                    base_url: https://models.example\npath: /v1/chat/completions\n\
                    auth: [{header: authorization, prefix: \"Bearer \", secret: MY_KEY}]\n\
                    models: [{id: one, window: 100000, max_output: 8000, prices: free}]\n";
    let file_name = "agent/providers/mine.yaml";
    let put = |space: &Path| world.rig.item(space, ItemKind::Config, file_name, provider);
    let wish = "<model id=\"one\"/>";
    world.directive("wish", &file("wish", "", wish, ""));
    let (kind, _) = world.refused(world.start("wish")).await;
    assert_eq!(kind, ErrorKind::NotFound);
    let of_user = put(world.rig.home());
    let spec = world.admitted("wish").await.spec;
    assert_eq!(read(&spec).model.provider, "mine");
    // The project's file replaces it, and does not get the variable of the daemon.
    let of_project = put(&world.project);
    let (kind, text) = world.refused(world.start("wish")).await;
    assert_eq!(kind, ErrorKind::Precondition, "{text}");
    std::fs::write(
        world.project.join(".env"),
        "MY_KEY=a-secret-of-the-project\n",
    )
    .unwrap();
    let spec = world.admitted("wish").await.spec;
    assert!(!format!("{spec:?}").contains("a-secret"), "names only");
    // A refused file is not skipped.
    let text = std::fs::read_to_string(&of_project).unwrap();
    std::fs::write(&of_project, text.replace("models.example", "evil.example")).unwrap();
    let (kind, text) = world.refused(world.start("wish")).await;
    assert_eq!(kind, ErrorKind::Denied, "{text}");
    std::fs::remove_file(of_project).unwrap();
    std::fs::remove_file(of_user).unwrap();
    let bad = provider.replace("window: 100000", "windo: 1");
    world
        .rig
        .item(world.rig.home(), ItemKind::Config, file_name, &bad);
    let (kind, text) = world.refused(world.start("wish")).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("mine.yaml:9:"), "{text}");
}

#[tokio::test]
async fn unsupported_and_foreign_thread_settings_are_refused() {
    let world = World::new().await;
    world.directive("bare", &plain("bare"));
    let step = Start {
        start_at: StartAt::Node {
            node: "n".to_owned(),
            inject_state: Object::new(),
            from: None,
            verdicts: Vec::new(),
        },
        ..world.start("bare")
    };
    let mut steps = world.start("bare");
    steps.limits.steps = Some(1);
    let echo = ItemRef::tool(ItemId::new("rye/core/echo").unwrap());
    let mut turns = Start {
        item: echo.clone(),
        ..world.start("bare")
    };
    turns.limits.turns = Some(1);
    let model = Start {
        item: echo,
        model: Some("fast".to_owned()),
        ..world.start("bare")
    };
    let table = [
        (step, "only a graph can be stepped"),
        (steps, "--limit turns=N"),
        (turns, "`limits.turns` is for threads"),
        (model, "`model` is for threads"),
    ];
    for (start, words) in table {
        let (kind, text) = world.refused(start).await;
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(text.contains(words), "{text}");
    }
}

#[tokio::test]
async fn child_thread_is_bounded_by_parent_limits_and_account() {
    let world = World::new().await;
    let limits = "<limits turns=\"9\" tokens=\"900\" spend=\"0.25\"/>\
                  <permissions><execute><tool>t/*</tool></execute></permissions>";
    world.directive("below", &file("below", "", limits, ""));
    world.directive("bare", &plain("bare"));
    let parent = Arc::new(world.admitted("bare").await.spec);
    let left = Limits {
        turns: Some(4),
        tokens: Some(5_000),
        duration_ms: Some(7),
        spawns: Some(0),
        depth: Some(3),
        ..Limits::default()
    };
    let start = Start {
        lineage: Some(Parent {
            callback: None,
            parent: RunId::new("t-up-1767225600-abcdefghij").unwrap(),
            spec: Arc::clone(&parent),
            limits: left,
            key: "k".to_owned(),
            attempt: None,
            parent_end: ParentEnd::Wait,
        }),
        ..world.start("below")
    };
    let spec = world.admit(start.clone()).await.unwrap().spec;
    let expected = Limits {
        turns: Some(4),
        tokens: Some(900),
        duration_ms: Some(7),
        spawns: Some(0),
        depth: Some(3),
        ..Limits::default()
    };
    assert_eq!(spec.limits, expected);
    let above = &parent.budget.account;
    let Funding::Open { parent: of, limit } = &spec.budget.funding else {
        panic!("{:?}", spec.budget);
    };
    assert_eq!(
        (of.as_ref(), *limit),
        (Some(above), Usd::parse("0.25").ok())
    );
    let sources: Vec<&str> = spec.layers.iter().map(|layer| &*layer.source).collect();
    let own = [
        "a test",
        "permissions of directive:t/bare",
        "permissions of directive:t/below",
    ];
    assert_eq!(sources, own, "its own layers lie below those of its parent");
    // Without a requested limit it draws on the account above. The default applies only to top-level runs.
    let pooled = Start {
        item: world.start("bare").item,
        ..start
    };
    let spec = world.admit(pooled).await.unwrap().spec;
    assert!(matches!(
        spec.budget.funding,
        Funding::Open { limit: None, .. }
    ));
}

#[tokio::test]
async fn threads_of_one_directive_share_contract() {
    let world = World::new().await;
    for name in ["one", "other"] {
        world.directive(name, &plain(name));
    }
    let contracts = &world.daemon.supervisor.shared.services.contracts;
    let mut read = Vec::new();
    for name in ["one", "one", "other"] {
        let spec = world.admitted(name).await.spec;
        let text = &spec.thread().unwrap().contract;
        read.push(contracts.read(text).unwrap());
    }
    assert!(Arc::ptr_eq(&read[0], &read[1]));
    assert!(!Arc::ptr_eq(&read[0], &read[2]));
    contracts.read("{}").unwrap_err();
}

#[tokio::test]
async fn continued_thread_has_present_limits() {
    let world = World::new().await;
    let limits = "<limits turns=\"9\" tokens=\"900\" spend=\"0.25\" spawns=\"2\" depth=\"3\" duration_seconds=\"60\"/>";
    world.directive("limited", &file("limited", "", limits, ""));
    let spec = Arc::new(world.admitted("limited").await.spec);
    let id = RunId::new("t-run-1767225600-abcdefghij").unwrap();
    let run = Run::create(id, Timestamp::default(), Arc::clone(&spec));
    let expected = Limits {
        steps: None,
        spend: None,
        ..spec.limits.clone()
    };
    assert_eq!((expected.spawns, expected.depth), (Some(2), Some(3)));
    assert_eq!(limits_in_force(&run), expected);
}

#[tokio::test]
async fn admission_fixes_terms_of_child_runs() {
    let world = World::new().await;
    world.directive("bare", &plain("bare"));
    let usual = ChildTerms {
        most: Some(10),
        ..ChildTerms::default()
    };
    assert_eq!(world.admitted("bare").await.spec.children, usual);
    let own = "version: \"1.0.0\"\ncategory: agent\nname: resilience\nconcurrency: {max_concurrent_children: 2}\n\
               child_policy: {on_parent_cancel: allow}\n";
    let put = |text: &str| {
        let name = "agent/resilience.yaml";
        world.rig.item(&world.project, ItemKind::Config, name, text)
    };
    put(own);
    let children = world.admitted("bare").await.spec.children;
    let follow = ParentEnd::Follow {
        on_complete: Fate::Leave,
        on_error: Fate::Cancel,
        on_cancel: Fate::Leave,
    };
    assert_eq!((children.most, children.follow), (Some(2), follow));
    put(&own.replace("allow", "perhaps"));
    let (kind, text) = world.refused(world.start("bare")).await;
    assert_eq!(kind, ErrorKind::Invalid, "{text}");
    assert!(text.contains("`child_policy.on_parent_cancel`"), "{text}");
}
