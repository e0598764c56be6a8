//! Actions that a suspended or failed run requires from a person.
//!
//! Every hint uses one pure function, [`needs`]. It returns the kind of need, the reason, and the exact commands. A
//! terminal shows the commands, a program starts them, and a page offers them as buttons.

use std::collections::BTreeSet;

use rye_core::model::Raisable;
use rye_core::printable::shell_word;
use rye_proto::v1::{Run, RunKind, RunStatus, Suspension};
use serde::Serialize;

/// Code of a run that has spent its own budget.
const SPEND: &str = "spend_exceeded";
/// Argument of `--raise` for money.
const MONEY: &str = "spend=USD";

/// Kind of need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An answer to the run's question.
    Approval,
    /// Results of attempts whose outcome is unknown.
    Verdict,
    /// A higher limit.
    Limit,
    /// A decision whether a failed node is tried again.
    Failure,
    /// A resume, and nothing else.
    Resume,
    /// Nothing: the run resumes by itself.
    Nothing,
}

/// A command that gives a run what it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Way {
    /// Effect of the command.
    pub does: String,
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// A run's need and the commands that meet it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Need {
    pub kind: Kind,
    /// Further facts; empty if the kind and the commands suffice.
    pub text: String,
    /// Commands that meet the need. Those that continue the run come first.
    pub ways: Vec<Way>,
}

impl Way {
    fn new(does: &str, verb: &str, run: &str, arguments: &[String]) -> Self {
        let begin = ["ryectl", verb, run].map(str::to_owned);
        Self {
            does: does.to_owned(),
            argv: begin.into_iter().chain(arguments.iter().cloned()).collect(),
        }
    }

    /// Returns the command, quoted for a shell.
    pub fn command(&self) -> String {
        let words: Vec<String> = self.argv.iter().map(|word| shell_word(word)).collect();
        words.join(" ")
    }
}

/// Returns what a suspended `run` needs to continue. If it waits for a suspended `child`, the need is that of the
/// child. Resuming a run resumes the children that it waits for; an answer goes to the run that requested it.
pub fn needs(run: &Run, child: Option<&Run>) -> Option<Need> {
    let own = run.suspend.as_ref()?;
    let waiting = child.and_then(|child| Some((child, child.suspend.as_ref()?)));
    let (asks, why) = waiting.unwrap_or((run, own));
    let resumed = run.run_id.as_str();
    Some(match (why.reason.as_str(), why.uncertain.is_empty()) {
        ("approval", true) => approval(asks),
        ("approval", false) => Need {
            kind: Kind::Approval,
            text: may_have_run(&why.uncertain),
            ways: vec![
                Way::new(
                    "does it again",
                    "approve",
                    &asks.run_id,
                    &verdicts(&why.uncertain, "retry"),
                ),
                Way::new("does not", "deny", &asks.run_id, &[]),
            ],
        },
        ("uncertain", false) => uncertain(resumed, why),
        (_, false) => Need {
            kind: Kind::Verdict,
            text: may_have_run(&why.uncertain),
            ways: vec![
                Way::new(
                    "does it again",
                    "resume",
                    resumed,
                    &verdicts(&why.uncertain, "retry"),
                ),
                ends(resumed),
            ],
        },
        ("limit" | "budget", true) if !why.max.is_empty() => limit(resumed, &asks.run_id, why),
        ("error", true) => Need {
            kind: Kind::Failure,
            text: String::new(),
            ways: vec![
                Way::new("tries the node again", "resume", resumed, &[]),
                ends(resumed),
            ],
        },
        ("storage", true) => waiting_for_resource(resumed, &why.code),
        (_, true) => Need {
            kind: Kind::Resume,
            text: String::new(),
            ways: vec![
                Way::new("resumes it", "resume", resumed, &[]),
                ends(resumed),
            ],
        },
    })
}

/// Returns the need of an ended `run` if continuing it repeats attempts which may have executed.
pub fn unanswered(run: &Run) -> Option<Need> {
    // One answer counts for all attempts of a name.
    let names: BTreeSet<&String> = run.uncertain.iter().map(|attempt| &attempt.name).collect();
    let names: Vec<String> = names.into_iter().cloned().collect();
    (!names.is_empty()).then(|| Need {
        kind: Kind::Verdict,
        text: may_have_run(&names),
        ways: vec![Way::new(
            "does it again",
            "resume",
            &run.run_id,
            &verdicts(&names, "retry"),
        )],
    })
}

/// Returns the commands that continue an ended graph: where it failed, with the failures on its way, or from the first of
/// these on.
pub fn ways_to_continue(run: &Run) -> Vec<Way> {
    let is_whole = run.kind() == RunKind::Graph && run.steps > 0 && !run.run_id.ends_with("-step");
    if !is_whole {
        return Vec::new();
    }
    let walks_on = run.failed_part.as_ref().map(|part| {
        let items = match part.items {
            0 => String::new(),
            1 => "the failed item of ".to_owned(),
            items => format!("the {items} failed items of "),
        };
        let text = format!(
            "repeats {items}`{}` and walks on from there, once that is fixed",
            part.node
        );
        (text, part.resumed)
    });
    let resume =
        |does: &str, arguments: &[String]| Way::new(does, "resume", &run.run_id, arguments);
    let usual = match (run.status(), &walks_on) {
        (RunStatus::Error, Some((text, true))) => return vec![resume(text, &[])],
        (RunStatus::Error, _) => "continues where it failed, once that is fixed",
        (RunStatus::CompletedWithErrors, _) => "repeats only what failed, once that is fixed",
        _ => return Vec::new(),
    };
    let walks_on = walks_on.map(|(text, _)| resume(&text, &["--failed".to_owned()]));
    std::iter::once(resume(usual, &[]))
        .chain(walks_on)
        .collect()
}

/// Need of a run that waits for a resource of its host and resumes by itself.
fn waiting_for_resource(run: &str, code: &str) -> Need {
    let (text, ways) = match code {
        "project_gone" => (
            "the directory of its project is gone, or another one is in its place: it resumes by itself when that is put back, and \
             continues in what is there now if it is cancelled and then resumed",
            vec![ends(run)],
        ),
        "too_many_files" => (
            "it resumes by itself when the daemon can open files again",
            Vec::new(),
        ),
        "out_of_memory" => (
            "it resumes by itself when the host has memory again",
            Vec::new(),
        ),
        _ => (
            "it resumes by itself when there is space on the disk again",
            Vec::new(),
        ),
    };
    Need {
        kind: Kind::Nothing,
        text: text.to_owned(),
        ways,
    }
}

fn ends(run: &str) -> Way {
    Way::new("ends the run", "cancel", run, &[])
}

/// Need of a run with open questions. With several, each command names its question.
fn approval(run: &Run) -> Need {
    let id = run.run_id.as_str();
    let both = |which: &[String], about: &str| {
        [
            Way::new(&format!("continues{about}"), "approve", id, which),
            Way::new(&format!("does not continue{about}"), "deny", id, which),
        ]
    };
    let ways = match run.approvals.as_slice() {
        [] | [_] => both(&[], "").into(),
        several => several
            .iter()
            .flat_map(|asked| {
                both(
                    std::slice::from_ref(&asked.id),
                    &format!(" with `{}`", asked.id),
                )
            })
            .collect(),
    };
    Need {
        kind: Kind::Approval,
        text: "--comment says why".to_owned(),
        ways,
    }
}

/// Need of a run with attempts of unknown outcome.
fn uncertain(run: &str, why: &Suspension) -> Need {
    let way = |does: &str, verdict: &str| {
        Way::new(does, "resume", run, &verdicts(&why.uncertain, verdict))
    };
    let each = if why.uncertain.len() > 1 {
        "; each may be answered otherwise"
    } else {
        ""
    };
    Need {
        kind: Kind::Verdict,
        text: format!(
            "find out what became of {}, then say so{each}",
            why.uncertain.join(", ")
        ),
        ways: vec![
            way("it was done", "done"),
            way("it was not, do it", "retry"),
            way("it failed", "fail"),
        ],
    }
}

/// Need of a run that reached a limit or has no money. The limit is its own, that of `asks`, or that of the account
/// which `why` names.
fn limit(resumed: &str, asks: &str, why: &Suspension) -> Need {
    let code = why.code.as_str();
    let lacking = match why.account.as_str() {
        "" if code == SPEND => asks,
        "" => resumed,
        account => account,
    };
    let needs_money = !why.account.is_empty() || code == SPEND;
    let raised = |run: &str, does: &str| {
        let limit = if needs_money {
            MONEY.to_owned()
        } else {
            raise(code)
        };
        Way::new(does, "resume", run, &["--raise".to_owned(), limit])
    };
    let is_elsewhere = lacking != resumed && lacking != asks;
    let (text, ways) = if is_elsewhere {
        let budget = ["ryectl", "budget", "raise", lacking, "--spend", "USD"];
        let more = Way {
            does: format!("gives {lacking} more, for itself and all below it"),
            argv: budget.map(str::to_owned).into(),
        };
        let text = format!("{lacking} has too little: raise that first, then resume");
        (
            text,
            vec![more, Way::new("then resumes it", "resume", resumed, &[])],
        )
    } else if lacking == resumed {
        (
            String::new(),
            vec![raised(lacking, "gives it a higher limit")],
        )
    } else {
        let does = format!("gives {lacking} a higher limit, and resumes both");
        (String::new(), vec![raised(lacking, &does)])
    };
    Need {
        kind: Kind::Limit,
        text,
        ways: ways.into_iter().chain([ends(resumed)]).collect(),
    }
}

fn may_have_run(attempts: &[String]) -> String {
    format!(
        "{}: at most once, and may have executed",
        attempts.join(", ")
    )
}

/// Gives the same verdict to all attempts in doubt.
fn verdicts(attempts: &[String], verdict: &str) -> Vec<String> {
    attempts
        .iter()
        .flat_map(|name| ["--uncertain".to_owned(), format!("{name}={verdict}")])
        .collect()
}

/// Returns the argument of `--raise` for the limit with this code.
fn raise(code: &str) -> String {
    let of_code = |limit: &Raisable| code == limit.code();
    match Raisable::ALL.iter().find(|limit| of_code(limit)) {
        Some(limit @ Raisable::Duration) => format!("{}=TIME", limit.key()),
        Some(limit) => format!("{}=N", limit.key()),
        None => "steps=N".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rye_proto::v1;

    use super::*;

    fn suspended(id: &str, why: Suspension, asks: &[&str]) -> Run {
        let ask = |ask: &&str| v1::Approval {
            run_id: id.to_owned(),
            id: (*ask).to_owned(),
            kind: "node".to_owned(),
            ..v1::Approval::default()
        };
        Run {
            run_id: id.to_owned(),
            kind: RunKind::Graph.into(),
            status: RunStatus::Suspended.into(),
            approvals: asks.iter().map(ask).collect(),
            suspend: Some(why),
            ..Run::default()
        }
    }

    fn why(reason: &str, code: &str, uncertain: &[&str]) -> Suspension {
        Suspension {
            reason: reason.to_owned(),
            code: code.to_owned(),
            current: if reason == "limit" { "9" } else { "" }.to_owned(),
            max: if reason == "limit" { "9" } else { "" }.to_owned(),
            uncertain: uncertain.iter().map(ToString::to_string).collect(),
            ..Suspension::default()
        }
    }

    fn commands(need: &Need) -> Vec<String> {
        need.ways.iter().map(Way::command).collect()
    }

    #[test]
    fn a_suspended_run_names_the_commands_that_give_it_what_it_needs() {
        let table: [(Suspension, Kind, &[&str]); 12] = [
            (
                why("uncertain", "", &["charge[0]", "x"]),
                Kind::Verdict,
                &[
                    "ryectl resume r --uncertain 'charge[0]=done' --uncertain x=done",
                    "ryectl resume r --uncertain 'charge[0]=retry' --uncertain x=retry",
                    "ryectl resume r --uncertain 'charge[0]=fail' --uncertain x=fail",
                ],
            ),
            (
                why("limit", "", &[]),
                Kind::Limit,
                &["ryectl resume r --raise steps=N", "ryectl cancel r"],
            ),
            (
                why("limit", "max_steps_exceeded", &[]),
                Kind::Limit,
                &["ryectl resume r --raise steps=N", "ryectl cancel r"],
            ),
            (
                why("limit", "turns_exceeded", &[]),
                Kind::Limit,
                &["ryectl resume r --raise turns=N", "ryectl cancel r"],
            ),
            (
                why("limit", "duration_exceeded", &[]),
                Kind::Limit,
                &["ryectl resume r --raise duration=TIME", "ryectl cancel r"],
            ),
            (
                why("limit", "spend_exceeded", &[]),
                Kind::Limit,
                &["ryectl resume r --raise spend=USD", "ryectl cancel r"],
            ),
            (
                why("user", "", &[]),
                Kind::Resume,
                &["ryectl resume r", "ryectl cancel r"],
            ),
            (
                why("error", "", &[]),
                Kind::Failure,
                &["ryectl resume r", "ryectl cancel r"],
            ),
            (
                why("restart", "", &["a"]),
                Kind::Verdict,
                &["ryectl resume r --uncertain a=retry", "ryectl cancel r"],
            ),
            (
                why("approval", "", &["a"]),
                Kind::Approval,
                &["ryectl approve r --uncertain a=retry", "ryectl deny r"],
            ),
            (why("storage", "", &[]), Kind::Nothing, &[]),
            (
                why("storage", "project_gone", &[]),
                Kind::Nothing,
                &["ryectl cancel r"],
            ),
        ];
        for (why, kind, expected) in table {
            let reason = why.reason.clone();
            let need = needs(&suspended("r", why, &[]), None).unwrap();
            assert_eq!(
                (need.kind, commands(&need)),
                (kind, expected.iter().map(ToString::to_string).collect()),
                "{reason}"
            );
        }
    }

    #[test]
    fn need_answers_asking_child_and_resumes_given_run() {
        let waits = suspended("r", why("child", "", &[]), &[]);
        let asks = suspended("c", why("approval", "", &[]), &["a1", "a2"]);
        let need = needs(&waits, Some(&asks)).unwrap();
        let expected = [
            "ryectl approve c a1",
            "ryectl deny c a1",
            "ryectl approve c a2",
            "ryectl deny c a2",
        ];
        assert_eq!(commands(&need), expected);
        let failed = suspended("c", why("error", "", &[]), &[]);
        let need = needs(&waits, Some(&failed)).unwrap();
        assert_eq!(commands(&need), ["ryectl resume r", "ryectl cancel r"]);
    }

    #[test]
    fn need_raises_money_at_short_account_and_limit_at_its_run() {
        let budget = |account: &str| Suspension {
            current: "0.04".to_owned(),
            max: "0.05".to_owned(),
            account: account.to_owned(),
            ..why("budget", "hierarchical_budget_exceeded", &[])
        };
        let waits = suspended("r", why("child", "", &[]), &[]);
        let cancel = "ryectl cancel r";
        let table: [(Suspension, &[&str]); 4] = [
            (budget("r"), &["ryectl resume r --raise spend=USD", cancel]),
            (
                budget("top"),
                &[
                    "ryectl budget raise top --spend USD",
                    "ryectl resume r",
                    cancel,
                ],
            ),
            (
                why("limit", "spend_exceeded", &[]),
                &["ryectl resume c --raise spend=USD", cancel],
            ),
            (
                why("limit", "turns_exceeded", &[]),
                &["ryectl resume r --raise turns=N", cancel],
            ),
        ];
        for (why, expected) in table {
            let need = needs(&waits, Some(&suspended("c", why, &[]))).unwrap();
            assert_eq!(
                (need.kind, commands(&need)),
                (
                    Kind::Limit,
                    expected.iter().map(ToString::to_string).collect()
                )
            );
        }
        let alone = needs(&suspended("r", budget("top"), &[]), None).unwrap();
        assert_eq!(commands(&alone)[0], "ryectl budget raise top --spend USD");
        assert!(alone.text.contains("top has too little"), "{}", alone.text);
        // An account of no run is a limit of the node.
        let node = Suspension {
            current: String::new(),
            max: String::new(),
            ..budget("")
        };
        let need = needs(&suspended("r", node, &[]), None).unwrap();
        assert_eq!(commands(&need), ["ryectl resume r", cancel]);
    }

    #[test]
    fn ended_run_needs_one_verdict_per_attempt_name() {
        let attempt = |name: &str, of: &str| v1::UncertainAttempt {
            name: name.to_owned(),
            run_id: of.to_owned(),
            ..v1::UncertainAttempt::default()
        };
        let ended = |uncertain: &[v1::UncertainAttempt]| {
            unanswered(&Run {
                run_id: "g-1".to_owned(),
                kind: RunKind::Graph.into(),
                status: RunStatus::Killed.into(),
                uncertain: uncertain.to_vec(),
                ..Run::default()
            })
        };
        assert_eq!(ended(&[]), None);
        let left = [
            attempt("fan[1]", "g-2"),
            attempt("charge", ""),
            attempt("fan[1]", "g-3"),
        ];
        let need = ended(&left).unwrap();
        assert_eq!(need.kind, Kind::Verdict);
        let told = "charge, fan[1]: at most once, and may have executed";
        assert_eq!(need.text, told);
        let command = "ryectl resume g-1 --uncertain charge=retry --uncertain 'fan[1]=retry'";
        assert_eq!(need.ways[0].command(), command);
    }

    #[test]
    fn only_failed_graph_has_continue_command() {
        let ended = |id: &str, kind: RunKind, status: RunStatus, steps: u32| {
            let run = Run {
                run_id: id.to_owned(),
                kind: kind.into(),
                status: status.into(),
                steps,
                ..Run::default()
            };
            let ways = ways_to_continue(&run).into_iter();
            ways.map(|way| way.command()).next()
        };
        let (graph, error) = (RunKind::Graph, RunStatus::Error);
        let resume = Some("ryectl resume g-1".to_owned());
        assert_eq!(ended("g-1", graph, error, 2), resume);
        let with_errors = RunStatus::CompletedWithErrors;
        assert_eq!(ended("g-1", graph, with_errors, 2), resume);
        assert_eq!(ended("g-1", graph, error, 0), None, "it never began");
        assert_eq!(ended("g-1-step", graph, error, 1), None, "one node alone");
        assert_eq!(ended("g-1", RunKind::Tool, error, 1), None);
        assert_eq!(ended("g-1", graph, RunStatus::Completed, 2), None);
        assert_eq!(ended("g-1", graph, RunStatus::Cancelled, 2), None);
    }

    #[test]
    fn continue_commands_say_what_is_repeated() {
        let ways = |status: RunStatus, items: u32, resumed: bool| {
            let run = Run {
                run_id: "g-1".to_owned(),
                kind: RunKind::Graph.into(),
                status: status.into(),
                steps: 3,
                failed_part: Some(v1::FailedPart {
                    node: "checks".to_owned(),
                    items,
                    resumed,
                }),
                ..Run::default()
            };
            let ways = ways_to_continue(&run).into_iter();
            let ways = ways.map(|way| format!("{}: {}", way.does, way.command()));
            ways.collect::<Vec<_>>()
        };
        let walks_on = "and walks on from there, once that is fixed: ryectl resume g-1";
        assert_eq!(
            ways(RunStatus::Error, 2, true),
            [format!("repeats the 2 failed items of `checks` {walks_on}")]
        );
        assert_eq!(
            ways(RunStatus::Error, 0, false),
            [
                "continues where it failed, once that is fixed: ryectl resume g-1".to_owned(),
                format!("repeats `checks` {walks_on} --failed"),
            ]
        );
        assert_eq!(
            ways(RunStatus::CompletedWithErrors, 1, false),
            [
                "repeats only what failed, once that is fixed: ryectl resume g-1".to_owned(),
                format!("repeats the failed item of `checks` {walks_on} --failed"),
            ]
        );
    }
}
