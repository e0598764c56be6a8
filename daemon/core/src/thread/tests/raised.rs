//! Threads whose limits are raised.

use super::stage::Met;
use super::*;
use crate::model::Raised;
use crate::model::event::RunResumed;

fn resumed(raised: Raised) -> RunResumed {
    let epoch = Epoch::default();
    RunResumed { epoch, raised }
}

#[test]
fn raised_thread_continues_to_next_limit() {
    type Limit = fn(&mut Spec);
    let cases: [(Limit, Raised); 3] = [
        (
            |spec| spec.limits.turns = Some(1),
            Raised {
                max_turns: Some(2),
                ..Raised::default()
            },
        ),
        (
            |spec| spec.limits.tokens = Some(1100),
            Raised {
                max_tokens: Some(100_000),
                ..Raised::default()
            },
        ),
        (
            |spec| spec.limits.duration_ms = Some(5000),
            Raised {
                max_duration_ms: Some(6001),
                ..Raised::default()
            },
        ),
    ];
    for (limit, raised) in cases {
        let mut stage = Stage::new(terms(&directive("<execute>*</execute>", "")), limit);
        assert_eq!(stage.play(), Met::Model);
        stage.now.at = stage.now.at.plus(Duration::from_secs(6));
        stage.say(message_signals("", &[("c1", "nothing", json!({}))]));
        assert_eq!(stage.play(), Met::Rests, "{raised:?}");
        assert!(stage.run().check_raise(&Raised::default()).is_err());
        assert_eq!(stage.run().check_raise(&raised), Ok(()));
        stage.crash();
        stage.others(resumed(raised));
        stage.crash();
        assert_eq!(stage.play(), Met::Model, "{raised:?}");
        stage.assert_replay();
    }
}

#[test]
fn unraised_limits_stay() {
    let mut stage = Stage::new(terms(&directive("", "")), |spec| {
        spec.limits.turns = Some(1);
        spec.limits.tokens = Some(100_000);
    });
    stage.play();
    stage.say(message_signals("", &[("c1", "nothing", json!({}))]));
    stage.play();
    for turns in [2, 3] {
        stage.others(resumed(Raised {
            max_turns: Some(turns),
            ..Raised::default()
        }));
        assert_eq!(stage.play(), Met::Model);
        stage.say(message_signals("", &[("c2", "nothing", json!({}))]));
        assert_eq!(stage.play(), Met::Rests);
        let why = stage.run().suspension().unwrap();
        assert_eq!(why.max, Some(turns.to_string()));
    }
    let limits = stage.run().thread().unwrap().limits;
    assert_eq!((limits.turns, limits.tokens), (Some(3), Some(100_000)));
    stage.assert_replay();
}
