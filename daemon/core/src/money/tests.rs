use proptest::prelude::*;
use serde_json::json;

use super::*;

fn nanos(text: &str) -> Result<u64, InvalidUsd> {
    Usd::parse(text).map(Usd::nanos)
}

#[test]
fn amounts_are_read_digit_by_digit() {
    let table = [
        ("0", 0),
        ("0.0000000000000", 0),
        ("-0.00", 0),
        ("1", 1_000_000_000),
        ("0.1", 100_000_000),
        ("0.000000001", 1),
        ("1e-9", 1),
        ("2.50", 2_500_000_000),
        ("0.5000000000000", 500_000_000),
        ("12E2", 1_200_000_000_000),
        ("000.25", 250_000_000),
        (" 3 ", 3_000_000_000),
        ("1000000", 1_000_000_000_000_000),
    ];
    for (text, amount) in table {
        assert_eq!(nanos(text), Ok(amount), "{text}");
    }
}

#[test]
fn invalid_amounts_are_refused_with_reason() {
    for text in [
        "", ".", "1.", ".5", "+1", "1,5", "1e", "NaN", "inf", "0x10", "1 000", "--1", "$1",
    ] {
        assert!(
            matches!(nanos(text), Err(InvalidUsd::NotANumber(_))),
            "{text}"
        );
    }
    assert!(matches!(nanos("-0.01"), Err(InvalidUsd::Negative(_))));
    assert!(matches!(nanos("0.0000000001"), Err(InvalidUsd::TooFine(_))));
    assert!(matches!(nanos("1e-10"), Err(InvalidUsd::TooFine(_))));
    for text in [
        "1e30",
        "1000000.000000001",
        "1e2147483647",
        "99999999999999999999999999",
    ] {
        assert!(
            matches!(nanos(text), Err(InvalidUsd::TooLarge(_))),
            "{text}"
        );
    }
}

#[test]
fn numbers_of_files_are_read_through_their_text() {
    let read = |value| Usd::from_json(&value).map(Usd::nanos);
    assert_eq!(read(json!(0.1)), Ok(100_000_000));
    assert_eq!(read(json!(3)), Ok(3_000_000_000));
    assert_eq!(read(json!("0.02")), Ok(20_000_000));
    assert!(read(json!(1e30)).is_err());
    assert!(read(json!(-1)).is_err());
    for other in [json!(null), json!(true), json!([1]), json!({"usd": 1})] {
        assert!(matches!(read(other), Err(InvalidUsd::NotANumber(_))));
    }
}

#[test]
fn foreign_stored_amounts_are_refused() {
    for text in [
        "1",
        "\"1\"",
        "\"1.0\"",
        "\"1.+00000000\"",
        "\"-1.000000000\"",
        "\"99999999999.000000000\"",
    ] {
        assert!(serde_json::from_str::<Usd>(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn displayed_amount_reads_back(nanos in 0..=MOST_DOLLARS * NANOS) {
        let amount = Usd::from_nanos(nanos);
        prop_assert_eq!(Usd::parse(&amount.to_string()), Ok(amount));
    }

    #[test]
    fn stored_amount_reads_back(nanos: u64) {
        let amount = Usd::from_nanos(nanos);
        let text = serde_json::to_string(&amount).unwrap();
        prop_assert_eq!(&text, &format!("\"{amount}\""));
        prop_assert_eq!(serde_json::from_str::<Usd>(&text).unwrap(), amount);
    }

    #[test]
    fn amount_parser_never_panics(text in "\\PC*") {
        drop(Usd::parse(&text));
    }
}

#[test]
fn prices_are_for_a_million_tokens() {
    let price = |text: &str| Price::parse(text).unwrap();
    for (text, tokens, numerator) in [
        ("0", 5, 0),
        ("2", 1_000_000, 2_000_000_000_000_000),
        ("0.10", 3, 300_000_000),
        ("10000", 1_000_000_000, 10_000_000_000_000_000_000_000),
    ] {
        assert_eq!(price(text).of(tokens), numerator, "{text}");
    }
    assert!(price("3") > price("2.999999999"));
    assert!(matches!(
        Price::parse("10000.01"),
        Err(InvalidUsd::TooDear(_))
    ));
    assert!(matches!(Price::parse("-1"), Err(InvalidUsd::Negative(_))));
    assert!(matches!(
        Price::parse("0.0000000001"),
        Err(InvalidUsd::TooFine(_))
    ));
    assert_eq!(Price::from_json(&json!(2.5)), Ok(price("2.50")));
    assert!(Price::from_json(&json!(null)).is_err());
}

#[test]
fn costs_are_rounded_up_once() {
    let price = Price::parse("0.000001").unwrap();
    // Three times a third of a nano-dollar is one nano-dollar, not three.
    assert_eq!(
        Price::total([price.of(1), price.of(1)]),
        Some(Usd::from_nanos(1))
    );
    assert_eq!(Price::total([price.of(1000)]), Some(Usd::from_nanos(1)));
    assert_eq!(Price::total([price.of(1001)]), Some(Usd::from_nanos(2)));
    assert_eq!(Price::total([]), Some(Usd::ZERO));
    let dearest = Price::parse("10000").unwrap();
    assert_eq!(
        Price::total([dearest.of(1_000_000_000)]),
        Some(Usd::from_nanos(10_000_000_000_000_000))
    );
    assert_eq!(Price::total([dearest.of(u64::MAX)]), None);
    assert_eq!(Price::total([u128::MAX, 1]), None);
}

#[test]
fn a_price_is_stored_as_it_is_written() {
    let price = Price::parse("2.50").unwrap();
    let stored = serde_json::to_string(&price).unwrap();
    assert_eq!(stored, "\"2.500000000\"");
    assert_eq!(serde_json::from_str::<Price>(&stored).unwrap(), price);
}
