//! Time of money operations and capability checks in memory.
//!
//! Run with `cargo bench -p rye-core --bench ledger`. Rows alternate, round by round. Each row prints the median, the
//! fastest and the slowest round, in nanoseconds per operation.
//!
//! * `hold and settle, depth N`: one paid call of the lowest of N chained, pooled accounts; all sums up to the root change
//! * `hold and settle, reserved`: the same at depth 10, with a reservation of its own; nothing above it changes
//! * `5 layers x 20 patterns`: a capability check in which only the last pattern of each layer matches
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::hint::black_box;
use std::time::Instant;

use rye_core::capability::{Capability, Layer, Primary, check};
use rye_core::id::{ItemId, ItemRef, RunId};
use rye_core::ledger::{AccountId, CallNo, Ledger, Operation, Transaction, Usage};
use rye_core::money::Usd;

const ROUNDS: usize = 15;
const CALLS: u32 = 20_000;

/// Name of a measurement, and its work.
type Row<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// A ledger with one chain of accounts, and the name of the lowest.
struct Line {
    ledger: Ledger,
    lowest: AccountId,
    calls: u32,
}

impl Line {
    fn new(depth: u32, reserved: bool) -> Self {
        let mut line = Self {
            ledger: Ledger::default(),
            lowest: AccountId(RunId::new("root-1-a").expect("a legal id")),
            calls: 0,
        };
        line.open(None, true);
        for number in 1..depth {
            let above = line.lowest.clone();
            let name = format!("level-{number}-a");
            line.lowest = AccountId(RunId::new(name).expect("a legal id"));
            line.open(Some(above), reserved && number + 1 == depth);
        }
        line
    }

    fn open(&mut self, parent: Option<AccountId>, limited: bool) {
        let limit = limited.then(|| Usd::from_nanos(1_000_000_000_000));
        let limit = if parent.is_none() {
            Some(Usd::from_nanos(u64::MAX / 2))
        } else {
            limit
        };
        self.perform(&Operation::Open { parent, limit });
    }

    fn perform(&mut self, operation: &Operation) {
        let mut sheet = Transaction::new(&self.ledger);
        let granted = sheet.perform(&self.lowest, operation);
        granted.expect("there is money for it");
        let rows = sheet.into_rows();
        self.ledger.enter(rows);
    }

    fn pay(&mut self) {
        self.calls += 1;
        let call = CallNo(self.calls);
        self.perform(&Operation::Hold {
            call,
            amount: Usd::from_nanos(50_000),
            meters: Vec::new(),
        });
        self.perform(&Operation::Settle {
            call,
            usage: Usage {
                money: Usd::from_nanos(20_000),
                calls: 1,
                ..Usage::default()
            },
            estimated: false,
        });
    }
}

/// Returns the average time of `work` over `CALLS` calls, in nanoseconds.
fn time(mut work: impl FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..CALLS {
        work();
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn layers() -> Vec<Layer> {
    let patterns = (0..19).map(|number| format!("rye.execute.tool.team{number}.*"));
    let patterns: Vec<_> = patterns
        .chain(["rye.execute.tool.rye.*".to_owned()])
        .collect();
    let layer = |number: u32| Layer {
        source: format!("layer {number}"),
        patterns: patterns.clone(),
    };
    (0..5).map(layer).collect()
}

fn main() {
    let mut depth_1 = Line::new(1, false);
    let mut depth_10 = Line::new(10, false);
    let mut reserved = Line::new(10, true);
    let layers = layers();
    let item = ItemRef::tool(ItemId::new("rye/bash").expect("a legal id"));
    let action = Capability::of(Primary::Execute, &item);
    let mut rows: [Row<'_>; 4] = [
        ("hold and settle, depth 1", Box::new(|| depth_1.pay())),
        ("hold and settle, depth 10", Box::new(|| depth_10.pay())),
        ("hold and settle, reserved", Box::new(|| reserved.pay())),
        (
            "5 layers x 20 patterns",
            Box::new(|| {
                let allowed = check(black_box(&layers), black_box(&action));
                assert!(black_box(allowed).is_ok(), "the last pattern allows it");
            }),
        ),
    ];
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (times, (_, work)) in times.iter_mut().zip(&mut rows) {
            times.push(time(work));
        }
    }
    for (times, (name, _)) in times.iter_mut().zip(&rows) {
        times.sort_by(f64::total_cmp);
        let (median, slowest, fastest) = (times[ROUNDS / 2], times[ROUNDS - 1], times[0]);
        println!("{name:<28} {median:>8.0} ns   ({fastest:.0} … {slowest:.0})");
    }
}
