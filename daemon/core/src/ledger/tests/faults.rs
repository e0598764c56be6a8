//! Known faults of budgets over a tree of runs; each test shows the rule that prevents one.

use super::*;

/// Opens a root with the limit `limit`.
fn root(limit: &str) -> Book {
    let mut book = Book::default();
    book.open("root", None, Some(limit)).unwrap();
    book
}

#[test]
fn share_is_counted_once() {
    let mut book = root("1");
    book.open("child", Some("root"), Some("1")).unwrap();
    assert_eq!(
        misuse(book.open("child", Some("root"), Some("1"))),
        Misuse::Exists
    );
    assert_eq!(book.account("root").used(), usd("1"));
    book.pay("child", "0.9");
    assert_eq!(book.account("root").used(), usd("1"));
    book.end("child");
    assert_eq!(book.account("root").used(), usd("0.9"));
}

#[test]
fn own_spending_of_root_limits_shares() {
    let mut book = root("1");
    book.pay("root", "0.5");
    assert_eq!(book.account("root").own.money, usd("0.5"));
    let lacking = shortfall(book.open("child", Some("root"), Some("0.6")));
    assert_eq!((lacking.used, lacking.requested), (usd("0.5"), usd("0.6")));
    book.open("child", Some("root"), Some("0.5")).unwrap();
    assert_eq!(shortfall(book.hold("root", "0.01")).used, usd("1"));
}

#[test]
fn spending_two_levels_down_reaches_root() {
    let mut book = root("10");
    book.open("child", Some("root"), None).unwrap();
    book.open("grandchild", Some("child"), None).unwrap();
    book.pay("grandchild", "1.5");
    book.pay("child", "0.25");
    let before = book.account("root").used();
    book.end("grandchild");
    assert_eq!(
        book.account("root").used(),
        before,
        "counted once at every moment"
    );
    book.end("child");
    assert_eq!(book.account("root").used(), usd("1.75"));
    assert_eq!(book.account("root").remaining(), Some(usd("8.25")));
}

#[test]
fn overspent_share_is_recorded_in_full() {
    let mut book = root("2");
    book.open("child", Some("root"), Some("0.5")).unwrap();
    book.hold("child", "0.5").unwrap();
    book.settle("child", "0.75").unwrap();
    assert_eq!(book.account("child").overrun(), usd("0.25"));
    assert_eq!(book.account("root").used(), usd("0.75"));
    let rows = book.end("child");
    assert_eq!(rows.closed[&id("child")].own.money, usd("0.75"));
    assert_eq!(book.account("root").used(), usd("0.75"));
}

#[test]
fn child_outlives_parent_and_keeps_paying() {
    let mut book = root("1");
    book.open("child", Some("root"), Some("0.4")).unwrap();
    book.open("grandchild", Some("child"), None).unwrap();
    book.end("root");
    book.end("child");
    book.pay("grandchild", "0.3");
    book.open("later", Some("grandchild"), None).unwrap();
    book.end("later");
    let rows = book.end("grandchild");
    assert_eq!(rows.closed.len(), 3, "all that had waited for it");
    assert_eq!(rows.closed[&id("root")].closed.money, usd("0.3"));
}

#[test]
fn end_of_run_releases_its_share() {
    let mut book = root("1");
    for name in ["one", "two", "three"] {
        book.open(name, Some("root"), Some("1")).unwrap();
        book.end(name);
    }
    assert_eq!(book.account("root").used(), Usd::ZERO);
    assert_eq!(book.account("root").below, 0);
}

#[test]
fn missing_limit_is_unlimited_and_zero_limit_allows_nothing() {
    let mut book = Book::default();
    book.open("free", None, None).unwrap();
    book.pay("free", "1000000");
    assert_eq!(book.account("free").remaining(), None);
    book.open("nothing", None, Some("0")).unwrap();
    assert_eq!(
        shortfall(book.hold("nothing", "0.000000001")).limit,
        Usd::ZERO
    );
    book.pay("nothing", "0");
}

#[test]
fn a_thousand_small_amounts_add_up_to_the_last_digit() {
    let mut book = root("0.1");
    for _ in 0..1000 {
        book.pay("root", "0.0001");
    }
    assert_eq!(book.account("root").remaining(), Some(Usd::ZERO));
    assert_eq!(shortfall(book.hold("root", "0.000000001")).used, usd("0.1"));
}
