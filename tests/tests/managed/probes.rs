//! Signs by which a process is ready, and probes of its health.

use std::fs;

use rye_tests::{World, until};
use serde_json::{Value, json};

use super::{call, events, handle, status, status_when, stop};

/// A server whose answers follow the file `mode`: a status, `redirect`, `endless` or `silent`.
const SERVER: &str = r#"
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        mode = open("mode").read()
        if mode == "silent":
            time.sleep(60)
        status = 302 if mode == "redirect" else 200 if mode == "endless" else int(mode)
        self.send_response(status)
        if mode == "redirect":
            self.send_header("location", "http://127.0.0.1:%s/fine" % os.environ["PORT_HTTP"])
        self.end_headers()
        try:
            while mode == "endless":
                self.wfile.write(b"x" * 65536)
        except OSError:
            pass
    def log_message(self, *rest):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT_HTTP"])), Handler).serve_forever()
"#;

fn mode(world: &World, mode: &str) {
    fs::write(world.project().join("mode.new"), mode).unwrap();
    fs::rename(
        world.project().join("mode.new"),
        world.project().join("mode"),
    )
    .unwrap();
}

/// Starts the server with more keys.
fn serve(world: &World, more: &Value) -> Value {
    fs::write(world.project().join("serve.py"), SERVER).unwrap();
    let mut begin = json!({
        "action": "start", "command": "exec python3 serve.py", "ports": {"http": "auto"},
        "ready": {"http": {"path": "/health", "port": "http"}},
    });
    let more = more.as_object().unwrap().clone();
    begin.as_object_mut().unwrap().extend(more);
    call(world, &begin)
}

#[test]
fn server_is_ready_by_its_answer_only_and_may_be_late() {
    let world = World::new();
    let _daemon = world.start("");
    for (name, answer, code, status) in [
        ("busy", "503", "http_status", json!(503)),
        ("elsewhere", "redirect", "http_status", json!(302)),
        ("silent", "silent", "http_failed", Value::Null),
    ] {
        mode(&world, answer);
        let late = serve(&world, &json!({"name": name, "ready_timeout": 3}));
        assert_eq!(
            (&late["ready"], &late["running"]),
            (&json!(false), &json!(true))
        );
        let why = &late["why"];
        assert_eq!(
            (&why["code"], &why["status"]),
            (&json!(code), &status),
            "{late}"
        );
        assert_eq!(why["port"], late["ports"]["http"]);
        mode(&world, "200");
        let handle = handle(&late);
        let ready = status_when(&world, &handle, "ready", |status| status["ready"] == true);
        assert_eq!(ready["why"], Value::Null);
        stop(&world, &handle);
    }
    mode(&world, "endless");
    let ready = serve(&world, &json!({"name": "endless"}));
    assert_eq!(ready["ready"], true, "{ready}");
    stop(&world, &handle(&ready));
}

#[test]
fn unhealthy_server_is_stopped_and_started_again() {
    let world = World::new();
    let _daemon = world.start("");
    mode(&world, "200");
    let health = json!({"http": {"port": "http"}, "every": 1, "failures": 2});
    let server = serve(
        &world,
        &json!({"name": "sick", "healthy": health, "restart": "on-failure"}),
    );
    let server = handle(&server);
    status_when(&world, &server, "a good probe", |status| {
        status["healthy"] == true
    });
    mode(&world, "500");
    let restarting = until("the restart", || {
        let status = status(&world, &server);
        (status["cause"] == "unhealthy").then_some(status)
    });
    assert_eq!(restarting["status"], "restarting");
    mode(&world, "200");
    let well = status_when(&world, &server, "ready again", |status| {
        status["ready"] == true
    });
    assert_eq!(well["restarts"], 1);
    stop(&world, &server);

    mode(&world, "200");
    let mortal = serve(
        &world,
        &json!({"name": "mortal", "healthy": {"port": "http", "every": 1, "failures": 1}}),
    );
    let mortal = handle(&mortal);
    status_when(&world, &mortal, "a good probe", |status| {
        status["healthy"] == true
    });
    stop(&world, &mortal);
}

#[test]
fn process_without_a_restart_ends_as_unhealthy() {
    let world = World::new();
    let _daemon = world.start("");
    mode(&world, "200");
    let health = json!({"http": {"port": "http"}, "every": 1, "failures": 1});
    let server = handle(&serve(&world, &json!({"name": "sick", "healthy": health})));
    mode(&world, "500");
    let ended = status_when(&world, &server, "its end", |status| {
        status["running"] == false
    });
    assert_eq!(ended["cause"], "unhealthy", "{ended}");
    assert_eq!(world.record(&server)["error"]["code"], "unhealthy");
    let events = events(&world, &server);
    assert_eq!(events.last().map(String::as_str), Some("process_ended"));
}
