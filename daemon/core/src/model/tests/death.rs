//! The sequences of deaths of the daemon after which a run is suspected.

use super::*;
use crate::model::Death;
use crate::model::event::RunStarted;

#[derive(Clone, Copy)]
enum Turn {
    /// The daemon dies while computing for the run or for others, and owns it again after so many seconds.
    Dies(Death, Computes, u64),
    /// An item of it ends.
    Progress,
    /// A person resumes it.
    Resumed,
}

#[derive(Clone, Copy, PartialEq)]
enum Computes {
    ForIt,
    ForOthers,
}

use Computes::{ForIt, ForOthers};
use Death::{Fault, Outside, Unknown};
use Turn::{Dies, Progress, Resumed};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

/// Returns the number of the death at which recovery parks the run, if it does.
fn parked(turns: &[Turn]) -> Option<usize> {
    let (mut run, mut now, mut deaths) = (walking(), 1_000_000, 0);
    for turn in turns {
        let event = match turn {
            Dies(death, computes, seconds) => {
                deaths += 1;
                now += i64::try_from(seconds * 1000).unwrap();
                // The board keeps the runs for which the daemon computed, unless the death came from outside.
                let suspected = *computes == ForIt && *death != Outside;
                if suspected && run.is_in_crash_loop(*death, at(now)) {
                    return Some(deaths);
                }
                RunEvent::RunStarted(RunStarted {
                    epoch: Epoch(2),
                    suspected,
                    fault: *death == Fault,
                })
            }
            Progress => {
                run.suspicions = 0;
                continue;
            }
            Resumed => {
                let why = Suspension::new(SuspendReason::User);
                run.apply(at(now), &RunEvent::RunSuspended(why).into())
                    .unwrap();
                RunEvent::resumed(Epoch(2))
            }
        };
        run.apply(at(now), &event.into()).unwrap();
    }
    None
}

#[test]
fn three_own_crashes_within_ten_minutes_park_run() {
    let fault = Dies(Fault, ForIt, 60);
    assert_eq!(parked(&[fault, Progress, fault, Progress, fault]), Some(3));
    assert_eq!(parked(&[fault, fault, fault]), Some(3));
    // Deaths of other runs do not count, nor deaths long ago or before it was resumed.
    let others = Dies(Fault, ForOthers, 1);
    assert_eq!(parked(&[others; 20]), None);
    assert_eq!(
        parked(&[fault, others, fault, others, Progress, fault]),
        Some(5)
    );
    let late = Dies(Fault, ForIt, 599);
    assert_eq!(
        parked(&[fault, Progress, late, Progress, late, Progress, late]),
        None
    );
    let soon = Dies(Fault, ForIt, 299);
    assert_eq!(parked(&[fault, Progress, soon, Progress, soon]), Some(3));
    assert_eq!(parked(&[fault, fault, Resumed, fault, fault]), None);
}

#[test]
fn outside_deaths_never_count_and_unknown_ones_only_without_progress() {
    let (outside, unknown) = (Dies(Outside, ForIt, 1), Dies(Unknown, ForIt, 1));
    assert_eq!(parked(&[outside; 20]), None);
    let fault = Dies(Fault, ForIt, 1);
    assert_eq!(parked(&[fault, outside, fault, outside, outside]), None);
    assert_eq!(parked(&[unknown; 20]), Some(4));
    let moves = [unknown, unknown, unknown, Progress];
    assert_eq!(parked(&moves.repeat(5)), None);
    assert_eq!(
        parked(&[fault, unknown, fault, Progress, unknown, fault]),
        Some(5)
    );
}

#[test]
fn a_death_is_named_and_another_name_is_an_unknown_one() {
    for death in [Unknown, Fault, Outside] {
        assert_eq!(Death::named(death.as_str()), death);
    }
    assert_eq!(Death::named("of old age"), Unknown);
}
