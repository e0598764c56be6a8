//! Costs of calls.

use super::*;
use crate::money::Price;

fn tier(until_prompt: Option<u64>, prices: [&str; 4]) -> Tier {
    let [input, cache_read, cache_write, output] = prices.map(|text| Price::parse(text).unwrap());
    Tier {
        until_prompt,
        input,
        cache_read,
        cache_write,
        output,
    }
}

fn two() -> Prices {
    Prices::new(vec![
        tier(Some(100), ["1", "0.1", "1.25", "5"]),
        tier(None, ["5", "0.5", "6.25", "25"]),
    ])
    .unwrap()
}

#[test]
fn the_first_tier_that_holds_prices_the_whole_request() {
    let tokens = Tokens {
        input: 40,
        cache_read: 40,
        cache_write: 20,
        output: 10,
        reasoning: 4,
    };
    // 40·1 + 40·0.1 + 20·1.25 + 10·5 = 119 millionths of a dollar
    assert_eq!(two().cost(&tokens), Some(usd("0.000119")));
    let more = Tokens {
        input: 41,
        ..tokens
    };
    assert_eq!(two().cost(&more), Some(usd("0.000600")));
    assert_eq!(Prices::free().cost(&more), Some(Usd::ZERO));
    let entry = two().entry(&tokens).unwrap();
    assert_eq!(
        (entry.money, entry.calls, entry.turns),
        (usd("0.000119"), 1, 1)
    );
    assert_eq!((entry.cache_read, entry.reasoning), (40, 4));
    let all = Tokens {
        output: u64::MAX,
        ..tokens
    };
    assert_eq!(two().cost(&all), None);
}

#[test]
fn hold_covers_largest_cost() {
    // With a tenth added there are 110 tokens: the more expensive tier may apply.
    assert_eq!(two().hold(100, 10), Some(usd("0.0009375")));
    // With 99 tokens it may not.
    assert_eq!(two().hold(90, 10), Some(usd("0.00017375")));
    assert_eq!(Prices::free().hold(u64::MAX / 2, u64::MAX), Some(Usd::ZERO));
    assert_eq!(two().hold(u64::MAX, 0), None);
    let prices = two();
    for input in [0_u64, 1, 50, 90, 91, 100, 1000] {
        let hold = prices.hold(input, 77).unwrap();
        for part in 0..=input {
            for tokens in [
                Tokens {
                    input: part,
                    cache_write: input - part,
                    output: 77,
                    ..Tokens::default()
                },
                Tokens {
                    input: part,
                    cache_read: input - part,
                    output: 3,
                    ..Tokens::default()
                },
            ] {
                assert!(prices.cost(&tokens).unwrap() <= hold, "{tokens:?}");
            }
        }
    }
}

#[test]
fn affordable_output_is_bounded_by_budget() {
    let prices = two();
    for money in ["0", "0.0001", "0.00012375", "0.00012876", "0.001", "1"] {
        let money = usd(money);
        let most = prices.affordable(money, 90, 500);
        if most > 0 {
            assert!(prices.hold(90, most).unwrap() <= money);
        }
        if most < 500 {
            assert!(prices.hold(90, most + 1).unwrap() > money, "{money}");
        }
    }
    assert_eq!(prices.affordable(usd("1"), 90, 500), 500);
    assert_eq!(prices.affordable(Usd::ZERO, 90, 500), 0);
    assert_eq!(
        Prices::free().affordable(Usd::ZERO, 90, u64::MAX - 1),
        u64::MAX - 1
    );
}

#[test]
fn tiers_rise_and_end_without_a_bound() {
    let at = |bound| tier(bound, ["1"; 4]);
    for (tiers, fine) in [
        (vec![], false),
        (vec![at(None)], true),
        (vec![at(Some(1))], false),
        (vec![at(Some(1)), at(Some(2)), at(None)], true),
        (vec![at(Some(2)), at(Some(2)), at(None)], false),
        (vec![at(None), at(None)], false),
    ] {
        assert_eq!(Prices::new(tiers.clone()).is_ok(), fine, "{tiers:?}");
    }
}

#[test]
fn call_size_fits_limits() {
    let mut model = model();
    model.prices = Prices::new(vec![tier(None, ["1", "0.1", "1.25", "5"])]).unwrap();
    model.max_output = 4000;
    let fresh = CallContext {
        new_bytes: 2500,
        ..CallContext::default()
    };
    let size = model.size(&fresh).unwrap();
    // 1100 tokens at the most expensive input price, 4000 of output.
    assert_eq!((size.input, size.max_output), (1000, 4000));
    assert_eq!(size.hold, usd("0.021375"));
    let later = CallContext {
        reported: 70,
        ..fresh
    };
    assert_eq!(model.size(&later).unwrap().input, 1070);

    let tokens = |left| {
        model.size(&CallContext {
            tokens_left: Some(left),
            ..fresh
        })
    };
    assert_eq!(tokens(2000).unwrap().max_output, 2000);
    assert_eq!(tokens(1024).unwrap().max_output, 1024);
    assert_eq!(
        tokens(1023),
        Err(TooSmall::Tokens {
            left: 1023,
            least: 1024
        })
    );

    let money = |left: &str| {
        model.size(&CallContext {
            money_left: Some(usd(left)),
            ..fresh
        })
    };
    let cut = money("0.011375").unwrap();
    assert_eq!((cut.max_output, cut.hold), (2000, usd("0.011375")));
    assert_eq!(money("1").unwrap().max_output, 4000);
    assert_eq!(money("0.006495").unwrap().max_output, 1024);
    assert_eq!(
        money("0.006494999"),
        Err(TooSmall::Money {
            left: usd("0.006494999"),
            least: usd("0.006495")
        })
    );
    // A directive with a smaller limit gets a smaller answer.
    model.max_output = 10;
    assert_eq!(model.size(&fresh).unwrap().max_output, 10);
    let endless = CallContext {
        reported: u64::MAX,
        ..fresh
    };
    assert_eq!(model.size(&endless), Err(TooSmall::Cost));
}
