//! Effects of commits on accounts.

use super::*;
use crate::ledger::{CallNo, LimitId, Misuse, Shortfall, Usage};
use crate::model::event::{BudgetHeld, BudgetRaised, BudgetSettled};
use crate::model::{Because, ChildTerms, Funding};
use crate::money::Usd;

fn usd(text: &str) -> Usd {
    Usd::parse(text).unwrap()
}

fn account(run: &str) -> AccountId {
    AccountId(id(run))
}

/// Creates `run` with an account below that of `parent`.
fn open(run: &str, parent: Option<&str>, limit: Option<&str>) -> Change {
    let funding = Funding::Open {
        parent: parent.map(account),
        limit: limit.map(usd),
    };
    funded(run, run, parent, funding)
}

fn funded(run: &str, account_of: &str, parent: Option<&str>, funding: Funding) -> Change {
    let spec = Spec {
        parent: parent.map(id),
        budget: Budget {
            account: account(account_of),
            funding,
        },
        ..spec(run)
    };
    Change::create(&id(run), Arc::new(spec))
}

fn raise(run: &str, to: &str) -> Change {
    let event = BudgetRaised {
        account: account(run),
        to: usd(to),
        by: "uid:0".to_owned(),
    };
    Change::event(&id(run), Event::from(event))
}

/// A root with a limit of 1.00.
fn root() -> State {
    let mut state = State::default();
    let changes = vec![open("a", None, Some("1")), start("a")];
    let _applied = state.commit(1, changes).unwrap();
    state
}

fn used(state: &State, run: &str) -> Usd {
    state.ledger().account(&account(run)).unwrap().used()
}

#[test]
fn child_is_created_only_with_its_share() {
    let mut state = root();
    let changes = vec![cancel("a"), open("b", Some("a"), Some("0.6"))];
    let _applied = state.commit(2, changes).unwrap();
    assert_eq!(used(&state, "a"), usd("0.6"));
    let before = state.run(&id("a")).unwrap().seq;
    let changes = vec![suspend("a"), open("c", Some("a"), Some("0.6"))];
    let refused = state.commit(3, changes).unwrap_err();
    let lacking = Shortfall {
        requested: usd("0.6"),
        at: LimitId::Account(account("a")),
        limit: usd("1"),
        used: usd("0.6"),
        wait: false,
    };
    assert_eq!((refused.change, refused.run), (1, id("c")));
    assert_eq!(refused.why, RefusalReason::Budget(Denied::Short(lacking)));
    assert_eq!(state.run(&id("a")).unwrap().seq, before, "all or nothing");
    assert!(state.run(&id("c")).is_none());
    // The share is free as soon as the child has ended, even within one commit.
    let changes = vec![kill("b"), open("c", Some("a"), Some("0.6"))];
    let _applied = state.commit(4, changes).unwrap();
    assert_eq!(used(&state, "a"), usd("0.6"));
}

#[test]
fn conflicting_drafts_do_not_both_commit() {
    let mut state = root();
    let draft = |change: Change| {
        let changes = vec![change];
        state.base(&changes).draft(at(2), changes).unwrap()
    };
    let (one, other) = (
        draft(open("b", Some("a"), Some("0.6"))),
        draft(open("c", Some("a"), Some("0.6"))),
    );
    let rows = state.check(&one, &ROOM).unwrap();
    assert!(state.check(&other, &ROOM).is_ok());
    let _applied = state.apply(one, rows);
    let refused = state.check(&other, &ROOM).unwrap_err();
    assert!(matches!(
        refused.why,
        RefusalReason::Budget(Denied::Short(_))
    ));
}

#[test]
fn end_of_run_closes_its_account() {
    let mut state = root();
    let changes = vec![open("b", Some("a"), Some("0.6"))];
    let _applied = state.commit(2, changes).unwrap();
    // The parent ends first: its account stays open until that of the child is closed.
    let applied = state.commit(3, vec![kill("a")]).unwrap();
    assert!(applied.rows.closed.is_empty());
    assert!(state.ledger().account(&account("a")).unwrap().ended);
    let applied = state.commit(4, vec![kill("b")]).unwrap();
    let closed: Vec<_> = applied.rows.closed.keys().cloned().collect();
    assert_eq!(closed, [account("a"), account("b")]);
    assert_eq!(state.ledger().accounts().count(), 0);
    assert!(state.closed(&account("a")).is_some());
    // Both are stored with the run whose end closed them.
    assert!(state.evict(&id("a")).is_some());
    assert!(state.closed(&account("a")).is_some());
    assert!(state.evict(&id("b")).is_some());
    assert!(state.closed(&account("a")).is_none());
}

#[test]
fn tree_limits_live_runs() {
    let mut state = root();
    let below = |run: &str, parent: &str| open(run, Some(parent), None);
    let changes = vec![below("b", "a"), below("c", "b"), below("d", "c")];
    let _applied = state.commit(2, changes).unwrap();
    let full = |refused: Refused| (refused.change, refused.why);
    let refused = state.commit(3, vec![cancel("a"), below("e", "a")]);
    assert_eq!(full(refused.unwrap_err()), (1, RefusalReason::TreeFull(4)));
    // Another tree is unaffected, and so is the chain of an ended run.
    let _applied = state.commit(4, vec![open("z", None, None)]).unwrap();
    let _applied = state.commit(5, vec![kill("b")]).unwrap();
    assert!(state.ledger().account(&account("b")).unwrap().ended);
    let _applied = state.commit(6, vec![below("e", "d")]).unwrap();
    let refused = state.commit(7, vec![below("f", "a")]);
    assert_eq!(full(refused.unwrap_err()), (0, RefusalReason::TreeFull(4)));
    let _applied = state.commit(8, vec![kill("e"), kill("d")]).unwrap();
    let changes = vec![below("f", "a"), below("g", "a"), below("h", "a")];
    let refused = state.commit(9, changes);
    assert_eq!(full(refused.unwrap_err()), (2, RefusalReason::TreeFull(4)));
    // An ended tree leaves no count.
    let changes = vec![kill("c"), kill("a")];
    let _applied = state.commit(10, changes).unwrap();
    assert_eq!(state.ledger().live(&account("a")), 0);
}

#[test]
fn parent_limits_tree_for_threads() {
    let terms = |most_in_tree| ChildTerms {
        most_in_tree,
        ..ChildTerms::default()
    };
    let opened = |run: &str, kind, most_in_tree| {
        let mut change = open(run, Some("a").filter(|root| run != *root), None);
        if let Event::Run(RunEvent::RunCreated(spec)) = &mut change.event {
            let spec = Arc::make_mut(spec);
            (spec.task, spec.children) = (Task::of(kind), terms(most_in_tree));
        }
        change
    };
    let mut state = State::default();
    let root = vec![opened("a", RunKind::Graph, Some(2)), start("a")];
    let _applied = state.commit(1, root).unwrap();
    let thread = |run: &str| opened(run, RunKind::Thread, None);
    let _applied = state.commit(2, vec![thread("b")]).unwrap();
    let refused = state.commit(3, vec![thread("c")]).unwrap_err();
    assert_eq!(
        (refused.change, &refused.why),
        (0, &RefusalReason::ThreadsFull(2))
    );
    assert!(
        refused
            .to_string()
            .contains("`concurrency.max_total_threads`"),
        "{refused}"
    );
    // Only the limit of the daemon applies to a graph.
    let graphs = vec![
        opened("d", RunKind::Graph, None),
        opened("e", RunKind::Graph, None),
    ];
    let _applied = state.commit(4, graphs).unwrap();
    let refused = state.commit(5, vec![opened("f", RunKind::Graph, None)]);
    let refused = refused.unwrap_err();
    assert_eq!(refused.why, RefusalReason::TreeFull(4));
    assert!(
        refused.to_string().contains("`limits.tree_runs`"),
        "{refused}"
    );
    let ends = ["b", "d", "e"].map(kill).to_vec();
    let _applied = state.commit(6, ends).unwrap();
    assert!(state.commit(7, vec![thread("c")]).is_ok());
    // The parent cannot allow more than the daemon does.
    let mut state = State::default();
    let root = vec![opened("a", RunKind::Graph, Some(9)), start("a")];
    let _applied = state.commit(1, root).unwrap();
    let four = ["b", "c", "d", "e"].map(thread).to_vec();
    let refused = state.commit(2, four).unwrap_err();
    assert_eq!(
        (refused.change, refused.why),
        (3, RefusalReason::TreeFull(4))
    );
}

fn hold(run: &str, call: u32, amount: &str) -> Change {
    let event = BudgetHeld {
        call: CallNo(call),
        amount: usd(amount),
        model: "m".to_owned(),
        input: 1,
        max_output: 1,
        meters: Vec::new(),
    };
    Change::event(&id(run), Event::from(event))
}

fn settle(run: &str, call: u32, held: &str, cost: &str) -> Change {
    let usage = Usage {
        money: usd(cost),
        calls: 1,
        ..Usage::default()
    };
    let event = BudgetSettled {
        call: CallNo(call),
        amount: usd(held),
        usage,
        estimated: false,
        because: Because::Usage,
    };
    Change::event(&id(run), Event::from(event))
}

#[test]
fn a_call_is_held_once_and_settled_once() {
    let mut state = root();
    let _applied = state.commit(2, vec![hold("a", 1, "0.25")]).unwrap();
    assert_eq!(used(&state, "a"), usd("0.25"));
    for (change, why) in [
        (hold("a", 2, "0.25"), "a second hold"),
        (settle("a", 2, "0.25", "0.1"), "another call"),
        (settle("a", 1, "0.24", "0.1"), "another amount"),
        (suspend("a"), "suspended with an open call"),
        (kill("a"), "ended with an open call"),
    ] {
        let refused = state.commit(3, vec![change]).unwrap_err();
        assert!(
            matches!(refused.why, RefusalReason::Illegal(_)),
            "{why}: {refused:?}"
        );
    }
    let changes = vec![settle("a", 1, "0.25", "0.1"), suspend("a")];
    let _applied = state.commit(4, changes).unwrap();
    assert_eq!(used(&state, "a"), usd("0.1"));
    let _applied = state.commit(5, vec![resume("a")]).unwrap();
    for (change, why) in [
        (hold("a", 1, "0.25"), Denied::Misuse(Misuse::CallNumber)),
        (hold("a", 3, "0.25"), Denied::Misuse(Misuse::CallNumber)),
    ] {
        let refused = state.commit(6, vec![change]).unwrap_err();
        assert_eq!(refused.why, RefusalReason::Budget(why));
    }
    let refused = state.commit(7, vec![settle("a", 1, "0.25", "0.1")]);
    assert!(matches!(
        refused.unwrap_err().why,
        RefusalReason::Illegal(_)
    ));
    assert_eq!(used(&state, "a"), usd("0.1"), "nothing of that has counted");
    let _applied = state.commit(8, vec![kill("a")]).unwrap();
    let refused = state.commit(9, vec![hold("a", 2, "0.25")]);
    assert!(matches!(
        refused.unwrap_err().why,
        RefusalReason::Illegal(_)
    ));
    assert_eq!(state.recount(), Ok(()));
}

#[test]
fn cancelled_run_holds_no_call() {
    let mut state = root();
    let _applied = state.commit(2, vec![cancel("a")]).unwrap();
    let refused = state.commit(3, vec![hold("a", 1, "0.25")]).unwrap_err();
    assert!(matches!(refused.why, RefusalReason::Illegal(_)));
}

#[test]
fn the_end_of_a_run_settles_its_open_call_at_what_is_held() {
    let mut state = root();
    let _applied = state.commit(2, vec![hold("a", 1, "0.25")]).unwrap();
    let killed = kill("a").event;
    let events = state.run(&id("a")).unwrap().with_settlement(killed);
    let changes = events
        .into_iter()
        .map(|event| Change::event(&id("a"), event));
    let _applied = state.commit(3, changes.collect()).unwrap();
    let closed = state.closed(&account("a")).unwrap();
    assert_eq!(closed.own.money, usd("0.25"));
    assert_eq!(closed.estimated, usd("0.25"));
}

#[test]
fn a_limit_is_raised_while_the_run_lives() {
    let mut state = root();
    let _applied = state.commit(2, vec![raise("a", "2")]).unwrap();
    let refused = state.commit(3, vec![raise("a", "1.5")]).unwrap_err();
    assert_eq!(
        refused.why,
        RefusalReason::Budget(Denied::Misuse(Misuse::NotARaise))
    );
    let _applied = state.commit(4, vec![kill("a")]).unwrap();
    let refused = state.commit(5, vec![raise("a", "3")]).unwrap_err();
    assert!(matches!(refused.why, RefusalReason::Illegal(_)));
}

#[test]
fn a_chain_keeps_its_account() {
    let mut state = root();
    let changes = vec![open("below", Some("a"), None)];
    let _applied = state.commit(2, changes).unwrap();
    let _applied = state.commit(3, vec![kill("a")]).unwrap();
    let adopts = funded("b", "a", None, Funding::Adopt);
    let _applied = state.commit(4, vec![adopts]).unwrap();
    assert!(!state.ledger().account(&account("a")).unwrap().ended);
    let _applied = state.commit(5, vec![kill("below"), kill("b")]).unwrap();
    let closed = Account::clone(state.closed(&account("a")).unwrap());
    let adopts = funded("c", "a", None, Funding::Adopt);
    let refused = state.commit(6, vec![adopts]).unwrap_err();
    assert_eq!(
        refused.why,
        RefusalReason::Budget(Denied::Misuse(Misuse::NoAccount))
    );
    let reopens = Funding::Reopen {
        closed: Box::new(closed),
        limit: Some(usd("1.5")),
    };
    let reopens = funded("c", "a", None, reopens);
    let _applied = state.commit(7, vec![reopens]).unwrap();
    let again = state.ledger().account(&account("a")).unwrap();
    assert_eq!(again.limit, Some(usd("1.5")));
    assert!(state.closed(&account("a")).is_none());
}

#[test]
fn accounts_are_restored_from_store_and_log() {
    let mut state = root();
    let mut again = root();
    let log = [
        vec![open("b", Some("a"), Some("0.6")), start("b")],
        vec![open("c", Some("a"), None)],
        vec![raise("a", "2")],
        vec![kill("b")],
    ];
    for (changes, ms) in log.into_iter().zip(2..) {
        let _applied = state.commit(ms, changes.clone()).unwrap();
        let _applied = again.replay(at(ms), changes).unwrap();
    }
    // Only accounts that the records of the runs do not determine must be stored.
    let live: Vec<_> = state
        .runs()
        .filter(|run| !run.status().is_terminal())
        .map(Arc::clone)
        .collect();
    let rows = to_store(state.ledger(), live.iter().map(AsRef::as_ref));
    assert_eq!(rows.open.keys().collect::<Vec<_>>(), [&account("a")]);
    let stored = State::new(live.iter().map(Arc::clone), rows, Arc::default());
    for name in ["a", "b", "c"] {
        let account = account(name);
        let now = state.ledger().account(&account);
        assert_eq!(now, again.ledger().account(&account), "{name}");
        assert_eq!(now, stored.ledger().account(&account), "{name}");
    }
}
