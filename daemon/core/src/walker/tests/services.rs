//! Services of a graph, and waits for processes.

use super::*;
use crate::model::StepStatus;

const CONFIG: &str = "
  start: web
  nodes:
    web: {type: service, command: serve, ports: {http: auto}, next: boot}
    boot:
      type: wait
      process: '${services.web.handle}'
      line: 'in (?<ms>[0-9]+)'
      for: 1m
      assign: {ms: '${result.groups.ms}'}
      next: tests
    tests: {action: {item_id: rye/bash, params: {command: 'port ${services.web.ports.http}'}}, next: done}
    done: {type: return, output: {ms: '${state.ms}'}}
";

fn handle(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

fn walker_of(run: Arc<Run>, graph: &Arc<Graph>) -> Walker {
    let facts = |_: &RunId| {
        Some(ServiceFacts {
            ports: [("http".to_owned(), 20_000)].into(),
            running: true,
            ready: true,
        })
    };
    Walker::new(Arc::clone(graph), policy(), run).with_services(ServiceSource::new(facts))
}

/// Takes moves until one that is not a note.
fn settle(walker: &mut Walker, ms: i64) -> Move<ServiceQuery> {
    loop {
        let next = walker.next(tick(ms));
        if !matches!(next, Move::Note(_)) {
            return next;
        }
    }
}

/// The call that is due, started.
fn call(walker: &mut Walker, ms: i64) -> Call {
    let Move::Call(_, call) = settle(walker, ms) else {
        panic!("a call is due: {:?}", walker.run().work);
    };
    walker.start(tick(ms), &call, None, InputHashes::default());
    *call
}

fn succeed(walker: &mut Walker, ms: i64, result: Value) -> Vec<Event> {
    walker.conclude(tick(ms), Slot::Main, &CallOutcome::known(result))
}

fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::name).collect()
}

/// A walker behind the service `p-1-a`, in the wait for a line.
fn waiting() -> (Walker, Arc<Graph>, Call) {
    let graph = graph(CONFIG);
    let mut walker = walker_of(Arc::new(run(json!({}), None)), &graph);
    let start = call(&mut walker, 1);
    assert_eq!(
        start.item.id.as_str(),
        "rye/agent/threads/managed_subprocess"
    );
    assert_eq!(
        Value::Object(start.params),
        json!({"action": "start", "must_be_ready": true, "restart": "on-failure", "command": "serve",
            "ports": {"http": "auto"}, "name": "web"})
    );
    let started = json!({"handle_id": "p-1-a", "pid": 7, "ports": {"http": 20_000}, "ready": true, "after_ms": 5, "x": 1});
    let events = succeed(&mut walker, 2, started);
    assert_eq!(names(&events), ["service_started", "step_completed"]);
    let Event::Graph(GraphEvent::StepCompleted(done)) = &events[1] else {
        panic!("{events:?}");
    };
    assert_eq!(done.status, StepStatus::Service);
    assert_eq!(
        **done.result.as_ref().unwrap(),
        json!({"handle": "p-1-a", "pid": 7, "ports": {"http": 20_000}, "ready": true, "after_ms": 5})
    );
    let wait = call(&mut walker, 3);
    (walker, graph, wait)
}

#[test]
fn wait_begins_at_the_first_line_and_continues_after_the_last_match() {
    let (mut walker, graph, wait) = waiting();
    assert_eq!(
        Value::Object(wait.params),
        json!({"action": "wait", "handle_id": "p-1-a", "for": "line", "pattern": "in (?<ms>[0-9]+)", "timeout": 60.0,
            "since": "attempt"})
    );
    let found = json!({"handle_id": "p-1-a", "line": "in 42", "stream": "stdout", "at": "t", "groups": {"ms": "42"},
        "cursor": "1.9"});
    let events = succeed(&mut walker, 4, found);
    assert_eq!(names(&events), ["process_waited", "step_completed"]);
    let state = walker.run().graph().unwrap();
    assert_eq!(state.vars.get("ms"), Some(&json!("42")));
    assert_eq!(&*state.positions[&handle("p-1-a")], "1.9");
    let tests = call(&mut walker, 5);
    assert_eq!(tests.params["command"], "port 20000");
    drop(graph);
}

#[test]
fn services_are_stopped_before_the_terminal_event() {
    let (mut walker, graph, _) = waiting();
    succeed(&mut walker, 4, json!({"groups": {"ms": "1"}}));
    call(&mut walker, 5);
    succeed(&mut walker, 6, json!({}));
    let stop = ServiceQuery::Stop(vec![handle("p-1-a")]);
    let Move::Query(events, query) = settle(&mut walker, 7) else {
        panic!("the service is stopped first");
    };
    assert_eq!(
        (names(&events).last(), *query),
        (Some(&"graph_ending"), stop.clone())
    );
    // A crash there is followed by the end, not by a restored service.
    let mut next = walker_of(Arc::clone(walker.run()), &graph);
    assert_eq!(
        settle(&mut next, 8),
        Move::Query(Vec::new(), Box::new(stop))
    );
    let left = vec!["web".to_owned()];
    assert_eq!(next.answered(tick(9), ServiceAnswer::Stopped { left }), []);
    let Move::End(events) = settle(&mut next, 10) else {
        panic!("the run ends");
    };
    assert_eq!(names(&events), ["warning", "graph_completed"]);
}

#[test]
fn service_is_up_before_a_step_is_repeated_in_another_life() {
    let (walker, graph, _) = waiting();
    let mut next = walker_of(Arc::clone(walker.run()), &graph);
    let restore = ServiceQuery::Restore(vec![("web".into(), handle("p-1-a"))]);
    assert_eq!(
        settle(&mut next, 5),
        Move::Query(Vec::new(), Box::new(restore))
    );
    let started = vec![("web".into(), handle("p-2-a"))];
    let answer = ServiceAnswer::Restored {
        started,
        lost: None,
    };
    assert_eq!(names(&next.answered(tick(6), answer)), ["service_started"]);
    let repeated = call(&mut next, 7);
    assert_eq!(repeated.params["handle_id"], "p-2-a");
    // Once in each life.
    assert!(matches!(settle(&mut next, 8), Move::Wait(..)));
}

#[test]
fn lost_service_fails_the_step_at_hand() {
    let (walker, graph, _) = waiting();
    let mut next = walker_of(Arc::clone(walker.run()), &graph);
    let Move::Query(..) = settle(&mut next, 5) else {
        panic!("services are restored first");
    };
    let answer = ServiceAnswer::Restored {
        started: Vec::new(),
        lost: Some(("web".into(), "gone".into())),
    };
    next.answered(tick(6), answer);
    settle(&mut next, 7);
    let stopped = ServiceAnswer::Stopped { left: Vec::new() };
    next.answered(tick(8), stopped);
    settle(&mut next, 9);
    let failure = next.run().failure().unwrap();
    assert_eq!(
        (failure.code.as_ref(), failure.node.as_deref()),
        ("service_lost", Some("boot"))
    );
    assert!(
        failure.message.contains("`web` is not up: gone"),
        "{failure:?}"
    );
}
