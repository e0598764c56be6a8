//! Ports that processes are given.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use rye_tests::{World, until};
use serde_json::{Value, json};

use super::{call, envelope, events, handle, printed, start, status, status_when, stop};

/// A server of the project's files on the port `http`.
const SERVER: &str = "exec python3 -m http.server --bind 127.0.0.1 {port.http}";

fn port(answer: &Value) -> u16 {
    let port = answer["ports"]["http"].as_u64();
    let port = port.unwrap_or_else(|| panic!("no port in {answer}"));
    port.try_into().unwrap()
}

/// Status line of the answer to a request.
fn get(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn two_servers_have_a_port_each_which_a_restart_and_the_next_daemon_keep() {
    let world = World::new();
    let daemon = world.start("");
    let server = |name: &str| {
        let begin = json!({
            "action": "start", "name": name, "command": format!("echo $PORT_HTTP; {SERVER}"),
            "ports": {"http": "auto"}, "ready": {"http": {"port": "http"}}, "restart": "on-failure",
        });
        call(&world, &begin)
    };
    let (one, two) = (server("one"), server("two"));
    assert_eq!((&one["ready"], &two["ready"]), (&json!(true), &json!(true)));
    let (first, second) = (port(&one), port(&two));
    assert_ne!(first, second);
    for port in [first, second] {
        assert!((20_000..=32_767).contains(&port), "{port}");
        assert!(get(port).contains("200"));
    }
    let one = handle(&one);
    assert_eq!(printed(&world, &one)[0], first.to_string());
    let shown = world.ryectl("proc status --json").arg(&one).ok().json();
    assert_eq!(shown["listening"][0]["port"], first);
    assert_eq!(shown["listening"][0]["addr"], "127.0.0.1");
    assert!(shown["memory_bytes"].as_u64().unwrap() > 1 << 20, "{shown}");
    assert!(shown["cpu_ms"].is_u64(), "{shown}");

    let restarted = world.ryectl("proc restart --json").arg(&one).ok().json();
    assert_eq!(
        (port(&restarted), &restarted["ready"]),
        (first, &json!(true))
    );
    assert!(get(first).contains("200"));
    daemon.kill();
    let _daemon = world.start("");
    let again = status_when(&world, &one, "the server after a restart", |status| {
        status["ready"] == true
    });
    assert_eq!(port(&again), first);
    assert!(get(first).contains("200"));
    stop(&world, &one);
    TcpListener::bind(("127.0.0.1", first)).unwrap();
}

#[test]
fn port_of_a_stranger_is_left_once_and_is_not_ready() {
    let world = World::new();
    let _daemon = world.start("");
    // The process listens nowhere; this test does instead.
    let begin = json!({
        "command": "echo port $PORT_HTTP; exec sleep 60", "name": "victim", "ports": {"http": "auto"},
        "ready_port": "http", "ready_timeout": 0.1,
    });
    let victim = start(&world, begin);
    let closed = status(&world, &victim);
    assert_eq!(
        (&closed["ready"], &closed["why"]["code"]),
        (&json!(false), &json!("port_closed"))
    );
    let first = port(&closed);
    let _stranger = TcpListener::bind(("127.0.0.1", first)).unwrap();
    let moved = status_when(&world, &victim, "another port", |status| {
        status["running"] == true && status["restarts"] == 1
    });
    let second = port(&moved);
    assert_ne!(first, second);
    let _stranger = TcpListener::bind(("127.0.0.1", second)).unwrap();
    // The reason is that of the time limit, which is over by now or soon.
    until("not ready", || {
        let status = status(&world, &victim);
        (status["why"]["code"].is_string()).then_some(())
    });
    let restarted = world.ryectl("proc restart --json").arg(&victim).ok().json();
    assert_eq!(restarted["ready"], false);
    assert_ne!(port(&restarted), second, "the stranger has it");
    let events = events(&world, &victim);
    assert!(events.iter().any(|event| event == "process_unready"));
    stop(&world, &victim);
}

#[test]
fn stranger_on_a_fixed_port_is_named() {
    let world = World::new();
    let _daemon = world.start("");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let begin = |command: &str| {
        json!({
            "action": "start", "command": command, "name": "fixed", "ports": {"http": port},
            "ready": {"port": "http"}, "ready_timeout": 20,
        })
    };
    let refused = envelope(&world, &begin(SERVER));
    assert_eq!(refused["metadata"]["code"], "port_in_use", "{refused}");
    drop(taken);
    // Its port is taken once it runs.
    let world_of = std::thread::scope(|scope| {
        let started = scope.spawn(|| call(&world, &begin("echo up; exec sleep 60")));
        let handle = until("the process", || {
            let listed = call(&world, &json!({"action": "list"}));
            let first = &listed["processes"][0];
            (first["pid"].is_i64()).then(|| handle(first))
        });
        until("its output", || {
            (!printed(&world, &handle).is_empty()).then_some(())
        });
        let _stranger = TcpListener::bind(("127.0.0.1", port)).unwrap();
        started.join().unwrap()
    });
    let why = &world_of["why"];
    assert_eq!(
        (&world_of["ready"], &why["code"], &why["port"]),
        (&json!(false), &json!("port_foreign"), &json!(port))
    );
    assert_eq!(why["pid"], std::process::id());
    stop(&world, &handle(&world_of));
}

#[test]
fn range_that_is_used_up_is_named_and_bounds_hold() {
    let world = World::new();
    let _daemon = world.start("ports: {range: 1-1}\n");
    let taken = TcpListener::bind("127.0.0.1:1");
    let request = |ports: Value| json!({"action": "start", "command": "sleep 60", "ports": ports});
    if taken.is_ok() {
        let refused = envelope(&world, &request(json!({"a": "auto"})));
        assert_eq!(refused["metadata"]["code"], "no_free_port", "{refused}");
        let text = refused["error"].as_str().unwrap();
        assert!(
            text.contains("1-1") && text.contains("`ports.range`"),
            "{text}"
        );
    }
    let many: Value = (0..17).map(|n| (format!("p{n}"), json!("auto"))).collect();
    for (wrong, named) in [
        (many, "`ports` has at most 16"),
        (json!({"a": 65_536}), "`ports.a`"),
    ] {
        let refused = envelope(&world, &request(wrong));
        let text = refused["error"].as_str().unwrap();
        assert!(text.contains(named), "{text}");
    }
}
