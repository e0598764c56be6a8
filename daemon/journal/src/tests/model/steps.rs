//! Random lives of a journal, as plain data that proptest can shrink.

use proptest::prelude::*;

/// A step of a life. Numbers select one of the runs that are eligible.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Commit(Commit),
    /// Removes several runs together, among them live and removed ones.
    Remove {
        runs: Vec<usize>,
        has_unknown: bool,
    },
    /// Removes a run that has ended.
    RemoveEnded(usize),
    Seal,
    Compact,
    /// Reads everything, the events of all runs also from the middle.
    Read(usize),
}

/// A commit. Lengths are those of a text in bytes.
#[derive(Debug, Clone)]
pub(super) enum Commit {
    /// Creates a run that has made a paid call.
    Create {
        link: Option<(Link, usize)>,
        has_key: bool,
        ends: bool,
        length: usize,
    },
    /// Each event with its run; true if it completes a step.
    Events(Vec<(usize, bool, usize)>),
    /// Holds money for a call if none is held; settles it at a number of cents, if there is one.
    Pay(usize, Option<u8>),
    End(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Parent,
    Continues,
}

/// End of a life.
#[derive(Debug, Clone)]
pub(super) enum End {
    Close,
    Crash,
    /// History fails from this call on while a step is executed. The index may lack what that step wrote into it.
    History {
        calls: usize,
        step: Step,
        keeps_index: bool,
    },
    /// The log fails at the sync of a commit, of which the disk keeps this share of 256.
    Log(Commit, u8),
}

#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) loses_index: bool,
    pub(super) steps: Vec<Step>,
    pub(super) end: End,
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..100_usize, 2 => 2_000..6_000_usize, 1 => Just(70_000)]
}

fn commit() -> impl Strategy<Value = Commit> {
    let number = any::<usize>;
    let link = prop_oneof![Just(Link::Parent), Just(Link::Continues)];
    let link = proptest::option::weighted(0.7, (link, number()));
    prop_oneof![
        8 => (link, any::<bool>(), any::<bool>(), length()).prop_map(
            |(link, has_key, ends, length)| Commit::Create { link, has_key, ends, length }
        ),
        3 => proptest::collection::vec((number(), any::<bool>(), length()), 1..4)
            .prop_map(Commit::Events),
        2 => (number(), proptest::option::of(0..10_u8))
            .prop_map(|(run, cents)| Commit::Pay(run, cents)),
        4 => number().prop_map(Commit::End),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let number = any::<usize>;
    prop_oneof![
        10 => commit().prop_map(Step::Commit),
        2 => (proptest::collection::vec(number(), 1..4), any::<bool>())
            .prop_map(|(runs, has_unknown)| Step::Remove { runs, has_unknown }),
        4 => number().prop_map(Step::RemoveEnded),
        1 => Just(Step::Seal),
        2 => Just(Step::Compact),
        1 => number().prop_map(Step::Read),
    ]
}

pub(super) fn life() -> impl Strategy<Value = Life> {
    let removes = any::<usize>().prop_map(Step::RemoveEnded);
    let broken = prop_oneof![removes, Just(Step::Compact), step()];
    let share = prop_oneof![any::<u8>(), Just(u8::MAX)];
    let end = prop_oneof![
        1 => Just(End::Close),
        1 => Just(End::Crash),
        2 => (0..6_usize, broken, any::<bool>())
            .prop_map(|(calls, step, keeps_index)| End::History { calls, step, keeps_index }),
        1 => (commit(), share).prop_map(|(commit, share)| End::Log(commit, share)),
    ];
    let steps = proptest::collection::vec(step(), 6..20);
    let life = (proptest::bool::weighted(0.2), steps, end);
    life.prop_map(|(loses_index, steps, end)| Life {
        loses_index,
        steps,
        end,
    })
}
