//! Reports about settlements.

use super::*;

impl Book {
    /// Settles the open call of `name` and returns the texts of its notices.
    fn settle_and_notices(&mut self, name: &str, money: &str) -> Vec<String> {
        let marks = LimitSnapshot::of(&Transaction::new(&self.0), &id(name));
        self.settle(name, money).unwrap();
        let notices = marks.notices(&Transaction::new(&self.0), usd(money));
        notices.iter().map(Notice::to_string).collect()
    }
}

#[test]
fn overrun_is_reported_at_any_level() {
    let mut book = Book::default();
    book.open("free", None, None).unwrap();
    book.hold("free", "0.1").unwrap();
    assert_eq!(
        book.settle_and_notices("free", "0.1"),
        [""; 0],
        "what was held is enough"
    );
    book.hold("free", "0.1").unwrap();
    let overrun = "call 2 cost 0.100000001 USD, more than the 0.100000000 that were held for it";
    assert_eq!(
        book.settle_and_notices("free", "0.100000001"),
        [overrun],
        "nobody limits it"
    );
    book.open("root", None, Some("1")).unwrap();
    book.open("child", Some("root"), Some("0.2")).unwrap();
    book.open("pooled", Some("child"), None).unwrap();
    book.pay("pooled", "0.17");
    book.hold("pooled", "0.03").unwrap();
    let overrun = "call 2 cost 0.040000000 USD, more than the 0.030000000 that were held for it; \
                   that is beyond what run `child-1-aaaaaaaaaa` may spend";
    assert_eq!(
        book.settle_and_notices("pooled", "0.04"),
        [overrun],
        "four fifths were told before"
    );
    let refused = shortfall(book.hold("pooled", "0.000000001"));
    assert!(!refused.wait, "{refused}");
}

#[test]
fn an_overrun_names_every_limit_that_it_goes_beyond() {
    let day = Metered {
        id: MeterId("day/2026-11-22".to_owned()),
        limit: usd("0.9"),
    };
    let mut book = Book::default();
    book.open("root", None, Some("1")).unwrap();
    book.open("child", Some("root"), Some("0.5")).unwrap();
    book.hold_in("child", "0.1", &[day]).unwrap();
    let told = book.settle_and_notices("child", "1.1");
    let child = "what run `child-1-aaaaaaaaaa` may spend";
    let root = "what run `root-1-aaaaaaaaaa` may spend";
    let meter = "the limit of this node for the day/2026-11-22";
    let overrun = "call 1 cost 1.100000000 USD, more than the 0.100000000 that were held for it";
    let crossed = |limit: &str, most: &str| {
        format!("80 % or more of {limit} are used: 1.100000000 of {most} USD")
    };
    let expected = [
        format!("{overrun}; that is beyond {child}, {root}, {meter}"),
        crossed(child, "0.500000000"),
        crossed(root, "1.000000000"),
        crossed(meter, "0.900000000"),
    ];
    assert_eq!(told, expected);
}
