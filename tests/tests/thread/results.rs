//! Results of the shipped tools as the model gets them: as much as in a terminal, and each fact once.

use rye_pages::Table;
use rye_tests::World;
use rye_tests::command::program;
use rye_tests::model_server::ModelServer;
use serde_json::{Value, json};

use super::{payloads, start};

/// Permits file tools and commands.
const WORKS: &str = "<permissions><execute><tool>rye/bash</tool><tool>rye/file-system/*</tool></execute></permissions>";

/// A typical call of a shipped tool.
struct Typical {
    /// Name on the page.
    name: &'static str,
    tool: &'static str,
    input: Value,
    /// A command that prints the same; `None` for a change.
    printed_by: Option<&'static str>,
    /// Most bytes that the model gets.
    most: usize,
}

fn typical() -> Vec<Typical> {
    let call = |name, tool, input, printed_by, most| Typical {
        name,
        tool,
        input,
        printed_by,
        most,
    };
    let bash = |name, command: &'static str| {
        call(
            name,
            "rye_bash",
            json!({"command": command}),
            Some(command),
            16 << 10,
        )
    };
    let file =
        |name, tool, input, printed_by, most| call(name, tool, input, Some(printed_by), most);
    vec![
        file(
            "read of 180 lines",
            "rye_file_system_read",
            json!({"path": "src/app.py"}),
            "cat -n src/app.py",
            49 << 10,
        ),
        file(
            "read of 2,000 lines",
            "rye_file_system_read",
            json!({"path": "src/table.py"}),
            "cat -n src/table.py",
            49 << 10,
        ),
        file(
            "grep",
            "rye_file_system_grep",
            json!({"pattern": "return row_19", "path": "src"}),
            "grep -rn 'return row_19' src",
            16 << 10,
        ),
        file(
            "ls",
            "rye_file_system_ls",
            json!({"path": "many"}),
            "ls -p many",
            8 << 10,
        ),
        file(
            "glob",
            "rye_file_system_glob",
            json!({"pattern": "many/**/*.py"}),
            "find many -name '*.py'",
            8 << 10,
        ),
        call(
            "edit_lines",
            "rye_file_system_edit_lines",
            json!({"path": "edited.py", "changes": [
                {"old_content": "    return row_7\n", "new_content": "    # The row before.\n    return row_6\n"},
            ]}),
            None,
            600,
        ),
        call(
            "write",
            "rye_file_system_write",
            json!({"path": "written.py", "content": lines(100, "new")}),
            None,
            600,
        ),
        bash("bash, 40 lines of tests", "cat tests.txt"),
        bash("bash, 500 lines of a build", "cat build.txt"),
        bash("bash, a failure", "cat failure.txt >&2; exit 1"),
    ]
}

/// Returns a Python file with `count` lines.
fn lines(count: usize, word: &str) -> String {
    let line = |number| match number % 3 {
        0 => format!("def {word}_of_row_{number}(table):\n"),
        1 => format!("    return row_{number}\n"),
        _ => "\n".to_owned(),
    };
    (0..count).map(line).collect()
}

fn project(server: &ModelServer) -> World {
    let world = World::with_models(server);
    world.directive("t/works", WORKS, "", "Work.");
    let put = |path: &str, text: &str| world.write(path, text);
    let app: Vec<String> = (0..180)
        .map(|number| format!("    total += row[{number}] * rate\n"))
        .collect();
    put("src/app.py", &app.concat());
    put("src/table.py", &lines(2_000, "f"));
    put("edited.py", &lines(30, "g"));
    put("written.py", &lines(90, "old"));
    for number in 0..40 {
        put(&format!("many/module_{number:02}.py"), "");
    }
    let numbered = |count: usize, text: &str| {
        let lines = (0..count).map(|number| format!("{text} {number}\n"));
        lines.collect::<Vec<String>>().concat()
    };
    put(
        "tests.txt",
        &numbered(
            40,
            "tests/test_rows.py::test_that_each_row_is_counted PASSED",
        ),
    );
    put(
        "build.txt",
        &numbered(
            500,
            "[build] cc -O2 -g -Wall -c src/module.c -o target/module.o",
        ),
    );
    put(
        "failure.txt",
        &numbered(20, "  File \"src/app.py\", in total: no row of that name:"),
    );
    world
}

/// Returns the output of `command` in the project.
fn printed(world: &World, command: &str) -> String {
    let mut bash = program("bash");
    let command = format!("({command}) 2>&1");
    let out = bash.arg("-c").arg(command).current_dir(world.project());
    String::from_utf8(out.output().unwrap().stdout).unwrap()
}

/// Returns the text of each call that was sent to the model, in their order.
fn sent(world: &World, run: &str) -> Vec<String> {
    let mut results = payloads(world, run, "tool_call_result");
    results.sort_by_key(|result| result["position"].as_u64());
    let text = |result: &Value| result["output"].as_str().unwrap().to_owned();
    results.iter().map(text).collect()
}

#[test]
fn typical_results_for_model_are_near_printed_size() {
    let calls: Vec<Value> = typical()
        .iter()
        .map(|call| json!({"name": call.tool, "input": call.input}))
        .collect();
    let script = json!([
        {"when": {"turn": 1}, "reply": {"calls": calls}},
        {"when": {"turn": 2}, "reply": {"text": "Done."}},
    ]);
    let server = ModelServer::start(&script.to_string());
    let world = project(&server);
    let printed: Vec<Option<String>> = typical()
        .iter()
        .map(|call| call.printed_by.map(|command| printed(&world, command)))
        .collect();
    let _daemon = world.start("");
    let run = start(&world, "t/works");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let sent = sent(&world, &run);
    assert_eq!(sent.len(), typical().len());
    let mut rows = Vec::new();
    for ((call, sent), printed) in typical().iter().zip(&sent).zip(&printed) {
        let (name, sent_bytes) = (call.name, sent.len());
        assert!(sent_bytes <= call.most, "{name}: {sent}");
        let cell = printed.as_ref().map(String::len);
        if let Some(printed) = cell {
            let most = printed.min(call.most) * 11 / 10;
            assert!(sent_bytes <= most, "{name}: {most}\n{sent}");
        }
        let cell = cell.map_or_else(String::new, |bytes| format!("{bytes} "));
        rows.push(format!("| `{name}` | {cell}| {sent_bytes} |\n"));
    }
    let rows = rows.concat();
    Table::read("docs/tools.md", "model text").assert_lists(typical().iter().map(|call| call.name));
    let page = rye_pages::read("docs/tools.md");
    assert!(page.contains(&rows), "docs/tools.md has to say\n{rows}");
    assert_eq!(Some(&sent[0]), printed[0].as_ref());
    assert_eq!(Some(&sent[1]), printed[1].as_ref());
    assert!(sent[5].contains("\n+    return row_6\n"), "{}", sent[5]);
    assert!(sent[8].contains("read_artifact"), "{}", sent[8]);
    assert!(
        sent[9].starts_with("exit code 1\n--- stderr\n"),
        "{}",
        sent[9]
    );
}

#[test]
fn a_file_of_180_lines_is_in_the_next_request_of_the_model_after_one_call() {
    let script = json!([
        {"when": {"turn": 1}, "reply": {"calls": [
            {"name": "rye_file_system_read", "input": {"path": "src/app.py"}},
        ]}},
        {"when": {"turn": 2}, "reply": {"text": "Done."}},
    ]);
    let server = ModelServer::start(&script.to_string());
    let world = project(&server);
    let file = printed(&world, "cat -n src/app.py");
    let _daemon = world.start("");
    let run = start(&world, "t/works");
    let _record = world.settled(&run);
    let body = server.requests()[1].body.to_string();
    assert_eq!(file.lines().count(), 180);
    let escaped = json!(file).to_string();
    assert!(body.contains(escaped.trim_matches('"')), "{body}");
}
