use super::*;

mod faults;
mod meters;
mod notices;
mod random;
mod recount;

fn usd(text: &str) -> Usd {
    Usd::parse(text).unwrap()
}

fn id(name: &str) -> AccountId {
    AccountId(RunId::new(format!("{name}-1-aaaaaaaaaa")).unwrap())
}

fn spent(money: &str) -> Usage {
    Usage {
        money: usd(money),
        calls: 1,
        ..Usage::default()
    }
}

/// A ledger on which operations are performed one by one.
#[derive(Default)]
struct Book(Ledger);

impl Book {
    fn perform(&mut self, name: &str, operation: &Operation) -> Result<Rows, Denied> {
        let mut sheet = Transaction::new(&self.0);
        sheet.perform(&id(name), operation)?;
        let rows = sheet.into_rows();
        self.0.enter(rows.clone());
        Ok(rows)
    }

    fn open(
        &mut self,
        name: &str,
        parent: Option<&str>,
        limit: Option<&str>,
    ) -> Result<Rows, Denied> {
        let open = Operation::Open {
            parent: parent.map(id),
            limit: limit.map(usd),
        };
        self.perform(name, &open)
    }

    fn hold(&mut self, name: &str, amount: &str) -> Result<Rows, Denied> {
        self.hold_in(name, amount, &[])
    }

    fn hold_in(&mut self, name: &str, amount: &str, meters: &[Metered]) -> Result<Rows, Denied> {
        let hold = Operation::Hold {
            call: CallNo(self.account(name).calls.0 + 1),
            amount: usd(amount),
            meters: meters.to_vec(),
        };
        self.perform(name, &hold)
    }

    fn settle(&mut self, name: &str, money: &str) -> Result<Rows, Denied> {
        let settle = Operation::Settle {
            call: self.account(name).calls,
            usage: spent(money),
            estimated: false,
        };
        self.perform(name, &settle)
    }

    /// Makes and settles a call of cost `money` with a hold of the same amount.
    fn pay(&mut self, name: &str, money: &str) {
        self.hold(name, money).unwrap();
        self.settle(name, money).unwrap();
    }

    fn raise(&mut self, name: &str, to: &str) -> Result<Rows, Denied> {
        self.perform(name, &Operation::Raise { to: usd(to) })
    }

    fn end(&mut self, name: &str) -> Rows {
        self.perform(name, &Operation::End).unwrap()
    }

    fn account(&self, name: &str) -> &Account {
        self.0.account(&id(name)).unwrap()
    }

    /// Returns own, hold, open, closed, used and remaining of an account.
    fn row(&self, name: &str) -> [Usd; 6] {
        let account = self.account(name);
        [
            account.own.money,
            account.held(),
            account.open,
            account.closed.money,
            account.used(),
            account.remaining().unwrap(),
        ]
    }

    fn assert_row(&self, name: &str, row: [&str; 6]) {
        assert_eq!(self.row(name), row.map(usd), "{row:?}");
    }
}

fn shortfall(result: Result<Rows, Denied>) -> Shortfall {
    match result {
        Err(Denied::Short(shortfall)) => shortfall,
        other => panic!("a shortfall was expected: {other:?}"),
    }
}

fn misuse(result: Result<Rows, Denied>) -> Misuse {
    match result {
        Err(Denied::Misuse(misuse)) => misuse,
        other => panic!("a misuse was expected: {other:?}"),
    }
}

/// A root makes turns of its own between its children, each of which has a reservation.
#[test]
fn five_accounts_step_by_step() {
    let mut book = Book::default();
    book.open("root", None, Some("3")).unwrap();
    book.hold("root", "0.05").unwrap();
    book.assert_row("root", ["0", "0.05", "0", "0", "0.05", "2.95"]);
    book.settle("root", "0.021").unwrap();
    book.assert_row("root", ["0.021", "0", "0", "0", "0.021", "2.979"]);
    book.open("scaffold", Some("root"), Some("0.2")).unwrap();
    book.pay("scaffold", "0.08");
    book.assert_row("root", ["0.021", "0", "0.2", "0", "0.221", "2.779"]);
    book.end("scaffold");
    book.assert_row("root", ["0.021", "0", "0", "0.08", "0.101", "2.899"]);
    book.pay("root", "0.024");
    book.open("db", Some("root"), Some("0.8")).unwrap();
    book.open("api", Some("root"), Some("0.8")).unwrap();
    book.assert_row("root", ["0.045", "0", "1.6", "0.08", "1.725", "1.275"]);
    book.pay("root", "0.027");
    book.pay("db", "0.45");
    book.end("db");
    book.assert_row("root", ["0.072", "0", "0.8", "0.53", "1.402", "1.598"]);
    book.pay("api", "0.52");
    book.end("api");
    book.assert_row("root", ["0.072", "0", "0", "1.05", "1.122", "1.878"]);
    book.pay("root", "0.029");
    book.open("ui", Some("root"), Some("0.8")).unwrap();
    book.pay("ui", "0.61");
    book.end("ui");
    book.assert_row("root", ["0.101", "0", "0", "1.66", "1.761", "1.239"]);
    book.pay("root", "0.033");
    book.open("integration", Some("root"), Some("0.8")).unwrap();
    book.assert_row("root", ["0.134", "0", "0.8", "1.66", "2.594", "0.406"]);
    book.pay("integration", "0.31");
    book.end("integration");
    book.pay("root", "0.036");
    let closed = book.end("root").closed.remove(&id("root")).unwrap();
    assert_eq!(closed.total().unwrap().money, usd("2.14"));
    assert_eq!(closed.remaining(), Some(usd("0.86")));
    assert_eq!(closed.total().unwrap().calls, 11);
    assert_eq!(book.0.accounts().count(), 0, "nothing is left in memory");
}

#[test]
fn second_share_is_granted_when_first_is_free() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("one", Some("root"), Some("0.6")).unwrap();
    let refused = shortfall(book.open("two", Some("root"), Some("0.6")));
    assert_eq!(
        refused,
        Shortfall {
            requested: usd("0.6"),
            at: LimitId::Account(id("root")),
            limit: usd("1"),
            used: usd("0.6"),
            wait: false,
        }
    );
    book.pay("one", "0.4");
    book.end("one");
    book.open("two", Some("root"), Some("0.6")).unwrap();
}

#[test]
fn pooled_children_share_money_of_parent() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    for name in ["a", "b", "c", "d"] {
        book.open(name, Some("root"), None).unwrap();
        book.hold(name, "0.25").unwrap();
    }
    book.open("e", Some("root"), None).unwrap();
    let refused = shortfall(book.hold("e", "0.25"));
    assert!(refused.wait, "only open holds stand in the way");
    book.settle("a", "0.01").unwrap();
    let refused = shortfall(book.hold("e", "0.25"));
    assert_eq!((refused.used, refused.wait), (usd("0.76"), true));
    book.settle("b", "0.01").unwrap();
    book.hold("e", "0.25").unwrap();
}

#[test]
fn request_blocked_by_settled_money_does_not_wait() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("a", Some("root"), None).unwrap();
    book.open("b", Some("root"), None).unwrap();
    book.pay("a", "0.9");
    book.hold("a", "0.05").unwrap();
    assert!(!shortfall(book.hold("b", "0.2")).wait);
    // A reservation does not come back by itself either.
    book.settle("a", "0").unwrap();
    book.open("c", Some("root"), Some("0.1")).unwrap();
    assert!(!shortfall(book.hold("b", "0.01")).wait);
}

#[test]
fn calls_below_reservation_change_nothing_above() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("share", Some("root"), Some("0.5")).unwrap();
    book.open("leaf", Some("share"), None).unwrap();
    let rows = book.hold("leaf", "0.5").unwrap();
    assert_eq!(
        rows.open.into_keys().collect::<Vec<_>>(),
        [id("leaf"), id("share")]
    );
}

#[test]
fn settlement_above_hold_is_recorded_and_blocks_later_holds() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("share", Some("root"), Some("0.5")).unwrap();
    book.hold("share", "0.4").unwrap();
    book.settle("share", "1.25").unwrap();
    assert_eq!(book.account("share").overrun(), usd("0.75"));
    assert_eq!(book.account("root").overrun(), usd("0.25"));
    assert_eq!(book.account("root").remaining(), Some(Usd::ZERO));
    assert!(!shortfall(book.hold("root", "0.000000001")).wait);
    assert_eq!(
        shortfall(book.hold("share", "0.1")).at,
        LimitId::Account(id("share"))
    );
    // A call that costs nothing needs no money.
    book.pay("share", "0");
}

#[test]
fn raise_is_upwards_and_needs_room_above() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("share", Some("root"), Some("0.5")).unwrap();
    book.pay("share", "0.5");
    assert_eq!(misuse(book.raise("share", "0.5")), Misuse::NotARaise);
    book.raise("share", "1").unwrap();
    assert_eq!(
        shortfall(book.raise("share", "1.2")).at,
        LimitId::Account(id("root"))
    );
    // Both together, the root first.
    let mut sheet = Transaction::new(&book.0);
    let raise = Operation::Raise { to: usd("1.2") };
    sheet.perform(&id("root"), &raise).unwrap();
    sheet.perform(&id("share"), &raise).unwrap();
    book.0.enter(sheet.into_rows());
    book.pay("share", "0.7");
    assert_eq!(misuse(book.raise("free", "1")), Misuse::NoAccount);
    book.open("free", None, None).unwrap();
    assert_eq!(misuse(book.raise("free", "1")), Misuse::Unlimited);
}

#[test]
fn raises_lists_needed_limits_from_root() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("mid", Some("root"), Some("0.6")).unwrap();
    book.open("leaf", Some("mid"), Some("0.2")).unwrap();
    book.pay("root", "0.3");
    let raises = |to: &str| {
        let raises = book.0.raises(&id("leaf"), usd(to)).unwrap();
        let named = raises.into_iter().map(|(id, to)| format!("{id} {to}"));
        named.collect::<Vec<_>>().join(", ")
    };
    let [root, mid, leaf] = ["root", "mid", "leaf"].map(id);
    assert_eq!(raises("0.5"), format!("{leaf} 0.500000000"));
    assert_eq!(
        raises("0.7"),
        format!("{mid} 0.700000000, {leaf} 0.700000000")
    );
    assert_eq!(
        raises("0.8"),
        format!("{root} 1.100000000, {mid} 0.800000000, {leaf} 0.800000000")
    );
    let mut sheet = Transaction::new(&book.0);
    for (id, to) in book.0.raises(&leaf, usd("0.8")).unwrap() {
        sheet.perform(&id, &Operation::Raise { to }).unwrap();
    }
    assert_eq!(
        book.0.raises(&id("nobody"), usd("1")),
        Err(Misuse::NoAccount)
    );
}

#[test]
fn spending_below_counts_before_and_after_close() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("mid", Some("root"), Some("0.6")).unwrap();
    book.open("leaf", Some("mid"), None).unwrap();
    book.pay("leaf", "0.1");
    book.pay("mid", "0.2");
    book.hold("mid", "0.05").unwrap();
    let spent = |book: &Book| book.0.cost(&id("root")).unwrap().usage.money;
    assert_eq!(spent(&book), usd("0.3"));
    book.settle("mid", "0").unwrap();
    book.end("leaf");
    book.end("mid");
    assert_eq!(spent(&book), usd("0.3"));
    assert_eq!(book.0.below(&id("root")).count(), 0);
}

#[test]
fn raised_pooled_child_gets_own_share() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("a", Some("root"), None).unwrap();
    book.pay("a", "0.3");
    book.raise("a", "0.8").unwrap();
    book.assert_row("root", ["0", "0", "0.8", "0", "0.8", "0.2"]);
}

#[test]
fn pooled_child_is_not_raised_below_its_use() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("a", Some("root"), None).unwrap();
    book.pay("a", "0.3");
    book.hold("a", "0.2").unwrap();
    for less in ["0", "0.3", "0.499999999"] {
        assert_eq!(misuse(book.raise("a", less)), Misuse::NotARaise, "{less}");
    }
    book.raise("a", "0.5").unwrap();
}

#[test]
fn an_account_stays_until_all_below_it_are_closed() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("mid", Some("root"), Some("0.6")).unwrap();
    book.open("leaf", Some("mid"), None).unwrap();
    assert!(book.end("mid").closed.is_empty());
    assert_eq!(misuse(book.hold("mid", "0.1")), Misuse::Ended);
    assert_eq!(misuse(book.raise("mid", "0.7")), Misuse::Ended);
    book.pay("leaf", "0.2");
    let closed = book.end("leaf").closed;
    assert_eq!(
        closed.into_keys().collect::<Vec<_>>(),
        [id("leaf"), id("mid")]
    );
    book.assert_row("root", ["0", "0", "0", "0.2", "0.2", "0.8"]);
}

#[test]
fn continued_chain_keeps_its_spending() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("chain", Some("root"), Some("0.5")).unwrap();
    book.pay("chain", "0.3");
    let closed = book.end("chain").closed.remove(&id("chain")).unwrap();
    book.assert_row("root", ["0", "0", "0", "0.3", "0.3", "0.7"]);
    let reopen = |limit: Option<&str>| Operation::Reopen {
        closed: Box::new(closed.clone()),
        limit: limit.map(usd),
    };
    let refused = shortfall(book.perform("chain", &reopen(Some("1.1"))));
    assert_eq!((refused.requested, refused.used), (usd("0.8"), usd("0.3")));
    book.perform("chain", &reopen(Some("0.9"))).unwrap();
    book.assert_row("root", ["0", "0", "0.9", "0", "0.9", "0.1"]);
    assert_eq!(misuse(book.perform("chain", &reopen(None))), Misuse::Exists);
    assert_eq!(
        book.account("chain").calls,
        CallNo(1),
        "no number is used twice"
    );
    book.open("below", Some("chain"), None).unwrap();
    book.end("chain");
    book.perform("chain", &Operation::Adopt).unwrap();
    book.pay("chain", "0.6");
    book.end("below");
    book.end("chain");
    book.end("root");
    assert_eq!(
        misuse(book.perform("chain", &reopen(None))),
        Misuse::NoAccount
    );
}

#[test]
fn meter_limits_all_trees_and_settles_where_held() {
    let mut book = Book::default();
    let (today, tomorrow) = (
        MeterId("day/2026-11-22".to_owned()),
        MeterId("day/2026-11-23".to_owned()),
    );
    let cap = |id: &MeterId| {
        vec![Metered {
            id: id.clone(),
            limit: usd("1"),
        }]
    };
    book.open("a", None, None).unwrap();
    book.open("b", None, Some("5")).unwrap();
    book.hold_in("a", "0.7", &cap(&today)).unwrap();
    let refused = shortfall(book.hold_in("b", "0.5", &cap(&today)));
    assert_eq!(refused.at, LimitId::Meter(today.clone()));
    assert!(refused.wait);
    // The clock passes midnight.
    book.hold_in("b", "0.5", &cap(&tomorrow)).unwrap();
    book.settle("a", "0.6").unwrap();
    book.settle("b", "0.5").unwrap();
    let meter = |id| book.0.meter(id);
    assert_eq!(
        (meter(&today).spent, meter(&today).held),
        (usd("0.6"), Usd::ZERO)
    );
    assert_eq!(meter(&tomorrow).spent, usd("0.5"));
    assert!(!shortfall(book.hold_in("b", "0.5", &cap(&today))).wait);
}

#[test]
fn every_call_has_one_hold_and_one_settlement() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    let hold = |call| Operation::Hold {
        call: CallNo(call),
        amount: usd("0.1"),
        meters: Vec::new(),
    };
    let settle = |call| Operation::Settle {
        call: CallNo(call),
        usage: spent("0.1"),
        estimated: false,
    };
    assert_eq!(misuse(book.perform("root", &settle(1))), Misuse::NoSuchCall);
    assert_eq!(misuse(book.perform("root", &hold(2))), Misuse::CallNumber);
    book.perform("root", &hold(1)).unwrap();
    assert_eq!(misuse(book.perform("root", &hold(2))), Misuse::CallOpen);
    assert_eq!(misuse(book.perform("root", &settle(2))), Misuse::NoSuchCall);
    assert_eq!(
        misuse(book.perform("root", &Operation::End)),
        Misuse::CallOpen
    );
    book.perform("root", &settle(1)).unwrap();
    assert_eq!(misuse(book.perform("root", &settle(1))), Misuse::NoSuchCall);
    assert_eq!(misuse(book.perform("root", &hold(1))), Misuse::CallNumber);
    assert_eq!(misuse(book.perform("other", &hold(1))), Misuse::NoAccount);
    assert_eq!(misuse(book.open("root", None, None)), Misuse::Exists);
    book.end("root");
    assert_eq!(misuse(book.perform("root", &hold(2))), Misuse::NoAccount);
    assert_eq!(
        misuse(book.open("below", Some("root"), None)),
        Misuse::NoAccount
    );
}

#[test]
fn amounts_that_do_not_fit_are_refused() {
    let mut book = Book::default();
    book.open("root", None, None).unwrap();
    book.hold("root", "1").unwrap();
    let settle = Operation::Settle {
        call: CallNo(1),
        usage: Usage {
            money: Usd::from_nanos(u64::MAX),
            ..Usage::default()
        },
        estimated: true,
    };
    book.perform("root", &settle).unwrap();
    assert_eq!(misuse(book.hold("root", "0.1")), Misuse::Overflow);
    assert_eq!(book.account("root").estimated, Usd::from_nanos(u64::MAX));
}

#[test]
fn the_path_of_an_account_leads_to_its_root() {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("mid", Some("root"), None).unwrap();
    book.open("leaf", Some("mid"), None).unwrap();
    let path: Vec<_> = book.0.path(&id("leaf")).map(|(id, _)| id.clone()).collect();
    assert_eq!(path, [id("leaf"), id("mid"), id("root")]);
    assert_eq!(book.0.path(&id("nobody")).count(), 0);
}

#[test]
fn unused_account_serialises_short() {
    let text = serde_json::to_string(&Account::default()).unwrap();
    assert_eq!(text, "{}");
    let account: Account = serde_json::from_str(&text).unwrap();
    assert_eq!(account, Account::default());
}
