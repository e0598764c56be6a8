//! The shipped graphs, each run with its real tools on small files.

use std::fs;

use rye_tests::{World, binaries};
use serde_json::{Value, json};

fn run(world: &World, id: &str, inputs: &Value) -> Value {
    let command = world.ryectl("run --json --quiet");
    let command = command.arg(format!("rye/examples/{id}")).arg("--input");
    command.arg(inputs.to_string()).run().json()
}

#[test]
fn no_shipped_graph_has_a_finding() {
    let world = World::new();
    let _daemon = world.start("");
    let folder = binaries::clone_root().join(".ai/tools/rye/examples");
    let mut graphs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !fs::read_to_string(&path)
            .unwrap()
            .contains("tool_type: graph")
        {
            continue;
        }
        graphs += 1;
        let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let report = world
            .ryectl("graph validate --json")
            .arg(format!("rye/examples/{id}"))
            .ok()
            .json();
        assert_eq!(report["errors"], json!([]), "{id}");
        assert_eq!(report["warnings"], json!([]), "{id}");
    }
    assert_eq!(graphs, 4);
}

#[test]
fn a_review_of_clean_files_approves_them() {
    let world = World::new();
    let _daemon = world.start("");
    world.write("a.py", "x = 1\n");
    world.write("b.py", "y = 2\n");
    let run = run(&world, "code-review", &json!({"files": ["a.py", "b.py"]}));
    assert_eq!(run["output"]["verdict"], "approve");
    assert_eq!(run["output"]["reason"], "no issues in 2 file(s)");
    assert_eq!(run["output"]["issues"], json!([]));
}

#[test]
fn a_review_proposes_what_a_machine_can_fix() {
    let world = World::new();
    let _daemon = world.start("");
    world.write("a.py", "try:\n    go()\nexcept:\n    pass  \n");
    let run = run(&world, "code-review", &json!({"files": ["a.py"]}));
    assert_eq!(run["output"]["verdict"], "apply_fixes");
    assert_eq!(
        run["output"]["fixes"],
        json!([
            {"file": "a.py", "line": 3, "before": "except:", "after": "except Exception:"},
            {"file": "a.py", "line": 4, "before": "    pass  ", "after": "    pass"},
        ])
    );
}

#[test]
fn review_leaves_unfixable_findings_to_reviewer() {
    let world = World::new();
    let _daemon = world.start("");
    world.write("a.txt", "<<<<<<< ours\nTODO: decide \n");
    let inputs = json!({"files": ["a.txt"], "severity_threshold": "note"});
    let run = run(&world, "code-review", &inputs);
    assert_eq!(run["output"]["verdict"], "revise");
    assert_eq!(
        run["output"]["reason"],
        "2 of 3 issues have no mechanical fix"
    );
    let rules: Vec<&Value> = run["output"]["issues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|issue| &issue["rule"])
        .collect();
    assert_eq!(rules, ["conflict-marker", "trailing-blanks", "leftover"]);
}

const SALES: &str = "region,quarter,customer,amount
West,Q1,Ada,10.10
West,Q1,Bob,25.00
East,Q1,Eve,99.00
West,Q1,Ada,20.20
West,Q2,Ada,7.00
";

#[test]
fn sales_of_a_region_become_a_report() {
    let world = World::new();
    let _daemon = world.start("");
    world.write("sales.csv", SALES);
    let run = run(
        &world,
        "process-sales",
        &json!({"region": "West", "quarter": "Q1"}),
    );
    assert_eq!(
        run["output"],
        json!({
            "report_path": "reports/West-Q1.md",
            "row_count": 3,
            "total": "55.30",
            "top_customers": [
                {"customer": "Ada", "orders": 2, "total": "30.30"},
                {"customer": "Bob", "orders": 1, "total": "25.00"},
            ],
        })
    );
    assert_eq!(
        world.read("reports/West-Q1.md"),
        "# Sales West-Q1\n\nSales of 55.30 in 3 orders; the best customer is Ada with 30.30.\n"
    );
}

#[test]
fn a_quarter_without_sales_has_a_report_too() {
    let world = World::new();
    let _daemon = world.start("");
    world.write("sales.csv", SALES);
    let inputs = json!({"region": "North", "quarter": "Q1", "directory": "out"});
    let run = run(&world, "process-sales", &inputs);
    assert_eq!(run["output"]["row_count"], 0);
    assert_eq!(run["output"]["top_customers"], json!([]));
    assert_eq!(
        world.read("out/North-Q1.md"),
        "# Sales North-Q1\n\nNo sales data.\n"
    );
}

#[test]
fn a_region_that_would_leave_the_folder_of_reports_is_refused() {
    let world = World::new();
    let _daemon = world.start("");
    world.write("sales.csv", SALES);
    let _out = world
        .ryectl("run rye/examples/process-sales -i region=../x -i quarter=Q1")
        .run()
        .code(2)
        .stderr_contains(&["region"]);
}

#[test]
fn several_files_are_reviewed_at_once_and_one_that_cannot_be_read_stops_no_other() {
    let world = World::new();
    let _daemon = world.start("");
    world.write("clean.py", "x = 1\n");
    world.write("blanks.py", "x = 1 \n");
    let files = json!({"files": ["clean.py", "missing.py", "blanks.py"]});
    let run = run(&world, "multi-file-review", &files);
    assert_eq!(run["status"], "completed_with_errors");
    assert_eq!(run["output"]["verdict"], "failed");
    let results = run["output"]["results"].as_array().unwrap();
    let verdicts: Vec<_> = results
        .iter()
        .map(|result| (&result["file"], &result["verdict"]))
        .collect();
    assert_eq!(
        verdicts,
        [
            (&json!("clean.py"), &json!("approve")),
            (&json!("missing.py"), &json!("failed")),
            (&json!("blanks.py"), &json!("apply_fixes")),
        ]
    );
    let tree = world
        .ryectl("tree --json")
        .arg(run["run_id"].as_str().unwrap())
        .ok()
        .json();
    let below = tree[0]["children"].as_array().unwrap();
    assert_eq!(below.len(), 3, "each file is a run of its own: {tree}");
}
