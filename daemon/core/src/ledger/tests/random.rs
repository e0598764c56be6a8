//! Random operations against a second ledger, which stores no sums and recounts everything.

use std::collections::BTreeMap;

use super::*;

/// Operations of one test; `RYE_LEDGER_OPERATIONS` overrides the number.
const OPERATIONS: u32 = 60_000;
/// Largest number of simultaneous accounts.
const MOST_ACCOUNTS: usize = 14;

/// A pseudo-random generator (xorshift) with a fixed sequence.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let length = u64::try_from(from.len()).unwrap();
        (length > 0).then(|| from[usize::try_from(self.below(length)).unwrap()].clone())
    }

    fn amount(&mut self) -> Usd {
        Usd::from_nanos(self.below(100))
    }
}

/// Own facts of an account without any sums: its calls, and the accounts below it.
#[derive(Debug, Clone, Default)]
struct Counted {
    parent: Option<AccountId>,
    limit: Option<u64>,
    settled: Vec<u64>,
    hold: Option<u64>,
    ended: bool,
    closed: bool,
}

/// All accounts that ever existed.
#[derive(Debug, Clone, Default)]
struct Recount(BTreeMap<AccountId, Counted>);

impl Recount {
    fn below<'a>(&'a self, id: &'a AccountId) -> impl Iterator<Item = &'a AccountId> {
        let children = self.0.iter();
        children
            .filter(move |(_, child)| child.parent.as_ref() == Some(id))
            .map(|(id, _)| id)
    }

    fn used(&self, id: &AccountId, holds: bool) -> u64 {
        let account = &self.0[id];
        let own: u64 = account.settled.iter().sum();
        let hold = account.hold.filter(|_| holds).unwrap_or(0);
        let below: u64 = self.below(id).map(|child| self.claim(child, holds)).sum();
        own + hold + below
    }

    fn claim(&self, id: &AccountId, holds: bool) -> u64 {
        let account = &self.0[id];
        let used = self.used(id, holds);
        match (account.closed, account.limit) {
            (false, Some(limit)) if account.parent.is_some() => used.max(limit),
            (_, _) => used,
        }
    }

    fn close_what_has_ended(&mut self) {
        loop {
            let done = self.0.iter().find(|(id, account)| {
                account.ended && !account.closed && self.below(id).all(|child| self.0[child].closed)
            });
            let Some(id) = done.map(|(id, _)| id.clone()) else {
                return;
            };
            self.0.get_mut(&id).unwrap().closed = true;
        }
    }

    fn take(&mut self, id: &AccountId, operation: &Operation) {
        if let Operation::Open { parent, limit } = operation {
            let account = Counted {
                parent: parent.clone(),
                limit: limit.map(Usd::nanos),
                ..Counted::default()
            };
            self.0.insert(id.clone(), account);
            return;
        }
        let account = self.0.get_mut(id).unwrap();
        match operation {
            Operation::Open { .. } => unreachable!("it was handled above"),
            Operation::Hold { amount, .. } => account.hold = Some(amount.nanos()),
            Operation::Settle { usage, .. } => {
                account.hold = None;
                account.settled.push(usage.money.nanos());
            }
            Operation::Raise { to } => account.limit = Some(to.nanos()),
            Operation::End => account.ended = true,
            Operation::Adopt => account.ended = false,
            Operation::Reopen { limit, .. } => {
                account.limit = limit.map(Usd::nanos).or(account.limit);
                (account.ended, account.closed) = (false, false);
            }
        }
        self.close_what_has_ended();
    }

    fn open(&self) -> Vec<AccountId> {
        let open = self.0.iter().filter(|(_, account)| !account.closed);
        open.map(|(id, _)| id.clone()).collect()
    }
}

/// Checks that the ledger and its recount agree on every open account.
fn agree(ledger: &Ledger, recount: &Recount) {
    assert_eq!(ledger.recount(), Ok(()));
    let open = recount.open();
    assert_eq!(ledger.accounts().count(), open.len());
    let mut held = 0;
    let mut live: BTreeMap<AccountId, usize> = BTreeMap::new();
    for id in open {
        *live.entry(ledger.root(&id).clone()).or_default() += usize::from(!recount.0[&id].ended);
        let account = ledger.account(&id).unwrap();
        let counted = &recount.0[&id];
        assert_eq!(account.used().nanos(), recount.used(&id, true), "{id}");
        assert_eq!(account.floor().nanos(), recount.used(&id, false), "{id}");
        assert_eq!(account.claim().nanos(), recount.claim(&id, true), "{id}");
        assert_eq!(account.held().nanos(), counted.hold.unwrap_or(0));
        assert_eq!(
            account.own.money.nanos(),
            counted.settled.iter().sum::<u64>()
        );
        assert_eq!(account.ended, counted.ended);
        assert!(account.floor() <= account.used());
        held += account.held().nanos();
    }
    live.retain(|_, live| *live > 0);
    assert_eq!(
        ledger.live.len(),
        live.len(),
        "nothing is left of a tree that is over"
    );
    for (root, live) in live {
        assert_eq!(ledger.live(&root), live, "{root}");
    }
    let settled: u64 = recount
        .0
        .values()
        .flat_map(|account| &account.settled)
        .sum();
    let meter = ledger.meter(&meter());
    assert_eq!((meter.spent.nanos(), meter.held.nanos()), (settled, held));
}

fn meter() -> MeterId {
    MeterId("day/2026-11-22".to_owned())
}

/// A log of operations, as replayed after a crash, with the expected state after each of them.
struct Frames {
    /// Stored rows at the start of the log.
    base: Rows,
    operations: Vec<(AccountId, Operation)>,
    was: Vec<Rows>,
}

/// Returns all rows that are stored of a ledger.
fn stored(ledger: &Ledger) -> Rows {
    let open = ledger.accounts();
    Rows {
        open: open
            .map(|(id, account)| (id.clone(), account.clone()))
            .collect(),
        meters: ledger.meters().clone(),
        ..Rows::default()
    }
}

impl Frames {
    fn begin(ledger: &Ledger) -> Self {
        let base = stored(ledger);
        Self {
            was: vec![base.clone()],
            base,
            operations: Vec::new(),
        }
    }

    fn add(&mut self, at: &AccountId, operation: &Operation, ledger: &Ledger) {
        self.operations.push((at.clone(), operation.clone()));
        self.was.push(stored(ledger));
    }

    /// Replays the log up to a random cut, from any stored base, and expects the recorded state.
    fn replay(&self, dice: &mut Dice) {
        let cut = usize::try_from(dice.below(u64::try_from(self.was.len()).unwrap())).unwrap();
        let mut ledger = Ledger::default();
        ledger.enter(self.base.clone());
        for (at, operation) in &self.operations[..cut] {
            let mut sheet = Transaction::new(&ledger);
            sheet.perform(at, operation).unwrap();
            let rows = sheet.into_rows();
            ledger.enter(rows);
        }
        assert_eq!(stored(&ledger), self.was[cut], "{cut} frames");
        assert_eq!(ledger.recount(), Ok(()));
    }
}

struct Trial {
    dice: Dice,
    ledger: Ledger,
    log: Frames,
    recount: Recount,
    closed: BTreeMap<AccountId, Account>,
    names: u32,
    granted: u32,
    waits: [u32; 2],
}

impl Trial {
    fn choose(&mut self) -> Option<(AccountId, Operation)> {
        let open = self.recount.open();
        let dice = &mut self.dice;
        let some = dice.pick(&open);
        let limit = (dice.below(3) > 0).then(|| Usd::from_nanos(dice.below(300)));
        match dice.below(12) {
            0 | 1 if open.len() < MOST_ACCOUNTS => {
                self.names += 1;
                let parent = some.filter(|_| dice.below(4) > 0);
                Some((
                    id(&format!("a{}", self.names)),
                    Operation::Open { parent, limit },
                ))
            }
            2..=4 => {
                let at = some?;
                let calls = self.ledger.account(&at)?.calls;
                let hold = Operation::Hold {
                    call: CallNo(calls.0 + 1),
                    amount: dice.amount(),
                    meters: vec![Metered {
                        id: meter(),
                        limit: Usd::from_nanos(u64::MAX / 2),
                    }],
                };
                Some((at, hold))
            }
            5..=7 => {
                let at = some?;
                let settle = Operation::Settle {
                    call: self.ledger.account(&at)?.calls,
                    usage: Usage {
                        money: dice.amount(),
                        ..Usage::default()
                    },
                    estimated: dice.below(2) == 0,
                };
                Some((at, settle))
            }
            8 => {
                let to = Usd::from_nanos(dice.below(600));
                Some((some?, Operation::Raise { to }))
            }
            9 | 10 => Some((some?, Operation::End)),
            _ if dice.below(2) == 0 => {
                let ended = open.into_iter().filter(|id| self.recount.0[id].ended);
                Some((dice.pick(&ended.collect::<Vec<_>>())?, Operation::Adopt))
            }
            _ => {
                let closed: Vec<_> = self.closed.keys().cloned().collect();
                let at = dice.pick(&closed)?;
                let closed = Box::new(self.closed[&at].clone());
                Some((at, Operation::Reopen { closed, limit }))
            }
        }
    }

    fn turn(&mut self) {
        let Some((at, operation)) = self.choose() else {
            return;
        };
        let mut sheet = Transaction::new(&self.ledger);
        match sheet.perform(&at, &operation) {
            Ok(()) => {
                let rows = sheet.into_rows();
                self.closed.extend(rows.closed.clone());
                self.ledger.enter(rows);
                self.log.add(&at, &operation, &self.ledger);
                self.closed
                    .retain(|id, _| self.ledger.account(id).is_none());
                self.recount.take(&at, &operation);
                self.granted += 1;
                self.has_room(&at, &operation);
            }
            Err(Denied::Short(shortfall)) => {
                self.waits[usize::from(shortfall.wait)] += 1;
                assert_eq!(self.fits_without_holds(&at, &operation), shortfall.wait);
            }
            Err(Denied::Misuse(_)) => {}
        }
        agree(&self.ledger, &self.recount);
        match self.dice.below(150) {
            0 | 1 => self.log.replay(&mut self.dice),
            2 => self.log = Frames::begin(&self.ledger),
            _ => {}
        }
    }

    /// Checks that a granted operation exceeds no limit on the way up whose use it increased.
    fn has_room(&self, at: &AccountId, operation: &Operation) {
        let asks = matches!(operation, Operation::Hold { amount, .. } if *amount > Usd::ZERO);
        if asks {
            assert_eq!(self.ledger.account(at).unwrap().overrun(), Usd::ZERO);
        }
    }

    /// Returns true if the operation would be granted if every open hold settled at nothing.
    fn fits_without_holds(&self, at: &AccountId, operation: &Operation) -> bool {
        let mut sheet = Transaction::new(&self.ledger);
        for (id, account) in self.ledger.accounts() {
            if let Some(hold) = &account.hold {
                let nothing = Operation::Settle {
                    call: hold.call,
                    usage: Usage::default(),
                    estimated: false,
                };
                sheet.perform(id, &nothing).unwrap();
            }
        }
        sheet.perform(at, operation).is_ok()
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the developer chooses how many there are"
)]
fn random_operations_agree_with_a_recount() {
    let asked = std::env::var("RYE_LEDGER_OPERATIONS");
    let operations = asked.map_or(OPERATIONS, |number| number.parse().unwrap());
    let mut trial = Trial {
        dice: Dice(0x9e37_79b9_7f4a_7c15),
        ledger: Ledger::default(),
        log: Frames::begin(&Ledger::default()),
        recount: Recount::default(),
        closed: BTreeMap::new(),
        names: 0,
        granted: 0,
        waits: [0; 2],
    };
    for turn in 0..operations {
        trial.turn();
        if turn % 500 == 499 {
            // The trees of these are over. A recount of all accounts that ever existed would grow without bound.
            trial.ledger = Ledger::default();
            trial.log = Frames::begin(&trial.ledger);
            trial.recount = Recount::default();
            trial.closed.clear();
        }
    }
    let [finally, waits] = trial.waits;
    assert!(
        trial.granted > operations / 4 && finally > operations / 200 && waits > operations / 2000,
        "{} granted, {finally} refused for good, {waits} to wait",
        trial.granted
    );
}
