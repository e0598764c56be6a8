//! `transcript`.

use rye_proto::v1;
use serde_json::{Value, json};

use super::ask;
use super::scripted::{Daemon, RUN, Script};

fn line(
    seq: u64,
    event_type: &str,
    payload: &Value,
    whole: Option<&Value>,
) -> v1::TranscriptResponse {
    let line = json!({"seq": seq, "timestamp": "T", "run_id": RUN, "event_type": event_type, "payload": payload, "prev": "0"});
    v1::TranscriptResponse {
        line: Some(v1::TranscriptLine {
            line: line.to_string(),
            payload_json: whole.map(Value::to_string).unwrap_or_default(),
        }),
        verdict: None,
    }
}

fn script(problem: &str) -> Script {
    let told = json!({"turn": 1, "source": "directive", "text": "Count\u{7}\nthem."});
    let spilled = json!({"object": "ab", "bytes": 9});
    let verdict = v1::TranscriptVerdict {
        problem: problem.to_owned(),
        events: 2,
        checkpoints: 1,
        bytes: 99,
    };
    Script {
        transcript: vec![
            line(1, "cognition_in", &told, None),
            line(2, "emitted", &spilled, Some(&json!({"name": "n"}))),
            line(2, "checkpoint", &json!({}), None),
            v1::TranscriptResponse {
                line: None,
                verdict: Some(verdict),
            },
        ],
        ..Script::default()
    }
}

const SHOWN: &str = "    1  T  cognition_in      turn 1, directive\n         Count\\u{7}\n         them.\n    2  T  emitted           {\"name\":\"n\"}\n";

#[tokio::test(flavor = "multi_thread")]
async fn transcript_text_has_all_events_and_json_exact_lines() {
    let daemon = Daemon::serve(script(""));
    let ended = ask(&daemon, &["transcript", RUN, "--tail", "7"]).await;
    assert_eq!(
        (ended.code, &*ended.stdout, &*ended.stderr),
        (Some(0), SHOWN, "")
    );
    let request = daemon.script.read.lock().unwrap().clone().unwrap();
    assert_eq!((request.tail, request.verify), (Some(7), false));

    let ended = ask(&daemon, &["transcript", RUN, "--verify"]).await;
    assert_eq!((ended.code, &*ended.stdout), (Some(0), SHOWN));
    let told = format!("{RUN}: 2 events and 1 signed checkpoints are what was written\n");
    assert_eq!(ended.stderr, told);
    let request = daemon.script.read.lock().unwrap().clone().unwrap();
    assert_eq!((request.tail, request.verify), (None, true));

    let ended = ask(&daemon, &["transcript", RUN, "--verify", "--json"]).await;
    let lines: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        lines[1]["payload"]["object"], "ab",
        "as it stands in the file"
    );
    assert_eq!(lines[2]["event_type"], "checkpoint");
    let verdict =
        json!({"intact": true, "problem": null, "events": 2, "checkpoints": 1, "bytes": 99});
    assert_eq!(lines[3], json!({"verdict": verdict}));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_transcript_names_position_and_exits_1() {
    for words in [vec!["transcript", RUN], vec!["transcript", RUN, "--verify"]] {
        let daemon = Daemon::serve(script("`/p/t.jsonl`: byte 9 is wrong"));
        let ended = ask(&daemon, &words).await;
        assert_eq!((ended.code, &*ended.stdout), (Some(1), SHOWN));
        assert!(ended.stderr.contains("byte 9 is wrong"), "{}", ended.stderr);
    }
}
