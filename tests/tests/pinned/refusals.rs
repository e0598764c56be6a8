//! Wrong uses and refusals: the streams and the exit code.

use std::fmt::Write as _;

use rye_tests::World;

use super::normal::Normal;
use super::pin;

/// Makes a run that completes, one that fails and one that is suspended, an unreadable graph, and an unsigned tool.
fn world() -> (World, [String; 3]) {
    let world = World::new();
    world.graph("t/ok", "start: a\nnodes:\n  a: {type: return, output: 1}");
    world.graph(
        "t/fails",
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 3\"}}, next: b}\n  b: {type: return}",
    );
    world.graph(
        "t/parks",
        "start: a\nmax_steps: 1\nhooks:\n  - {event: limit, action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}}\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {type: return}",
    );
    world.graph_with(
        "t/typed",
        "permissions: []\nconfig_schema:\n  type: object\n  required: [who]\n  properties:\n    who: {type: string}\n    n: {type: integer}",
        "start: a\nnodes:\n  a: {type: return, output: \"${inputs.who}\"}",
    );
    world.graph(
        "t/broken",
        "start: nowhere\nnodes:\n  a: {type: brew, nxt: b}\n  b: {type: return}",
    );
    world.python("t/changed", "return 1");
    let changed = world.read(".ai/tools/t/changed.py");
    world.write(
        ".ai/tools/t/changed.py",
        changed.replace("return 1", "return 2"),
    );
    world.write(
        ".ai/tools/t/unsigned.py",
        changed.split_once('\n').unwrap().1,
    );
    world.write(".ai/tools/t/no_yaml.yaml", "version: [1\n");
    let runs = ["t/ok", "t/fails", "t/parks"].map(|id| {
        let run = world.start_run(id);
        let _settled = world.settled(&run);
        run
    });
    (world, runs)
}

/// `$1` has completed, `$2` has failed, `$3` is suspended; `%` is a blank within a word.
const USES: &[&str] = &[
    "",
    "frobnicate",
    "run",
    "run t/nothing",
    "run ../secret",
    "run t/unsigned",
    "run t/changed",
    "run t/no_yaml",
    "run t/broken",
    "run t/ok --frob",
    "run t/ok -i nonsense",
    "run t/ok --input {",
    "run t/ok --limit steps=0",
    "run t/ok --resume nonsense",
    "run t/typed",
    "run t/typed -i who:=3",
    "run t/typed -i who=Ada -i n=many",
    "run t/fails",
    "run t/fails --cap rye.execute.tool.t.*",
    "run t/ok --resume $1",
    "execute tool t/nothing",
    "execute directive t/ok",
    "execute tool rye/bash",
    "execute tool rye/bash --params []",
    "execute tool rye/bash --params {\"command\":7}",
    "execute tool rye/bash --params {\"command\":\"exit%3\"}",
    "execute tool t/ok --params {\"resume\":true}",
    "execute tool t/ok --params {\"graph_run_id\":\"x\"}",
    "get t-nothing-1795358651-rylzq75y2v",
    "get nonsense",
    "steps nonsense",
    "events t-nothing-1795358651-rylzq75y2v",
    "wait t-nothing-1795358651-rylzq75y2v",
    "cancel t-nothing-1795358651-rylzq75y2v",
    "cancel $1",
    "kill $1",
    "suspend $1",
    "resume $1",
    "resume $2 --uncertain a=done",
    "resume $2 --uncertain nonsense",
    "resume $3",
    "resume $3 --raise steps=1",
    "resume $3 --raise depth=1",
    "resume $3 --uncertain b=done",
    "wait $3",
    "graph validate t/broken",
    "graph validate t/nothing",
    "graph show t/nothing",
    "graph show t/ok --format svg",
    "graph step t/ok --node none",
    "graph step t/ok",
    "objects get nonsense",
    "objects get 0000000000000000000000000000000000000000000000000000000000000000",
    "cache drop nonsense",
    "ps --status lost",
    "verify tool:t/changed",
    "verify tool:t/unsigned",
    "verify tool:t/nothing",
    "sign tool:t/nothing",
    "sign nonsense:t/ok",
    "key trust nothing.pem",
    "key untrust 0123456789abcdef",
    "init",
];

#[test]
fn refusals_and_wrong_uses() {
    let (world, runs) = world();
    let mut normal = Normal::default()
        .call(&world.project(), "<project>")
        .call(world.root(), "<world>");
    let known = runs.join(" ");
    let _named = normal.text(&known);
    let mut text = String::new();
    for uses in USES {
        let command = uses
            .split_whitespace()
            .fold(world.ryectl(""), |command, word| {
                match word.strip_prefix('$') {
                    Some(number) => command.arg(&runs[number.parse::<usize>().unwrap() - 1]),
                    None => command.arg(word.replace('%', " ")),
                }
            });
        let out = command.env("COLUMNS", "100").run();
        let (stdout, stderr) = (normal.text(&out.stdout()), normal.text(&out.stderr()));
        writeln!(text, "$ ryectl {uses} → {}", out.exit()).unwrap();
        for (name, told) in [("out", stdout), ("err", stderr)] {
            for line in told.lines() {
                writeln!(text, "{name}| {line}").unwrap();
            }
        }
        text.push('\n');
    }
    pin("refusals", &text);
}
