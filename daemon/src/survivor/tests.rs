use serde_json::{Value, json};

use super::messages::{Answer, Line, Request, RequestError, line};
use super::*;

#[test]
fn request_is_read_by_its_name_and_needs_its_fields() {
    let read = |line: Value| Request::read(line.to_string().as_bytes());
    for (line, expected) in [
        (
            json!({"v": 1, "request": "stop", "grace_ms": 5000}),
            Ok(Request::Stop { grace_ms: 5000 }),
        ),
        (json!({"v": 1, "request": "kill"}), Ok(Request::Kill)),
        (
            json!({"v": 2, "request": "status", "later": 1}),
            Ok(Request::Status),
        ),
        (json!({"v": 1, "request": "follow"}), Ok(Request::Follow)),
        (
            json!({"v": 1, "request": "resize"}),
            Err(RequestError::UnknownRequest),
        ),
        (
            json!({"v": 1, "request": "stop"}),
            Err(RequestError::InvalidRequest),
        ),
        (
            json!({"request": "kill"}),
            Err(RequestError::InvalidRequest),
        ),
        (json!({"v": 1}), Err(RequestError::InvalidRequest)),
        (json!([]), Err(RequestError::InvalidRequest)),
    ] {
        assert_eq!(read(line.clone()), expected, "{line}");
    }
    assert_eq!(Request::read(b"{"), Err(RequestError::InvalidRequest));
}

#[test]
fn messages_have_their_recorded_forms() {
    let text = |line: Vec<u8>| String::from_utf8(line).unwrap();
    assert_eq!(
        text(line(Request::Stop { grace_ms: 1 })),
        "{\"v\":1,\"request\":\"stop\",\"grace_ms\":1}\n"
    );
    assert_eq!(
        text(line(Answer::Error(RequestError::UnknownRequest))),
        "{\"v\":1,\"error\":\"unknown_request\"}\n"
    );
    let later = r#"{"v": 2, "output": "more", "later": 1}"#;
    let read: Line<Answer> = serde_json::from_str(later).unwrap();
    assert_eq!(read.v, 2);
    assert!(matches!(read.message, Answer::Output(_)));
}

#[test]
fn end_of_a_process_is_read_without_unknown_fields() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Status::read(directory.path()).unwrap(), None);
    let status = json!({
        "v": 1, "attempt": 2, "pid": 7, "signal": 9, "wall_ms": 10, "cpu_ms": 3, "stdout_bytes": 5, "stderr_bytes": 0,
        "receipt": {"processes": [], "survivors": [], "complete": true}, "later": "unknown",
    });
    std::fs::write(directory.path().join(messages::STATUS), status.to_string()).unwrap();
    let status = Status::read(directory.path()).unwrap().unwrap();
    assert_eq!((status.attempt, status.pid()), (2, 7));
    let exited = status.clone().into_exited();
    assert_eq!(exited.exit, rye_process::Exit::Signal(9));
    assert_eq!(exited.stdout.total, 5);
    status.write(directory.path()).unwrap();
    assert_eq!(Status::read(directory.path()).unwrap(), Some(status));
}

#[tokio::test]
async fn attempt_without_a_living_shim_has_ended_or_is_lost() {
    let state = tempfile::tempdir().unwrap();
    let (survivors, run) = (Survivors::new(state.path()), RunId::new("p-1-a").unwrap());
    assert_eq!(survivors.kept(&run).await, None);
    let directory = survivors.directory(&run);
    std::fs::create_dir_all(&directory).unwrap();
    let record = ShimRecord {
        pid: 0,
        ..ShimRecord::of_this_process(1, "t".to_owned(), None)
    };
    record.write(&directory).unwrap();
    assert_eq!(survivors.kept(&run).await, Some(1));
    assert!(matches!(
        survivors.find(&run, 1).await.unwrap(),
        Found::Lost
    ));
    // Another attempt holds the lock: this one is gone.
    let lock = ShimLock::take(&directory).unwrap().unwrap();
    assert!(matches!(
        survivors.find(&run, 2).await.unwrap(),
        Found::Lost
    ));
    assert_eq!(survivors.alive(), [run]);
    drop(lock);
    assert_eq!(survivors.alive(), []);
}
