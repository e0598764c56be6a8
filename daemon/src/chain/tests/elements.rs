//! Requirements between neighbours of a chain, and the spaces of elements.

use super::*;

/// A YAML tool with the executor `executor`.
fn element(name: &str, executor: &str, more: &str) -> String {
    format!("version: \"1.0.0\"\ncategory: t\nname: {name}\nexecutor_id: {executor}\n{more}\n")
}

fn write(world: &World, name: &str, executor: &str, more: &str) {
    let text = element(name, executor, more);
    world.sign(&format!("t/{name}.yaml"), &text, &world.own);
}

/// Returns the error for a tool of this version whose executor sets `constraints`, or `None` if it is accepted.
fn error_of(constraints: &str, version: &str) -> Option<String> {
    let world = World::new();
    write(
        &world,
        "runtime",
        EXECUTE,
        &format!("child_constraints: {constraints}"),
    );
    let tool = element("tool", "t/runtime", "").replace("1.0.0", version);
    world.sign("t/tool.yaml", &tool, &world.own);
    world.resolve("t/tool").err().map(|error| error.to_string())
}

#[test]
fn child_constraints_bound_versions_inclusively() {
    let both = "{min_version: \"1.0.0\", max_version: \"2.0.0\"}";
    for (constraints, version, told) in [
        (both, "1.0.0", None),
        (both, "1.7.3", None),
        (both, "2.0.0", None),
        (both, "0.9.9", Some("1.0.0 to 2.0.0")),
        (both, "2.0.1", Some("1.0.0 to 2.0.0")),
        // A pre-release precedes its release.
        (both, "1.0.0-rc.1", Some("1.0.0 to 2.0.0")),
        ("{max_version: \"2.0.0\"}", "0.0.1", None),
        (
            "{max_version: \"2.0.0\"}",
            "2.0.1",
            Some("2.0.0 or earlier"),
        ),
        ("{min_version: \"2.0.0\"}", "1.9.9", Some("2.0.0 or later")),
        (both, "1.0", Some("no version such as")),
        (both, "new", Some("no version such as")),
        (
            "{max_version: \"2\"}",
            "1.0.0",
            Some("`child_constraints.max_version`, line 6"),
        ),
        (
            "{min_version: 2}",
            "1.0.0",
            Some("`child_constraints.min_version`, line 6"),
        ),
        ("{}", "1.0.0", None),
    ] {
        let said = error_of(constraints, version);
        match (told, said) {
            (None, None) => {}
            (Some(told), Some(said)) => assert!(said.contains(told), "{said}"),
            (_, said) => panic!("{version} on {constraints}: {said:?}"),
        }
    }
}

#[test]
fn executor_inputs_must_be_among_declared_outputs() {
    let world = World::new();
    write(&world, "runtime", EXECUTE, "inputs: [page, text]");
    write(&world, "plain", EXECUTE, "");
    for (outputs, executor, missing) in [
        ("outputs: [page, text]", "t/runtime", None),
        ("outputs: [more, text, page]", "t/runtime", None),
        ("", "t/runtime", None),
        ("outputs: []", "t/plain", None),
        ("outputs: [text]", "t/runtime", Some("`page`")),
        ("outputs: []", "t/runtime", Some("`page`, `text`")),
    ] {
        write(&world, "tool", executor, outputs);
        let said = world.resolve("t/tool").err().map(|error| error.to_string());
        match (missing, said) {
            (None, None) => {}
            (Some(missing), Some(said)) => {
                assert!(
                    said.contains(missing) && said.contains("runtime.yaml"),
                    "{said}"
                );
            }
            (_, said) => panic!("{outputs}: {said:?}"),
        }
    }
}

#[test]
fn output_is_inherited_along_chain_and_only_for_processes() {
    let world = World::new();
    write(&world, "runtime", EXECUTE, "output: json");
    let format = |executor: &str, more: &str| {
        write(&world, "tool", executor, more);
        let chain = world.resolve("t/tool");
        chain.map(|chain| chain.output_format())
    };
    assert_eq!(format(EXECUTE, "").unwrap(), OutputFormat::Auto);
    assert_eq!(format("t/runtime", "").unwrap(), OutputFormat::Json);
    assert_eq!(
        format("t/runtime", "output: text").unwrap(),
        OutputFormat::Text
    );
    let function = "rye/core/runtimes/python/function";
    assert_eq!(format(function, "").unwrap(), OutputFormat::Json);
    let refused = format(HTTP, "output: json").unwrap_err().to_string();
    assert!(
        refused.contains("`output`, line 6") && refused.contains("process"),
        "{refused}"
    );
}

#[test]
fn executor_in_higher_space_is_refused_with_its_path() {
    let world = World::new();
    write(&world, "runtime", EXECUTE, "");
    let text = element("tool", "t/runtime", "");
    let signed = sign_text(
        ItemKind::Tool,
        "yaml",
        &text,
        &world.own,
        Timestamp::default(),
    );
    let user = world.root.path().join("home/.ai/tools/t");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join("tool.yaml"), signed.unwrap()).unwrap();
    let refused = world.resolve("t/tool").unwrap_err().to_string();
    for told in ["t/runtime", "project space", "runtime.yaml", "user space"] {
        assert!(refused.contains(told), "{refused}");
    }
    // A tool of the project can use the same element.
    write(&world, "tool", "t/runtime", "");
    assert!(world.resolve("t/tool").is_ok());
}

#[test]
fn runtimes_are_found_by_names_of_original() {
    for (name, id) in [
        ("python_runtime", "rye/core/runtimes/python/script"),
        (
            "rye/core/runtimes/python_runtime",
            "rye/core/runtimes/python/script",
        ),
        (
            "python_function_runtime",
            "rye/core/runtimes/python/function",
        ),
        ("subprocess", EXECUTE),
        ("http_client", HTTP),
    ] {
        let world = World::new();
        if name == "http_client" {
            let http = "config: {url: \"http://127.0.0.1/\"}";
            write(&world, "tool", name, http);
        } else {
            write(&world, "tool", name, "");
        }
        let chain = world.resolve("t/tool").unwrap();
        let ids: Vec<_> = chain
            .elements()
            .map(|element| element.id().as_str())
            .collect();
        assert_eq!(ids[1], id, "{name}");
    }
}
