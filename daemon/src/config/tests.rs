use std::fs;

use clap::Parser as _;
use rye_core::error::with_sources;
use rye_core::model::Resources;
use rye_core::money::Usd;
use serde_json::json;

use super::layer::{SETTINGS, Setting};
use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    let pairs = variables
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    Environment::of(pairs)
}

fn args(line: &[&str]) -> Args {
    Args::parse_from([&["ryed"], line].concat())
}

fn load_with(line: &[&str], variables: &[(&str, &str)]) -> Result<Loaded, Error> {
    let mut all = vec![("HOME", "/home/u")];
    all.extend(variables);
    load(&args(line), &environment(&all))
}

fn error(line: &[&str], variables: &[(&str, &str)]) -> String {
    with_sources(&load_with(line, variables).unwrap_err())
}

/// A settings file with `text`, and its path as a flag value.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ryed.yaml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[test]
fn defaults_apply_without_settings() {
    let config = load_with(&[], &[]).unwrap().config;
    assert_eq!(config.state_dir, Path::new("/home/u/.local/state/rye"));
    assert_eq!(
        config.socket,
        Path::new("/home/u/.local/state/rye/ryed.sock")
    );
    assert_eq!(config.user_space, Path::new("/home/u"));
    assert_eq!(config.limits.max_steps.get(), 100);
    assert_eq!(config.limits.tool_timeout, Duration::from_mins(5));
    assert_eq!(config.limits.bash_timeout, Duration::from_mins(2));
    assert_eq!(config.limits.output_bytes.get(), 8_388_608);
    assert_eq!(config.limits.message_bytes.get(), 16_777_216);
    assert_eq!(config.limits.tree_runs.get(), 1000);
    assert_eq!(config.segment_bytes, 8_388_608);
    assert_eq!(config.log.level, "info");
}

#[test]
fn flag_overrides_variable_overrides_file_overrides_default() {
    let (_directory, path) = file("log:\n  level: warn\nlimits:\n  max_steps: 7\n");
    let level = |line: &[&str], variables: &[(&str, &str)]| {
        let loaded = load_with(&[&["--config", &path], line].concat(), variables).unwrap();
        assert_eq!(loaded.config.limits.max_steps.get(), 7);
        loaded.config.log.level
    };
    let variable = [("RYE_LOG_LEVEL", "debug")];
    assert_eq!(level(&["--log-level", "trace"], &variable), "trace");
    assert_eq!(level(&[], &variable), "debug");
    assert_eq!(level(&[], &[]), "warn");
    assert_eq!(
        level(&[], &[("RYE_LOG_LEVEL", "")]),
        "warn",
        "empty is unset"
    );
    let named = load_with(&[], &[("RYE_CONFIG", &path)]).unwrap();
    assert_eq!(named.config.log.level, "warn");
}

#[test]
fn every_setting_can_be_set_by_its_variable() {
    let values = [
        ("RYE_STATE_DIR", "/s"),
        ("RYE_SOCKET", "/k"),
        ("USER_SPACE", "~/space"),
        ("RYE_DURABILITY", "relaxed"),
        ("RYE_RECOVERY", "suspend"),
        ("RYE_RESTARTS", "3"),
        ("RYE_SHUTDOWN_GRACE_SECONDS", "0"),
        ("RYE_INTERPRETERS", "RYE_PYTHON=/p, RYE_NODE=/n"),
        ("RYE_CONTAINMENT_CGROUP", "off"),
        ("RYE_CONTAINMENT_SIGNALS", "off"),
        ("RYE_ISOLATION_LEAST", "sandbox"),
        ("RYE_RESOURCES_DEFAULT", "memory=2GiB, pids=500, cpu=1.5"),
        ("RYE_RESOURCES_REQUIRED", "true"),
        ("RYE_JOURNAL_SEGMENT_BYTES", "65536"),
        ("RYE_LOG_FORMAT", "json"),
        ("RYE_LOG_LEVEL", "ryed=debug,warn"),
        ("RYE_ENV_PASS", "EDITOR, TERM"),
        ("RYE_ENV_PATH", "/opt/bin"),
        ("RYE_ENV_SECRETS", "*_PIN"),
        ("RYE_LIMITS_MAX_STEPS", "1"),
        ("RYE_LIMITS_TOOL_TIMEOUT_SECONDS", "2"),
        ("RYE_LIMITS_BASH_TIMEOUT_SECONDS", "3"),
        ("RYE_LIMITS_OUTPUT_BYTES", "4"),
        ("RYE_LIMITS_MESSAGE_BYTES", "5"),
        ("RYE_LIMITS_MEMORY_MB", "6"),
        ("RYE_LIMITS_TREE_RUNS", "7"),
        ("RYE_BUDGET_DAY", "0.50"),
        ("RYE_BUDGET_MONTH", "none"),
        ("RYE_RETENTION_OLDER_THAN_DAYS", "never"),
        ("RYE_RETENTION_KEEP", "8"),
        ("RYE_RETENTION_KEYS_DAYS", "9"),
        ("RYE_HTTP_NETWORKS", "public"),
        ("RYE_PORTS_RANGE", "5000-5009"),
    ];
    assert_eq!(
        values.map(|(name, _)| name),
        SETTINGS.each_ref().map(|s| s.variable)
    );
    let loaded = load_with(&[], &values).unwrap();
    for setting in &SETTINGS {
        assert!(
            loaded
                .origins
                .contains(&(setting.key, SettingOrigin::Variable(setting.variable))),
            "{}",
            setting.key
        );
    }
    let config = loaded.config;
    assert_eq!(config.user_space, Path::new("/home/u/space"));
    assert_eq!(config.env.pass, ["EDITOR", "TERM"]);
    assert_eq!(config.env.path.as_deref(), Some("/opt/bin"));
    assert_eq!(config.env.secrets, ["*_PIN"]);
    assert_eq!(config.shutdown_grace, Duration::ZERO);
    let programs = [("RYE_NODE", "/n"), ("RYE_PYTHON", "/p")];
    let programs = programs.map(|(name, path)| (name.to_owned(), path.into()));
    assert_eq!(config.interpreters, programs.into());
    assert_eq!(config.segment_bytes, 65_536);
    let days = |days: u64| Duration::from_hours(24 * days);
    let retention = Retention {
        older_than: None,
        keep: 8,
        keys: days(9),
    };
    assert_eq!(config.retention, retention);
    let old = load_with(&[], &[("RYE_RETENTION_OLDER_THAN_DAYS", "30")]).unwrap();
    assert_eq!(old.config.retention.older_than, Some(days(30)));
    let refused = load_with(&[], &[("RYE_RETENTION_OLDER_THAN_DAYS", "0")]);
    assert!(with_sources(&refused.unwrap_err()).contains("or `never`"));
    assert_eq!(config.limits.message_bytes.get(), 5);
    assert_eq!(config.limits.memory_mb.map(NonZeroUsize::get), Some(6));
    assert_eq!(config.limits.tree_runs.get(), 7);
    let host = load_with(&[], &[("RYE_LIMITS_MEMORY_MB", "auto")]).unwrap();
    assert_eq!(host.config.limits.memory_mb, None);
    assert_eq!(config.budget.day, Usd::parse("0.5").ok());
    assert_eq!(config.budget.month, None);
    assert_eq!(config.networks, Networks::Public);
    assert_eq!(config.port_range, PortRange(5000..=5009));
}

#[test]
fn range_of_ports_is_checked() {
    let refused = load_with(&[], &[("RYE_PORTS_RANGE", "9-5")]).unwrap_err();
    assert!(with_sources(&refused).contains("\"9-5\" is no range of ports"));
}

#[test]
fn limits_of_tools_are_read_and_checked() {
    let values = [
        ("RYE_RESOURCES_DEFAULT", "memory=2GiB, pids=500, cpu=1.5"),
        ("RYE_RESOURCES_REQUIRED", "true"),
    ];
    let config = load_with(&[], &values).unwrap().config;
    let limits = json!({"memory": "2GiB", "pids": 500, "cpu": 1.5});
    assert_eq!(
        config.resources.default,
        Resources::from_json(&limits).unwrap()
    );
    assert!(config.resources.are_required);
    let refused = load_with(&[], &[("RYE_RESOURCES_DEFAULT", "pids=0")]).unwrap_err();
    assert!(with_sources(&refused).contains("`resources.pids` is a whole number"));
    let refused = load_with(&[], &[("RYE_RESOURCES_REQUIRED", "yes")]).unwrap_err();
    assert!(with_sources(&refused).contains("RYE_RESOURCES_REQUIRED"));
}

#[test]
fn runtime_program_must_be_absolute() {
    for wrong in ["RYE_PYTHON=bin/python", "RYE_PYTHON"] {
        let refused = load_with(&[], &[("RYE_INTERPRETERS", wrong)]).unwrap_err();
        let told = with_sources(&refused);
        assert!(
            told.contains("RYE_INTERPRETERS") || told.contains("interpreters.RYE_PYTHON"),
            "{told}"
        );
    }
}

#[test]
fn budget_of_all_runs_is_amount_or_none() {
    let budget = |text: &str| {
        let (_directory, path) = file(text);
        let loaded = load_with(&["--config", &path], &[]);
        loaded.map(|loaded| loaded.config.budget)
    };
    assert_eq!(budget("").unwrap(), Caps::default());
    let read = budget("budget: {day: 2.5, month: \"100.000000001\"}\n").unwrap();
    assert_eq!(
        (read.day, read.month),
        (Usd::parse("2.5").ok(), Usd::parse("100.000000001").ok())
    );
    for (text, told) in [
        (
            "budget:\n  day: -1\n",
            "`-1` is less than zero; `none` is no limit",
        ),
        (
            "budget:\n  month: much\n",
            "`much` is not an amount in US dollars",
        ),
        ("budget:\n  day: [1]\n", "`[1]` is not an amount"),
        ("budget:\n  week: 1\n", "week"),
    ] {
        let error = with_sources(&budget(text).unwrap_err());
        assert!(error.contains(told) && error.contains("line 2"), "{error}");
    }
    let variable = error(&[], &[("RYE_BUDGET_DAY", "1e30")]);
    assert!(variable.contains("RYE_BUDGET_DAY"), "{variable}");
}

#[test]
fn printed_configuration_parses_to_itself() {
    let (_old, old) =
        file("env:\n  pass: [A, B]\nlimits:\n  max_steps: 3\nuser_space: \"a: #b\"\n");
    let first = load_with(
        &["--config", &old, "--state-dir", "/tmp/s"],
        &[("RYE_LOG_LEVEL", "ryed=debug"), ("A", "1")],
    )
    .unwrap();
    let printed = first.to_yaml();
    let (_new, new) = file(&printed);
    let second = load_with(&["--config", &new], &[("A", "1")]).unwrap();
    let again = Config {
        environment: first.config.environment.clone(),
        ..second.config
    };
    assert_eq!(first.config, again, "{printed}");
    for line in [
        "state_dir: \"/tmp/s\"  # flag".to_owned(),
        "socket: \"/tmp/s/ryed.sock\"  # flag".to_owned(),
        "  level: \"ryed=debug\"  # environment variable RYE_LOG_LEVEL".to_owned(),
        format!("  max_steps: 3  # file {old}"),
        "recovery: \"resume\"  # default".to_owned(),
    ] {
        assert!(
            printed.lines().any(|found| found == line),
            "{line} in {printed}"
        );
    }
}

#[test]
fn socket_follows_chosen_state_directory() {
    let (_directory, path) = file("socket: /file.sock\n");
    let runtime = [("XDG_RUNTIME_DIR", "/run/user/7")];
    let socket = |line: &[&str], variables: &[(&str, &str)]| {
        load_with(line, variables).unwrap().config.socket
    };
    for (line, variables, expected) in [
        (&[][..], &runtime[..], "/run/user/7/rye/ryed.sock"),
        (&["--state-dir", "/s"], &runtime, "/s/ryed.sock"),
        (&["--state-dir", "/s", "--socket", "/k"], &runtime, "/k"),
        (&["--config", &path], &runtime, "/file.sock"),
        (
            &["--config", &path, "--state-dir", "/s"],
            &runtime,
            "/s/ryed.sock",
        ),
        (
            &[],
            &[("XDG_RUNTIME_DIR", "relative")],
            "/home/u/.local/state/rye/ryed.sock",
        ),
        (&[], &[("RYE_STATE_DIR", "/s"), ("RYE_SOCKET", "/k")], "/k"),
    ] {
        assert_eq!(
            socket(line, variables),
            Path::new(expected),
            "{line:?} {variables:?}"
        );
    }
    let fits = format!("/{}", "x".repeat(106));
    assert_eq!(socket(&["--socket", &fits], &[]), Path::new(&fits));
    let long = format!("{fits}x");
    assert_eq!(
        error(&["--socket", &long], &[]),
        format!(
            "the socket path `{long}` has 108 bytes, and the system allows 107; choose a shorter one with --socket or \
             RYE_SOCKET (flag)"
        )
    );
}

#[test]
fn paths_in_the_file_are_relative_to_it() {
    let (directory, path) = file("state_dir: here\nuser_space: ~/space\n");
    let config = load_with(&["--config", &path], &[]).unwrap().config;
    assert_eq!(config.state_dir, directory.path().join("here"));
    assert_eq!(config.user_space, Path::new("/home/u/space"));
}

#[test]
fn children_get_four_variables_and_passed_ones() {
    let config = load_with(
        &[],
        &[
            ("PATH", "/bin"),
            ("SECRET", "s"),
            ("EDITOR", "ed"),
            ("RYE_ENV_PASS", "EDITOR,HOME,ABSENT"),
        ],
    )
    .unwrap()
    .config;
    let expected = [("PATH", "/bin"), ("HOME", "/home/u"), ("EDITOR", "ed")];
    assert_eq!(
        config.env.base,
        expected.map(|(name, value)| (name.into(), value.into()))
    );
    assert_eq!(format!("{:?}", config.env), r#"["PATH", "HOME", "EDITOR"]"#);
}

#[test]
fn children_get_locale_and_path_of_setting() {
    let own = |path: &str| {
        let variables = [
            ("PATH", "/bin"),
            ("LC_ALL", "C.UTF-8"),
            ("LC_TIME", ""),
            ("RYE_ENV_PATH", path),
        ];
        let loaded = load_with(&[], &variables);
        loaded.map(|loaded| loaded.config.env.base)
    };
    for (setting, path) in [
        ("", "/bin"),
        ("auto", "/bin"),
        ("/opt/bin:/usr/bin", "/opt/bin:/usr/bin"),
    ] {
        let expected = [("PATH", path), ("HOME", "/home/u"), ("LC_ALL", "C.UTF-8")];
        assert_eq!(
            own(setting).unwrap(),
            expected.map(|(name, value)| (name.into(), value.into()))
        );
    }
    let error = own("bin:/usr/bin").unwrap_err().to_string();
    assert!(
        error.contains("`bin:/usr/bin`") && error.contains("RYE_ENV_PATH"),
        "{error}"
    );
}

#[test]
fn invalid_setting_is_reported_with_origin() {
    for (text, expected) in [
        (
            "log:\n  level: info\n  colour: red\n",
            ": log: unknown field `colour`, expected `format` or `level` at line 3 column 3",
        ),
        (
            "state_dirs: /x\n",
            ": unknown field `state_dirs`, expected one of `state_dir`, `socket`",
        ),
        (
            "limits:\n  max_steps: 0\n",
            ": limits.max_steps: invalid value: integer `0`, expected a nonzero u32 at line 2 column 14",
        ),
        (
            "durability: never\n",
            ": durability: unknown variant `never`, expected `strict` or `relaxed` at line 1 column 13",
        ),
        ("log: [\n", " at line "),
        ("socket: /a\nsocket: /b\n", "duplicate"),
    ] {
        let (_directory, path) = file(text);
        let message = error(&["--config", &path], &[]);
        assert!(
            message.starts_with(&format!("the settings file `{path}` is invalid"))
                && message.contains(expected),
            "{message}"
        );
    }
    for (variables, expected) in [
        (
            ("RYE_LIMITS_MAX_STEPS", "many"),
            "the environment variable RYE_LIMITS_MAX_STEPS is invalid: ",
        ),
        (
            ("RYE_LOG_FORMAT", "loud"),
            "the environment variable RYE_LOG_FORMAT is invalid: ",
        ),
        (
            ("RYE_HTTP_NETWORKS", "none"),
            "the environment variable RYE_HTTP_NETWORKS is invalid: unknown variant `none`, expected one of \
             `public`, `private`, `any`",
        ),
        (
            ("RYE_LOG_LEVEL", "a=b=c"),
            "`a=b=c` is not a log level or filter (environment variable RYE_LOG_LEVEL): ",
        ),
        (
            ("RYE_ENV_PASS", "RYE_TOKEN"),
            "`RYE_TOKEN` cannot be passed to children: ",
        ),
        (
            ("RYE_JOURNAL_SEGMENT_BYTES", "65535"),
            "`journal.segment_bytes` is 65535, and has to be 65536 to 1073741824 (environment variable \
             RYE_JOURNAL_SEGMENT_BYTES)",
        ),
        (
            ("RYE_JOURNAL_SEGMENT_BYTES", "1073741825"),
            "`journal.segment_bytes` is 1073741825, and has to be 65536 to 1073741824 ",
        ),
    ] {
        let message = error(&[], &[variables]);
        assert!(message.starts_with(expected), "{message}");
    }
    assert!(
        error(&["--config", "/nowhere"], &[])
            .starts_with("failed to read the settings file `/nowhere`: ")
    );
    let homeless = load(&args(&[]), &environment(&[])).unwrap_err();
    assert_eq!(
        with_sources(&homeless),
        "no home directory is known; set HOME, or `state_dir`"
    );
}

#[test]
fn empty_file_sets_nothing() {
    for text in ["", "# nothing\n"] {
        let (_directory, path) = file(text);
        let loaded = load_with(&["--config", &path], &[]).unwrap();
        assert!(
            loaded
                .origins
                .iter()
                .all(|(_, origin)| *origin == SettingOrigin::Default)
        );
    }
}

#[test]
fn command_line_definition_is_valid() {
    use clap::CommandFactory as _;
    Args::command().debug_assert();
}

#[test]
fn empty_variable_is_passed_on() {
    let variables = [
        ("RYE_ENV_PASS", "EMPTY,SET,UNSET,HOME"),
        ("EMPTY", ""),
        ("SET", "1"),
        ("TZ", ""),
    ];
    let base = load_with(&[], &variables).unwrap().config.env.base;
    let base: Vec<_> = base
        .iter()
        .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
        .collect();
    assert_eq!(base, [("HOME", "/home/u"), ("EMPTY", ""), ("SET", "1")]);
}

#[test]
fn pages_list_every_setting_with_variable_and_default() {
    let settings = rye_pages::Table::read("docs/configuration.md", "settings");
    settings.assert_lists(SETTINGS.iter().map(|setting| setting.key));
    for Setting { key, variable, .. } in &SETTINGS {
        let variables = settings.cell(key, "variable");
        assert!(
            rye_pages::in_backticks(variables)
                .iter()
                .any(|said| said == variable),
            "{key}: {variables}"
        );
    }
    let config = load_with(&[], &[]).unwrap().config;
    let limits = config.limits;
    let (tool, bash) = (limits.tool_timeout.as_secs(), limits.bash_timeout.as_secs());
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    let (output, message) = (
        mib(limits.output_bytes.get()),
        mib(limits.message_bytes.get()),
    );
    for (key, value) in [
        ("restarts", config.restarts.to_string()),
        (
            "shutdown_grace_seconds",
            config.shutdown_grace.as_secs().to_string(),
        ),
        ("limits.max_steps", limits.max_steps.to_string()),
        ("limits.tool_timeout_seconds", tool.to_string()),
        ("limits.bash_timeout_seconds", bash.to_string()),
        ("limits.output_bytes", output.clone()),
        ("limits.message_bytes", message.clone()),
        ("limits.tree_runs", limits.tree_runs.to_string()),
        ("http.networks", format!("`{}`", config.networks)),
        ("ports.range", format!("`{}`", config.port_range)),
    ] {
        settings.assert_cell(key, "default", value);
    }
    let table = rye_pages::Table::read("docs/reference.md", "limits");
    table.assert_cell("a tool", "is", format!("{tool} s"));
    table.assert_cell("a shell command", "is", format!("{bash} s"));
    table.assert_cell("output of a process", "is", output);
    table.assert_cell("a message of the control API", "is", message);
    table.assert_cell("runs of a tree", "is", limits.tree_runs);
}
