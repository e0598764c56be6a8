//! The limits with which a run may be resumed.

use super::*;
use crate::model::event::RunResumed;
use crate::model::thread::{At, NextTurn, ThreadLimits as Most, ThreadState, Used};

/// A suspended thread that used 3 turns, 90 tokens and 5000 ms. Its limits are 10, 1000 and 9000 unless `limit` changes
/// them; `code` is the code of its suspension.
fn suspended_at(code: Option<&str>, limit: impl FnOnce(&mut Most)) -> Run {
    let mut limits = Most {
        turns: Some(10),
        tokens: Some(1000),
        duration_ms: Some(9000),
    };
    limit(&mut limits);
    let mut run = Run::create(
        RunId::new("t-1-a").unwrap(),
        Timestamp::default(),
        spec(RunKind::Thread),
    );
    run.work = Work::Thread(ThreadState {
        at: At::Before(Box::new(NextTurn::turn(4))),
        used: Used {
            turns: 3,
            tokens: 90,
            active_ms: 5000,
        },
        limits,
        ..ThreadState::default()
    });
    let reason = code.map_or(SuspendReason::User, |_| SuspendReason::Limit);
    run.life = Life::Suspended(Arc::new(Suspension {
        code: code.map(str::to_owned),
        ..Suspension::new(reason)
    }));
    run
}

fn raise(limit: Raisable, to: u32) -> Raised {
    let mut raised = Raised::default();
    match limit {
        Raisable::Steps => raised.max_steps = Some(to),
        Raisable::Turns => raised.max_turns = Some(to),
        Raisable::Tokens => raised.max_tokens = Some(to.into()),
        Raisable::Duration => raised.max_duration_ms = Some(to.into()),
        Raisable::Spawns => raised.max_spawns = Some(to),
        Raisable::Depth => raised.max_depth = Some(to),
    }
    raised
}

#[test]
fn a_new_limit_leaves_room_beyond_what_is_used() {
    let run = suspended_at(None, |_| {});
    for (limit, used, told) in [
        (Raisable::Turns, 3, "it has taken 3 turns"),
        (Raisable::Tokens, 90, "it has used 90 tokens"),
        (Raisable::Duration, 5000, "its turns have taken 5000 ms"),
    ] {
        for too_low in [0, used - 1, used] {
            let refused = run.check_raise(&raise(limit, too_low)).unwrap_err();
            assert!(refused.to_string().starts_with(told), "{refused}");
        }
        assert_eq!(run.check_raise(&raise(limit, used + 1)), Ok(()));
    }
    assert_eq!(run.check_raise(&Raised::default()), Ok(()));
}

#[test]
fn a_thread_at_its_limit_needs_a_higher_one() {
    type Limit = fn(&mut Most);
    let reached: [(Raisable, Limit, u32); 3] = [
        (Raisable::Turns, |most| most.turns = Some(3), 3),
        (Raisable::Tokens, |most| most.tokens = Some(80), 90),
        (
            Raisable::Duration,
            |most| most.duration_ms = Some(5000),
            5000,
        ),
    ];
    for (limit, lower, used) in reached {
        for code in [None, Some(limit.code())] {
            let run = suspended_at(code, lower);
            let refused = run.check_raise(&Raised::default());
            assert!(refused.is_err(), "{limit:?} still stands");
            assert!(run.check_raise(&raise(limit, used)).is_err());
            assert_eq!(run.check_raise(&raise(limit, used + 1)), Ok(()));
        }
    }
    // The tokens left were fewer than the smallest answer needs; the usage does not show that.
    let run = suspended_at(Some("tokens_exceeded"), |most| most.tokens = Some(100));
    assert!(run.check_raise(&Raised::default()).is_err());
    assert!(run.check_raise(&raise(Raisable::Tokens, 100)).is_err());
    assert_eq!(run.check_raise(&raise(Raisable::Tokens, 101)), Ok(()));
}

#[test]
fn a_turn_that_has_begun_may_end_although_it_is_the_last() {
    let mut run = suspended_at(None, |most| most.turns = Some(3));
    if let Work::Thread(state) = &mut run.work {
        state.at = At::Composing;
    }
    assert_eq!(run.check_raise(&Raised::default()), Ok(()));
}

#[test]
fn a_limit_that_the_kind_does_not_have_is_refused_by_name() {
    let kinds = [
        (
            RunKind::Graph,
            vec!["turns", "tokens", "duration", "spawns"],
        ),
        (
            RunKind::Tool,
            vec!["steps", "turns", "tokens", "duration", "spawns", "depth"],
        ),
        (RunKind::Thread, vec!["steps", "spawns"]),
    ];
    for (kind, lacks) in kinds {
        let run = Run::create(
            RunId::new("x-1-a").unwrap(),
            Timestamp::default(),
            spec(kind),
        );
        for limit in Raisable::ALL {
            let refused = run.check_raise(&raise(limit, 99));
            let is_refused = lacks.contains(&limit.key());
            assert_eq!(refused.is_err(), is_refused, "{kind:?} {limit:?}");
            if let Err(refused) = refused {
                let text = refused.to_string();
                assert!(
                    text.contains(limit.key()) && text.contains("spend"),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn the_event_names_only_what_is_raised_and_reads_back() {
    let raised = raise(Raisable::Turns, 9);
    let epoch = Epoch(2);
    let event = Event::from(RunResumed { epoch, raised });
    let written = serde_json::to_value(&event).unwrap();
    assert_eq!(written["payload"], json!({"epoch": 2, "max_turns": 9}));
    let payload = written["payload"].to_string();
    assert_eq!(Event::read("run_resumed", &payload).unwrap(), event);
    let steps = Event::read("run_resumed", r#"{"epoch": 1, "max_steps": 5}"#).unwrap();
    assert_eq!(steps, resumed(Some(5)));
}

#[test]
fn raised_spawns_and_depth_exceed_old_ones() {
    let mut run = suspended_at(None, |_| {});
    run.below = Below {
        spawns: Some(3),
        depth: Some(2),
    };
    run.spawn_count = 3;
    for (limit, used, told) in [
        (Raisable::Spawns, 3, "it has started 3 child runs"),
        (
            Raisable::Depth,
            2,
            "it may have 2 levels of child runs already",
        ),
    ] {
        let refused = run.check_raise(&raise(limit, used)).unwrap_err();
        assert!(refused.to_string().starts_with(told), "{refused}");
        assert_eq!(run.check_raise(&raise(limit, used + 1)), Ok(()));
    }
    let raised = Raised {
        max_spawns: Some(9),
        max_depth: Some(5),
        ..Raised::default()
    };
    let resumed = RunResumed {
        epoch: Epoch(1),
        raised,
    };
    run.apply(Timestamp::default(), &resumed.into()).unwrap();
    let below = Below {
        spawns: Some(9),
        depth: Some(5),
    };
    assert_eq!(run.below, below);
}

#[test]
fn unlimited_spawns_cannot_be_raised() {
    let run = suspended_at(None, |_| {});
    let refused = run.check_raise(&raise(Raisable::Spawns, 5)).unwrap_err();
    assert!(
        refused.to_string().contains("no limit of `spawns`"),
        "{refused}"
    );
    assert_eq!(
        run.check_raise(&raise(Raisable::Depth, MOST_DEPTH + 1)),
        Ok(())
    );
}
