use super::*;
use crate::clock::Timestamp;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn meter(book: &Book, id: &str) -> (Usd, Usd) {
    let Meter { spent, held } = book.0.meter(&MeterId(id.to_owned()));
    (spent, held)
}

fn caps(day: Option<&str>, month: Option<&str>) -> Caps {
    Caps {
        day: day.map(usd),
        month: month.map(usd),
    }
}

#[test]
fn the_meters_in_force_are_those_of_the_day_and_of_the_month_in_utc() {
    let told = |caps: Caps, time: &str| {
        let metered = caps.in_force(at(time)).into_iter();
        metered
            .map(|metered| format!("{} {}", metered.id, metered.limit))
            .collect::<Vec<_>>()
    };
    let both = caps(Some("1"), Some("20"));
    for (time, day, month) in [
        ("2026-11-22T23:59:59.999Z", "2026-11-22", "2026-11"),
        ("2026-11-23T00:00:00.000Z", "2026-11-23", "2026-11"),
        ("2026-11-30T23:30:00-01:00", "2026-12-01", "2026-12"),
        ("2027-01-01T00:30:00+01:00", "2026-12-31", "2026-12"),
    ] {
        let expected = [
            format!("day/{day} 1.000000000"),
            format!("month/{month} 20.000000000"),
        ];
        assert_eq!(told(both, time), expected);
        assert_eq!(told(caps(Some("1"), None), time), expected[..1]);
        assert_eq!(told(caps(None, Some("20")), time), expected[1..]);
        assert!(told(Caps::default(), time).is_empty());
    }
}

#[test]
fn a_call_over_midnight_is_settled_where_it_was_held() {
    let caps = caps(Some("1"), Some("1.5"));
    let mut book = Book::default();
    book.open("a", None, None).unwrap();
    book.open("b", None, None).unwrap();
    let before = caps.in_force(at("2026-11-22T23:59:59.999Z"));
    let after = caps.in_force(at("2026-11-23T00:00:00Z"));
    book.hold_in("a", "0.9", &before).unwrap();
    // The day is over; its holds count for the month alone.
    let refused = shortfall(book.hold_in("b", "0.7", &after));
    assert_eq!(
        refused.at,
        LimitId::Meter(MeterId("month/2026-11".to_owned()))
    );
    assert!(refused.wait, "only a hold stands in the way");
    book.hold_in("b", "0.6", &after).unwrap();
    book.settle("a", "0.8").unwrap();
    book.settle("b", "0.5").unwrap();
    assert_eq!(meter(&book, "day/2026-11-22"), (usd("0.8"), Usd::ZERO));
    assert_eq!(meter(&book, "day/2026-11-23"), (usd("0.5"), Usd::ZERO));
    assert_eq!(meter(&book, "month/2026-11"), (usd("1.3"), Usd::ZERO));
}

#[test]
fn meters_are_kept_two_months_and_while_held() {
    let caps = caps(Some("10"), Some("100"));
    let mut book = Book::default();
    for run in ["a", "b"] {
        book.open(run, None, None).unwrap();
    }
    let mut pay = |run: &str, time: &str| {
        let meters = caps.in_force(at(time));
        book.hold_in(run, "0.1", &meters).unwrap();
        if run == "a" {
            book.settle(run, "0.1").unwrap();
        }
        let known = book.0.meters().keys();
        known.map(ToString::to_string).collect::<Vec<_>>()
    };
    pay("a", "2026-09-20T12:00:00Z");
    pay("b", "2026-09-21T12:00:00Z");
    pay("a", "2026-09-22T12:00:00Z");
    let all = pay("a", "2026-11-21T12:00:00Z");
    assert_eq!(all.len(), 6, "{all:?}");
    let all = pay("a", "2026-11-23T12:00:00Z");
    assert_eq!(
        all,
        [
            "day/2026-09-21",
            "day/2026-09-22",
            "day/2026-11-21",
            "day/2026-11-23",
            "month/2026-09",
            "month/2026-11"
        ],
        "62 days before the 23rd lies the 22nd; something is held on the 21st"
    );
    assert!(!pay("a", "2026-12-03T12:00:00Z").contains(&"day/2026-09-22".to_owned()));
}

#[test]
fn a_settlement_crosses_four_fifths_of_a_meter_once() {
    let meters = caps(Some("1"), None).in_force(at("2026-11-22T12:00:00Z"));
    let mut book = Book::default();
    book.open("a", None, None).unwrap();
    let mut crossed = Vec::new();
    for money in ["0.7", "0.0999", "0.0001", "0.1"] {
        book.hold_in("a", "0.05", &meters).unwrap();
        let marks = LimitSnapshot::of(&Transaction::new(&book.0), &id("a"));
        book.settle("a", money).unwrap();
        let told = marks
            .notices(&Transaction::new(&book.0), usd(money))
            .into_iter();
        crossed.extend(told.filter_map(|notice| match notice {
            Notice::Crossing(crossing) => Some(crossing.to_string()),
            Notice::Overrun(_) => None,
        }));
    }
    assert_eq!(
        crossed,
        [
            "80 % or more of the limit of this node for the day/2026-11-22 are used: 0.800000000 of 1.000000000 USD"
        ]
    );
}
