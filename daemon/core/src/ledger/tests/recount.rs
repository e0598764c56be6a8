//! Differences that a recount finds.

use super::*;

/// A root with two children: one has a share and an open call, one is pooled.
fn family() -> Book {
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("child", Some("root"), Some("0.4")).unwrap();
    book.open("pooled", Some("root"), None).unwrap();
    let day = Metered {
        id: MeterId("day/2026-11-22".to_owned()),
        limit: usd("5"),
    };
    book.hold_in("child", "0.5", &[]).unwrap_err();
    book.hold_in("child", "0.1", &[day]).unwrap();
    book.pay("pooled", "0.2");
    book
}

#[test]
fn recount_finds_every_difference() {
    type Fault<'a> = (&'a str, Box<dyn Fn(&mut Ledger) + 'a>);

    assert_eq!(family().0.recount(), Ok(()));
    let root = |ledger: &mut Ledger, change: fn(&mut Account)| {
        change(ledger.accounts.get_mut(&id("root")).unwrap());
    };
    let faults: [Fault<'_>; 10] = [
        (
            "what is below it",
            Box::new(|ledger| root(ledger, |a| a.open = usd("0.5"))),
        ),
        (
            "what is below it",
            Box::new(|ledger| root(ledger, |a| a.open_floor = usd("0.5"))),
        ),
        (
            "what is below it",
            Box::new(|ledger| root(ledger, |a| a.below = 3)),
        ),
        (
            "what lives by tree",
            Box::new(|ledger| {
                ledger.live.insert(id("root"), 2);
            }),
        ),
        (
            "what lives by tree",
            Box::new(|ledger| root(ledger, |a| a.ended = true)),
        ),
        (
            "what is known above it",
            Box::new(|ledger| {
                ledger.below.clear();
            }),
        ),
        (
            "what is known above it",
            Box::new(|ledger| {
                ledger.accounts.remove(&id("root"));
            }),
        ),
        (
            "what is held",
            Box::new(|ledger| ledger.meters.values_mut().for_each(|m| m.held = Usd::ZERO)),
        ),
        (
            "a meter that is unknown",
            Box::new(|ledger| ledger.meters.clear()),
        ),
        (
            "whether it should be closed",
            Box::new(|ledger| {
                ledger.accounts.get_mut(&id("pooled")).unwrap().ended = true;
            }),
        ),
    ];
    for (told, fault) in faults {
        let mut book = family();
        fault(&mut book.0);
        let miscount = book.0.recount().unwrap_err().to_string();
        assert!(miscount.contains(told), "{told}: {miscount}");
    }
}
