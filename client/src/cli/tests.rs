use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use rye_core::money::Usd;

use super::values::Durability;
use super::*;
use crate::input::Source;

fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("ryectl").chain(arguments.iter().copied()))
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_verb_has_help_with_an_example() {
    fn visit(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(help.contains("ryectl "), "no example in the help of{path}");
        assert!(command.get_about().is_some(), "nothing about{path}");
        for verb in command.get_subcommands() {
            visit(verb, &path);
        }
    }
    visit(&Cli::command(), "");
}

#[test]
fn run_accepts_all_documented_options() {
    let line = "graph run tool:a/b -i k=v -i j:=[1] --input - --cap rye.execute.tool.* --limit steps=5 --limit depth=0 \
                --limit spawns=2 --limit spend=0.25 --durability relaxed --async --idempotency-key K --quiet --json --socket /s --state-dir d \
                --project p --no-autostart";
    let cli = parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
    let Verb::Graph(GraphVerb::Run(run)) = cli.verb else {
        panic!("not a run");
    };
    assert_eq!(run.item.to_string(), "tool:a/b");
    assert_eq!(
        (run.given.asked.inputs.len(), run.given.asked.input),
        (2, Some(Source::Stdin))
    );
    let quarter = Usd::from_nanos(250_000_000);
    assert_eq!(
        run.given.asked.limits,
        [
            Limit::Steps(5),
            Limit::Depth(0),
            Limit::Spawns(2),
            Limit::Spend(quarter)
        ]
    );
    assert_eq!(run.given.durability, Some(Durability::Relaxed));
    assert!(
        run.attach.detach && run.attach.staying.quiet && !run.attach.staying.cancel_on_interrupt
    );
    assert!(cli.global.json && cli.global.no_autostart);
}

#[test]
fn unknown_limit_error_lists_valid_limits() {
    let message = |line: &str| {
        let error = parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap_err();
        error.to_string()
    };
    let raise = message("resume r --raise luck=3");
    assert!(raise.contains("steps=N"), "{raise}");
    let none = message("run a --limit luck=3");
    assert!(none.contains("no limit `luck`"), "{none}");
}

#[test]
fn resume_raises_each_limit_by_its_key() {
    let words = "resume r --raise turns=3 --raise tokens=9 --raise duration=1m30s --raise spawns=7 --raise depth=4";
    let words: Vec<&str> = words.split_whitespace().collect();
    let Verb::Resume(resume) = parse(&words).unwrap().verb else {
        panic!("not a resume");
    };
    let raises = [
        Limit::Turns(3),
        Limit::Tokens(9),
        Limit::Duration(Duration::from_secs(90)),
        Limit::Spawns(7),
        Limit::Depth(4),
    ];
    assert_eq!(resume.raises, raises);
}

#[test]
fn money_is_read_to_the_last_decimal() {
    let Verb::Resume(resume) = parse(&["resume", "r", "--raise", "spend=2.5"])
        .unwrap()
        .verb
    else {
        panic!("not a resume");
    };
    let spend = Usd::from_nanos(2_500_000_000);
    assert_eq!(resume.raises, [Limit::Spend(spend)]);
    let words = [
        "budget",
        "raise",
        "r",
        "--spend",
        "0.000000001",
        "--through",
    ];
    let Verb::Budget(BudgetVerb::Raise(raise)) = parse(&words).unwrap().verb else {
        panic!("not a raise");
    };
    assert_eq!((raise.spend, raise.through), (Usd::from_nanos(1), true));
    for words in [["budget", "show", "r"], ["budget", "tree", "r"]] {
        assert!(parse(&words).is_ok(), "{words:?}");
    }
}

#[test]
fn invalid_money_argument_is_refused_with_format() {
    for (amount, told) in [
        ("much", "`much` is not an amount in US dollars such as 0.25"),
        ("-1", "`-1` is less than zero"),
        ("0.0000000001", "`0.0000000001` has more than nine decimals"),
        ("1000001", "`1000001` is more than 1000000 US dollars"),
    ] {
        let pair = format!("spend={amount}");
        for words in [
            &["run", "a", "--limit", &pair][..],
            &["resume", "r", "--raise", &pair],
            &["budget", "raise", "r", "--spend", amount],
        ] {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}

#[test]
fn capability_pattern_of_known_action_is_accepted() {
    for pattern in [
        "*",
        "rye.*",
        "r?e.*",
        "rye.ex*",
        "rye.execute.*",
        "rye.execute.tool.*",
        "rye.execute.tool.a.b",
        "rye.search.knowledge.*",
        "[r]ye.*",
    ] {
        assert!(parse(&["run", "a", "--cap", pattern]).is_ok(), "{pattern}");
    }
    assert!(parse(&["ps", "--all", "--status", "error"]).is_ok());
}

#[test]
fn thread_run_accepts_run_options_and_untyped_directive() {
    let line = "thread run t/count -i path=a --model fast --provider p --limit turns=3 --limit duration=1m30s";
    let Verb::Thread(ThreadVerb::Run(run)) =
        parse(&line.split(' ').collect::<Vec<_>>()).unwrap().verb
    else {
        panic!("{line}");
    };
    let run = Run::from(run);
    assert_eq!(run.item.item().unwrap().to_string(), "directive:t/count");
    assert_eq!(run.given.asked.model.as_deref(), Some("fast"));
    let limits = [Limit::Turns(3), Limit::Duration(Duration::from_secs(90))];
    assert_eq!(run.given.asked.limits, limits);
    let line = ["run", "directive:t/count", "--model", "fast"];
    let Verb::Run(run) = parse(&line).unwrap().verb else {
        panic!("{line:?}");
    };
    assert_eq!(run.item.to_string(), "directive:t/count");
}

#[test]
fn times_are_seconds_or_have_units() {
    let limit = |text: &str| format!("duration={text}").parse::<Limit>();
    let table = [
        ("90", 90_000),
        ("90s", 90_000),
        ("1m30s", 90_000),
        ("0.5", 500),
        ("1.5h", 5_400_000),
    ];
    for (text, ms) in table {
        assert_eq!(
            limit(text),
            Ok(Limit::Duration(Duration::from_millis(ms))),
            "{text}"
        );
    }
    for text in [
        "",
        "s",
        "1m30",
        "-1",
        "1e400s",
        "m1s",
        "1h99999999999999999999h",
    ] {
        let error = limit(text).unwrap_err();
        assert!(error.contains("1m30s"), "{error}");
    }
}

#[test]
fn malformed_arguments_are_usage_errors() {
    for line in [
        "",
        "fly",
        "run",
        "run a --limit turns=many",
        "run a --limit duration=1x",
        "run a --model=",
        "thread run tool:a",
        "thread run",
        "thread validate knowledge:a",
        "run a --limit steps=0",
        "run a -i novalue",
        "run a --durability maybe",
        "execute config a",
        "ps --status done",
        "wait",
        "wait r --timeout soon",
        "wait r --timeout -1",
        "run a --cap=",
        "run a --cap nonsense",
        "run a --cap rye.execute.tool",
        "run a --cap rye.execute.tool.",
        "run a --cap rye.eat.*",
        "run a --cap execute.*",
        "graph step a --node n --cap x*",
        "kill r --grace NaN",
        "get ../r",
        "can r",
        "can r rye/bash",
        "can r rye.execute.tool.*",
        "can r rye.eat.tool.a",
        "can r tool:../a",
        "can ../r tool:a",
        "resume",
        "resume r --raise steps=0",
        "resume r --raise spend=much",
        "run a --limit spend",
        "run a --limit spend=",
        "budget",
        "budget show",
        "budget tree",
        "budget raise r",
        "budget raise r --spend -1",
        "budget raise --spend 1",
        "resume r --uncertain charge",
        "resume r --uncertain charge=maybe",
        "graph step g",
        "graph show g --format png",
        "cache drop",
        "cache drop k --all",
        "objects get",
        "run a --resume r -i k=v",
    ] {
        let error = parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap_err();
        assert!(error.use_stderr(), "{line}");
    }
}

#[test]
fn the_reference_lists_the_variables_of_flags() {
    fn visit(command: &clap::Command, found: &mut std::collections::BTreeSet<String>) {
        let names = command.get_arguments().filter_map(clap::Arg::get_env);
        found.extend(names.filter_map(|name| name.to_str().map(str::to_owned)));
        for verb in command.get_subcommands() {
            visit(verb, found);
        }
    }
    let mut flags = std::collections::BTreeSet::new();
    visit(&Cli::command(), &mut flags);
    let said = rye_pages::Table::read("docs/reference.md", "client variables").names();
    let said = said.into_iter();
    let of_rye: std::collections::BTreeSet<String> = said
        .filter(|name| {
            name.starts_with("RYE_")
                && !["RYE_RUN_ID", "RYE_ATTEMPT", "RYE_TOKEN"].contains(&name.as_str())
        })
        .collect();
    assert_eq!(of_rye, flags);
}
