//! Managed processes in every order of their events.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::id::{Epoch, ItemId, ItemRef};
use crate::machine::Observe as _;
use crate::model::event::{CancelRequested, ProcessExited, ProcessRestartRequested};
use crate::model::{
    Budget, EndCause, PortChoice, ProcessEnd, Readiness, RunEvent, Spec, Status, Suspension, Task,
};

fn tick(ms: i64) -> Tick {
    Tick {
        at: Timestamp::from_ms(1_700_000_000_000 + ms),
        up: Uptime::default().plus(Duration::from_millis(u64::try_from(ms).unwrap())),
    }
}

fn machine(restart: RestartPolicy) -> ProcessMachine {
    machine_with(restart, BTreeMap::new())
}

fn machine_with(restart: RestartPolicy, ports: BTreeMap<String, PortChoice>) -> ProcessMachine {
    let id = RunId::new("p-1-a").unwrap();
    let process = ProcessSpec {
        name: "server".into(),
        command: "./server".into(),
        args: None,
        cwd: None,
        env: BTreeMap::new(),
        ready: Readiness::Alive,
        ready_timeout_ms: 30_000,
        restart,
        max_restarts: 5,
        grace_ms: 5_000,
        isolation: None,
        mcp: None,
        resources: crate::model::Resources::default(),
        survive: false,
        ports,
        healthy: None,
        watch: Vec::new(),
    };
    let spec = Spec {
        project: "/p".into(),
        files: "/p/.ai".into(),
        principal: "uid:0".into(),
        ..Spec::new(
            Task::Process(Arc::new(process)),
            ItemRef::tool(ItemId::new("t/managed").unwrap()),
            id.clone(),
            Budget::open(id.clone()),
        )
    };
    let mut run = Run::create(id, tick(0).at, Arc::new(spec));
    let started = RunEvent::started(Epoch(1)).into();
    run.apply(tick(0).at, &started).unwrap();
    ProcessMachine::new(Arc::new(run), None)
}

/// Launches the next attempt at `ms`; returns its number.
fn launch(machine: &mut ProcessMachine, ms: i64) -> u32 {
    let Move::Call(events, call) = machine.next(tick(ms)) else {
        panic!("an attempt is due: {:?}", machine.run().work);
    };
    assert_eq!(events, []);
    let events = machine.start(tick(ms), &call, None, InputHashes::default());
    assert_eq!(names(&events), ["process_launched"]);
    assert_eq!(machine.next(tick(ms)), Move::Wait(Vec::new(), None));
    call.attempt
}

fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::name).collect()
}

fn end(code: i32) -> ProcessEnd {
    ProcessEnd {
        exit_code: Some(code),
        signal: None,
        cause: EndCause::Exited,
        wall_ms: 1,
        cpu_ms: 1,
        max_rss_kib: None,
        stdout_bytes: 0,
        stderr_bytes: 0,
        ended: Vec::new(),
    }
}

/// Ends the attempt in flight with `code` at `ms`.
fn exit(machine: &mut ProcessMachine, ms: i64, code: i32) -> Vec<Event> {
    let failure =
        (code != 0).then(|| Failure::permanent("process_exited", format!("exit code {code}")));
    let outcome = CallOutcome {
        failure,
        process: Some(Box::new(end(code))),
        ..CallOutcome::known(json!({}))
    };
    machine.conclude(tick(ms), Slot::Main, &outcome)
}

fn ready(machine: &mut ProcessMachine, ms: i64) -> Vec<Event> {
    let ready = Ready {
        by: ReadySign::Alive,
        after: Duration::from_millis(200),
    };
    machine.on_signal(tick(ms), Slot::Main, ready)
}

fn scheduled(events: &[Event]) -> &ProcessRestartScheduled {
    let [Event::Process(crate::model::ProcessEvent::ProcessRestartScheduled(scheduled))] = events
    else {
        panic!("no attempt follows: {events:?}");
    };
    scheduled
}

fn ask_restart(machine: &mut ProcessMachine, ms: i64) {
    let by = "uid:0".to_owned();
    let asked = ProcessRestartRequested { by }.into();
    machine.observe(tick(ms).at, &asked).unwrap();
}

#[test]
fn end_of_attempt_decides_by_policy_and_exit_code() {
    for (policy, code, status) in [
        (RestartPolicy::No, 0, Some(Status::Completed)),
        (RestartPolicy::No, 1, Some(Status::Error)),
        (RestartPolicy::OnFailure, 0, Some(Status::Completed)),
        (RestartPolicy::OnFailure, 1, None),
    ] {
        let mut machine = machine(policy);
        assert_eq!(launch(&mut machine, 1), 1);
        assert_eq!(names(&ready(&mut machine, 201)), ["process_ready"]);
        assert_eq!(ready(&mut machine, 202), [], "once for each attempt");
        let events = exit(&mut machine, 300, code);
        let run = machine.run();
        let ended = run.outcome().map(Outcome::status);
        assert_eq!(ended, status, "{policy:?} {code}: {events:?}");
        let last = run.process().unwrap().last_end.as_deref();
        assert_eq!(last.and_then(|end| end.exit_code), Some(code));
        if let Some(Status::Completed) = status {
            assert_eq!(run.output().unwrap()["exit_code"], 0);
        }
    }
}

#[test]
fn pauses_double_to_half_a_minute_and_sixth_failure_in_a_row_ends() {
    let mut machine = machine(RestartPolicy::OnFailure);
    let mut now = 0;
    for (number, pause) in (1..).zip([500, 1000, 2000, 4000, 8000]) {
        assert_eq!(launch(&mut machine, now), number);
        let events = exit(&mut machine, now, 1);
        let scheduled = scheduled(&events);
        assert_eq!(scheduled.due, tick(now + pause).at);
        assert_eq!(
            (scheduled.failures, scheduled.because),
            (number, RestartReason::Failed)
        );
        let due = tick(now + pause).up;
        assert_eq!(
            machine.next(tick(now + pause - 1)),
            Move::Wait(Vec::new(), Some(due))
        );
        now += pause;
    }
    assert_eq!(launch(&mut machine, now), 6);
    assert_eq!(names(&exit(&mut machine, now, 7)), ["process_ended"]);
    assert_eq!(machine.run().status(), Status::Error);
    assert_eq!(machine.run().process().unwrap().restarts(), 5);
    let pauses: Vec<u128> = (1..9).map(|failures| pause(failures).as_millis()).collect();
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
    assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
}

#[test]
fn attempt_that_was_up_for_long_ends_a_row_of_failures() {
    let stable = i64::try_from(STABLE.as_millis()).unwrap();
    for (up_for, failures) in [(stable - 1, 2), (stable, 1)] {
        let mut machine = machine(RestartPolicy::OnFailure);
        launch(&mut machine, 0);
        exit(&mut machine, 0, 1);
        launch(&mut machine, 500);
        ready(&mut machine, 700);
        let events = exit(&mut machine, 700 + up_for, 1);
        assert_eq!(scheduled(&events).failures, failures);
    }
}

#[test]
fn attempt_that_could_not_start_is_the_last() {
    let mut machine = machine(RestartPolicy::OnFailure);
    launch(&mut machine, 0);
    let failure = Failure::permanent("process_not_started", "no such program");
    let outcome = CallOutcome::never_started(failure);
    let events = machine.conclude(tick(1), Slot::Main, &outcome);
    assert_eq!(names(&events), ["process_ended"]);
}

#[test]
fn attempt_cut_off_by_the_daemon_is_replaced_or_interrupted() {
    for (policy, is_ready) in [
        (RestartPolicy::No, false),
        (RestartPolicy::No, true),
        (RestartPolicy::OnFailure, false),
        (RestartPolicy::OnFailure, true),
    ] {
        let mut before = machine(policy);
        launch(&mut before, 0);
        if is_ready {
            ready(&mut before, 200);
        }
        let mut machine = ProcessMachine::new(Arc::clone(before.run()), None);
        let Move::Note(events) = machine.next(tick(1000)) else {
            panic!("{policy:?}");
        };
        if policy == RestartPolicy::No {
            assert_eq!(names(&events), ["process_ended"]);
            assert_eq!(machine.run().failure().unwrap().code, "interrupted");
            assert_eq!(machine.next(tick(1000)), Move::End(Vec::new()));
        } else {
            let scheduled = scheduled(&events);
            assert_eq!(scheduled.because, RestartReason::Interrupted);
            assert_eq!(launch(&mut machine, 1000), 2);
        }
    }
}

#[test]
fn attempt_that_a_shim_keeps_is_followed_again_before_a_cancel() {
    for is_cancelled in [false, true] {
        let mut before = machine(RestartPolicy::No);
        launch(&mut before, 0);
        ready(&mut before, 200);
        if is_cancelled {
            let cause = "uid:0".to_owned();
            let asked = Event::from(CancelRequested { cause });
            before.observe(tick(300).at, &asked).unwrap();
        }
        let mut machine = ProcessMachine::new(Arc::clone(before.run()), Some(1));
        let Move::Call(events, call) = machine.next(tick(1000)) else {
            panic!("the attempt is not followed");
        };
        assert_eq!((events, call.attempt), (Vec::new(), 1));
        let events = machine.start(tick(1000), &call, None, InputHashes::default());
        assert_eq!(events, []);
        assert_eq!(machine.next(tick(1000)), Move::Wait(Vec::new(), None));
        // It was ready before.
        assert_eq!(ready(&mut machine, 1001), []);
        if is_cancelled {
            machine.abandon(Slot::Main);
            let Move::End(events) = machine.next(tick(1002)) else {
                panic!("the process was stopped");
            };
            assert_eq!(names(&events), ["process_ended"]);
        } else {
            let events = exit(&mut machine, 2000, 0);
            assert_eq!(names(&events), ["process_ended"]);
        }
    }
}

#[test]
fn shim_of_another_attempt_keeps_nothing() {
    let mut before = machine(RestartPolicy::OnFailure);
    launch(&mut before, 0);
    let mut machine = ProcessMachine::new(Arc::clone(before.run()), Some(7));
    let Move::Note(events) = machine.next(tick(1000)) else {
        panic!("the attempt is gone");
    };
    assert_eq!(scheduled(&events).because, RestartReason::Interrupted);
}

#[test]
fn pause_goes_on_after_a_restart_of_the_daemon_by_the_wall_clock() {
    let mut before = machine(RestartPolicy::OnFailure);
    launch(&mut before, 0);
    exit(&mut before, 0, 1);
    let mut machine = ProcessMachine::new(Arc::clone(before.run()), None);
    let due = tick(500).up;
    assert_eq!(machine.next(tick(100)), Move::Wait(Vec::new(), Some(due)));
    assert_eq!(launch(&mut machine, 500), 2);
}

#[test]
fn requested_restart_stops_the_attempt_once_and_has_no_pause() {
    let mut machine = machine(RestartPolicy::No);
    launch(&mut machine, 0);
    ready(&mut machine, 200);
    assert_eq!(machine.useless(), []);
    ask_restart(&mut machine, 300);
    assert_eq!(machine.useless(), [Slot::Main]);
    ask_restart(&mut machine, 301);
    let events = machine.stopped(tick(400), Slot::Main);
    assert_eq!(scheduled(&events).because, RestartReason::Requested);
    assert_eq!(launch(&mut machine, 400), 2);
    // A request before the new attempt is ready is served by it.
    ask_restart(&mut machine, 401);
    assert_eq!(machine.useless(), []);
    ready(&mut machine, 600);
    assert_eq!(
        machine.run().process().unwrap().requested,
        RequestedRestart::None
    );
    ask_restart(&mut machine, 700);
    assert_eq!(machine.useless(), [Slot::Main], "another one");
    // It ended by itself before it was stopped.
    let events = exit(&mut machine, 701, 0);
    assert_eq!(scheduled(&events).because, RestartReason::Requested);
    assert_eq!(launch(&mut machine, 701), 3);
}

#[test]
fn requested_restart_ends_a_pause() {
    let mut machine = machine(RestartPolicy::OnFailure);
    launch(&mut machine, 0);
    exit(&mut machine, 0, 1);
    assert_eq!(
        machine.next(tick(1)),
        Move::Wait(Vec::new(), Some(tick(500).up))
    );
    ask_restart(&mut machine, 2);
    assert_eq!(launch(&mut machine, 3), 2);
}

#[test]
fn stop_wins_over_a_requested_restart_and_ends_in_every_stage() {
    let cancel = |machine: &mut ProcessMachine, ms| {
        let cause = "uid:7".to_owned();
        let asked = CancelRequested { cause }.into();
        machine.observe(tick(ms).at, &asked).unwrap();
    };
    for stage in ["new", "starting", "up", "paused", "restarting"] {
        let mut machine = machine(RestartPolicy::OnFailure);
        if stage != "new" {
            launch(&mut machine, 0);
        }
        match stage {
            "up" => drop(ready(&mut machine, 200)),
            "paused" => drop(exit(&mut machine, 200, 1)),
            "restarting" => ask_restart(&mut machine, 200),
            _ => {}
        }
        cancel(&mut machine, 300);
        if machine.run().process().unwrap().attempt().is_some() {
            let exited = ProcessExited {
                step: 1,
                slot: Slot::Main,
                end: end(143),
            };
            machine.observe(tick(301).at, &exited.into()).unwrap();
            machine.abandon(Slot::Main);
        }
        let Move::End(events) = machine.next(tick(302)) else {
            panic!("{stage}");
        };
        assert_eq!(names(&events), ["process_ended"], "{stage}");
        assert_eq!(machine.run().status(), Status::Cancelled, "{stage}");
        let has_end = machine.run().process().unwrap().last_end.is_some();
        assert_eq!(has_end, stage != "new", "{stage}");
        assert!(
            machine
                .observe(
                    tick(303).at,
                    &ProcessRestartRequested { by: "x".into() }.into()
                )
                .is_err()
        );
    }
}

#[test]
fn process_is_never_suspended_on_request() {
    let mut machine = machine(RestartPolicy::No);
    machine.hold(Suspension::new(crate::model::SuspendReason::User));
    assert_eq!(launch(&mut machine, 0), 1);
}

/// Random orders of ends, reports, requests and restarts of the daemon.
#[test]
fn one_attempt_at_a_time_in_every_order() {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    for _ in 0..500 {
        let mut machine = machine(RestartPolicy::OnFailure);
        let (mut now, mut launched) = (0, 0);
        for _ in 0..60 {
            now += i64::try_from(next(20_000)).unwrap();
            match machine.next(tick(now)) {
                Move::Call(events, call) => {
                    assert_eq!(events, []);
                    assert_eq!(call.attempt, launched + 1, "attempts follow each other");
                    launched += 1;
                    machine.start(tick(now), &call, None, InputHashes::default());
                }
                Move::Note(events) => assert_eq!(events.len(), 1),
                Move::Wait(_, until) => {
                    let in_flight = machine.run().process().unwrap().attempt().is_some();
                    assert_eq!(in_flight, until.is_none());
                    match next(6) {
                        0 => drop(ready(&mut machine, now)),
                        1 => ask_restart(&mut machine, now),
                        2 => machine = ProcessMachine::new(Arc::clone(machine.run()), None),
                        3 if in_flight && !machine.useless().is_empty() => {
                            machine.stopped(tick(now), Slot::Main);
                        }
                        4 if in_flight => drop(exit(&mut machine, now, 1)),
                        _ => {}
                    }
                }
                Move::End(_) => break,
                other @ (Move::Query(..) | Move::Suspended(_)) => panic!("{other:?}"),
            }
            let state = machine.run().process().unwrap();
            assert_eq!(state.attempts, launched);
            assert!(state.failures <= 6);
        }
    }
}

/// Answers the query for ports by `port`, and launches the attempt at `ms`; returns the query, and the parameters of the
/// call.
fn launch_at(machine: &mut ProcessMachine, ms: i64, port: u16) -> (PortQuery, AttemptPorts) {
    let Move::Query(events, query) = machine.next(tick(ms)) else {
        panic!("ports are chosen first: {:?}", machine.run().work);
    };
    assert_eq!(events, []);
    let chosen = Ports::from([("http".to_owned(), port)]);
    assert_eq!(machine.answered(tick(ms), Ok(chosen)), []);
    let Move::Call(_, call) = machine.next(tick(ms)) else {
        panic!("an attempt is due: {:?}", machine.run().work);
    };
    let events = machine.start(tick(ms), &call, None, InputHashes::default());
    assert_eq!(names(&events), ["process_launched"]);
    (*query, AttemptPorts::of(&call.params))
}

fn fail_by(machine: &mut ProcessMachine, ms: i64, code: &str) -> Vec<Event> {
    let outcome = CallOutcome {
        failure: Some(Failure::permanent(code, "m")),
        process: Some(Box::new(end(0))),
        ..CallOutcome::known(json!({}))
    };
    machine.conclude(tick(ms), Slot::Main, &outcome)
}

fn with_ports(restart: RestartPolicy) -> ProcessMachine {
    let ports = [
        ("http".to_owned(), PortChoice::Auto),
        ("admin".to_owned(), PortChoice::Fixed(9000)),
    ];
    machine_with(restart, ports.into())
}

#[test]
fn ports_are_chosen_before_an_attempt_and_tried_first_by_the_next() {
    let mut machine = with_ports(RestartPolicy::OnFailure);
    let (query, ports) = launch_at(&mut machine, 1, 20_000);
    assert_eq!(query.auto, ["http"]);
    assert_eq!(query.preferred, Ports::new());
    let numbers = [("admin".to_owned(), 9000), ("http".to_owned(), 20_000)];
    assert_eq!(ports.numbers, numbers.into());
    assert!(ports.can_move);
    assert_eq!(machine.run().process().unwrap().ports, ports.numbers);
    scheduled(&exit(&mut machine, 2, 1));
    let (query, _) = launch_at(&mut machine, 1000, 20_000);
    assert_eq!(query.preferred, Ports::from([("http".to_owned(), 20_000)]));
    let mut recovered = ProcessMachine::new(Arc::clone(machine.run()), None);
    let Move::Note(noted) = recovered.next(tick(2000)) else {
        panic!("another attempt follows");
    };
    assert_eq!(names(&noted), ["process_restart_scheduled"]);
    let (query, _) = launch_at(&mut recovered, 2000, 20_000);
    assert_eq!(query.preferred, Ports::from([("http".to_owned(), 20_000)]));
}

#[test]
fn process_moves_once_to_another_port_whatever_its_policy() {
    for policy in RestartPolicy::ALL {
        let mut machine = with_ports(policy);
        launch_at(&mut machine, 1, 20_000);
        let events = fail_by(&mut machine, 2, PORT_FOREIGN);
        let next = scheduled(&events);
        assert_eq!(next.because, RestartReason::PortForeign);
        assert_eq!((next.attempt, next.due), (2, tick(2).at));
        let (query, ports) = launch_at(&mut machine, 3, 20_001);
        assert_eq!(query.preferred, Ports::new(), "not the lost one");
        assert!(!ports.can_move);
        let events = fail_by(&mut machine, 4, PORT_FOREIGN);
        let is_over = policy == RestartPolicy::No;
        assert_eq!(machine.run().outcome().is_some(), is_over, "{events:?}");
    }
}

#[test]
fn process_without_a_free_port_fails() {
    let mut machine = with_ports(RestartPolicy::OnFailure);
    let Move::Query(..) = machine.next(tick(1)) else {
        panic!("ports are chosen first");
    };
    let none = Failure::permanent("no_free_port", "none");
    let events = machine.answered(tick(1), Err(none));
    assert_eq!(names(&events), ["process_ended"]);
    assert_eq!(machine.run().failure().unwrap().code, "no_free_port");
    assert_eq!(machine.next(tick(2)), Move::End(Vec::new()));
}
