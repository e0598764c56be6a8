//! Operations of one commit, performed over an unchanged ledger.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Account, AccountId, CallNo, Denied, Hold, Ledger, LimitId, Meter, MeterId, Metered, Misuse,
    Operation, Rows, Shortfall, Usage,
};
use crate::money::Usd;

/// Accounts in their state after the operations so far. An operation costs at most the depth of the tree.
#[derive(Debug, Clone)]
pub struct Transaction<'a> {
    ledger: &'a Ledger,
    /// Limits at which earlier requests wait for money.
    contended: BTreeSet<LimitId>,
    rows: Rows,
}

/// Increase of use and of floor by an operation.
#[derive(Debug, Clone, Copy)]
struct Growth {
    used: Usd,
    floor: Usd,
}

impl Growth {
    const fn by(amount: Usd) -> Self {
        Self {
            used: amount,
            floor: amount,
        }
    }
}

/// Figure that is compared with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Used,
    /// The use if every open hold settled at nothing.
    Floor,
}

impl Measure {
    fn of(self, account: &Account) -> Usd {
        match self {
            Self::Used => account.used(),
            Self::Floor => account.floor(),
        }
    }

    const fn growth(self, growth: Growth) -> Usd {
        match self {
            Self::Used => growth.used,
            Self::Floor => growth.floor,
        }
    }
}

impl<'a> Transaction<'a> {
    /// Creates a sheet without operations.
    pub const fn new(ledger: &'a Ledger) -> Self {
        Self::queued_after(ledger, BTreeSet::new())
    }

    /// Creates a sheet for a request that queues after others, which wait for money at `promised`. It grants nothing at
    /// those limits until the others are served, except a raise, which does not wait.
    pub const fn queued_after(ledger: &'a Ledger, promised: BTreeSet<LimitId>) -> Self {
        Self {
            ledger,
            contended: promised,
            rows: Rows {
                open: BTreeMap::new(),
                closed: BTreeMap::new(),
                meters: BTreeMap::new(),
            },
        }
    }

    /// Performs `operation` on the account `id`. After an error the sheet is unusable.
    pub fn perform(&mut self, id: &AccountId, operation: &Operation) -> Result<(), Denied> {
        match operation {
            Operation::Open { parent, limit } => self.open(id, parent.as_ref(), *limit),
            Operation::Hold {
                call,
                amount,
                meters,
            } => self.hold(id, *call, *amount, meters),
            Operation::Settle {
                call,
                usage,
                estimated,
            } => Ok(self.settle(id, *call, usage, *estimated)?),
            Operation::Raise { to } => self.raise(id, *to),
            Operation::End => Ok(self.end(id)?),
            Operation::Adopt => {
                self.change(id, |account| {
                    account.ended = false;
                    Ok(())
                })?;
                Ok(())
            }
            Operation::Reopen { closed, limit } => self.reopen(id, closed, *limit),
        }
    }

    /// Returns the changed rows.
    pub fn into_rows(self) -> Rows {
        self.rows
    }

    /// Returns an open account in its current state on the sheet.
    pub fn account(&self, id: &AccountId) -> Result<&Account, Misuse> {
        if let Some(account) = self.rows.open.get(id) {
            return Ok(account);
        }
        let known = self.ledger.account(id);
        known
            .filter(|_| !self.rows.closed.contains_key(id))
            .ok_or(Misuse::NoAccount)
    }

    fn open(
        &mut self,
        id: &AccountId,
        parent: Option<&AccountId>,
        limit: Option<Usd>,
    ) -> Result<(), Denied> {
        self.is_new(id)?;
        let account = Account {
            parent: parent.cloned(),
            limit,
            ..Account::default()
        };
        self.room(parent, Growth::by(account.reserved()), &[], &self.contended)?;
        Ok(self.insert(id, account, |_| Ok(()))?)
    }

    fn is_new(&self, id: &AccountId) -> Result<(), Misuse> {
        match self.account(id) {
            Ok(_) => Err(Misuse::Exists),
            Err(_) => Ok(()),
        }
    }

    fn hold(
        &mut self,
        id: &AccountId,
        call: CallNo,
        amount: Usd,
        meters: &[Metered],
    ) -> Result<(), Denied> {
        let account = self.account(id)?;
        if account.ended {
            return Err(Misuse::Ended.into());
        }
        if account.hold.is_some() {
            return Err(Misuse::CallOpen.into());
        }
        if Some(call.0) != account.calls.0.checked_add(1) {
            return Err(Misuse::CallNumber.into());
        }
        self.room(Some(id), Growth::by(amount), meters, &self.contended)?;
        for metered in meters {
            let mut meter = self.meter(&metered.id);
            meter.held = meter.held.checked_add(amount).ok_or(Misuse::Overflow)?;
            self.rows.meters.insert(metered.id.clone(), meter);
        }
        let meters = meters.to_vec();
        self.change(id, |account| {
            account.calls = call;
            account.hold = Some(Hold {
                call,
                amount,
                meters,
            });
            Ok(())
        })?;
        Ok(())
    }

    fn settle(
        &mut self,
        id: &AccountId,
        call: CallNo,
        usage: &Usage,
        estimated: bool,
    ) -> Result<(), Misuse> {
        let hold = self.account(id)?.hold.clone();
        let hold = hold
            .filter(|hold| hold.call == call)
            .ok_or(Misuse::NoSuchCall)?;
        for Metered { id, .. } in &hold.meters {
            let mut meter = self.meter(id);
            meter.held = meter.held.saturating_sub(hold.amount);
            meter.spent = meter
                .spent
                .checked_add(usage.money)
                .ok_or(Misuse::Overflow)?;
            self.rows.meters.insert(id.clone(), meter);
        }
        self.change(id, |account| {
            account.hold = None;
            account.own = account.own.plus(usage).ok_or(Misuse::Overflow)?;
            if estimated {
                account.estimated = plus(account.estimated, usage.money)?;
            }
            Ok(())
        })
    }

    fn raise(&mut self, id: &AccountId, to: Usd) -> Result<(), Denied> {
        let account = self.account(id)?;
        if account.ended {
            return Err(Misuse::Ended.into());
        }
        if account.parent.is_none() && account.limit.is_none() {
            return Err(Misuse::Unlimited.into());
        }
        if account.limit.is_some_and(|limit| to <= limit) || to < account.used() {
            return Err(Misuse::NotARaise.into());
        }
        let parent = account.parent.clone();
        let growth = Growth {
            used: to.saturating_sub(account.claim()),
            floor: to.saturating_sub(account.floor_claim()),
        };
        self.room(parent.as_ref(), growth, &[], &BTreeSet::new())?;
        self.change(id, |account| {
            account.limit = Some(to);
            Ok(())
        })?;
        Ok(())
    }

    fn end(&mut self, id: &AccountId) -> Result<(), Misuse> {
        let account = self.account(id)?;
        if account.ended {
            return Err(Misuse::Ended);
        }
        if account.hold.is_some() {
            return Err(Misuse::CallOpen);
        }
        if account.below > 0 {
            return self.change(id, |account| {
                account.ended = true;
                Ok(())
            });
        }
        let mut closing = Some(id.clone());
        while let Some(id) = closing {
            closing = self.close(&id)?;
        }
        Ok(())
    }

    /// Closes an account. Returns its parent if that has ended and has no open account left below it.
    fn close(&mut self, id: &AccountId) -> Result<Option<AccountId>, Misuse> {
        let account = Account {
            ended: true,
            ..self.account(id)?.clone()
        };
        let (claim, floor_claim) = (account.claim(), account.floor_claim());
        let (total, estimated) = (account.total()?, account.total_estimated());
        let parent = account.parent.clone();
        self.rows.open.remove(id);
        self.rows.closed.insert(id.clone(), account);
        let Some(parent) = parent else {
            return Ok(None);
        };
        self.change(&parent, |above| {
            above.below = above.below.checked_sub(1).ok_or(Misuse::Overflow)?;
            above.open = minus(above.open, claim)?;
            above.open_floor = minus(above.open_floor, floor_claim)?;
            above.closed = above.closed.plus(&total).ok_or(Misuse::Overflow)?;
            above.closed_estimated = plus(above.closed_estimated, estimated)?;
            Ok(())
        })?;
        let above = self.account(&parent)?;
        Ok((above.ended && above.below == 0).then_some(parent))
    }

    fn reopen(
        &mut self,
        id: &AccountId,
        closed: &Account,
        limit: Option<Usd>,
    ) -> Result<(), Denied> {
        self.is_new(id)?;
        let account = Account {
            limit: limit.or(closed.limit),
            ended: false,
            ..closed.clone()
        };
        let total = account.total()?;
        let growth = Growth {
            used: account.claim().saturating_sub(total.money),
            floor: account.floor_claim().saturating_sub(total.money),
        };
        self.room(account.parent.as_ref(), growth, &[], &self.contended)?;
        let estimated = account.total_estimated();
        Ok(self.insert(id, account, |above| {
            above.closed = above.closed.minus(&total).ok_or(Misuse::Overflow)?;
            above.closed_estimated = minus(above.closed_estimated, estimated)?;
            Ok(())
        })?)
    }

    /// Adds an open account; `change` applies further changes to its parent.
    fn insert(
        &mut self,
        id: &AccountId,
        account: Account,
        change: impl FnOnce(&mut Account) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        let (claim, floor_claim) = (account.claim(), account.floor_claim());
        let parent = account.parent.clone();
        self.rows.closed.remove(id);
        self.rows.open.insert(id.clone(), account);
        let Some(parent) = parent else {
            return Ok(());
        };
        self.change(&parent, |above| {
            change(above)?;
            above.below = above.below.checked_add(1).ok_or(Misuse::Overflow)?;
            above.open = plus(above.open, claim)?;
            above.open_floor = plus(above.open_floor, floor_claim)?;
            Ok(())
        })
    }

    /// Changes an account, and all accounts above it as far as their claims change.
    fn change(
        &mut self,
        id: &AccountId,
        change: impl FnOnce(&mut Account) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        let mut account = self.account(id)?.clone();
        let (mut claim, mut floor_claim) = (account.claim(), account.floor_claim());
        change(&mut account)?;
        let mut id = id.clone();
        loop {
            check_fits(&account)?;
            let (claim_now, floor_now) = (account.claim(), account.floor_claim());
            let parent = account.parent.clone();
            self.rows.open.insert(id, account);
            let Some(parent) = parent.filter(|_| (claim, floor_claim) != (claim_now, floor_now))
            else {
                return Ok(());
            };
            account = self.account(&parent)?.clone();
            let before = (account.claim(), account.floor_claim());
            account.open = plus(minus(account.open, claim)?, claim_now)?;
            account.open_floor = plus(minus(account.open_floor, floor_claim)?, floor_now)?;
            (claim, floor_claim) = before;
            id = parent;
        }
    }

    /// Checks that `growth` fits at `from`, above it and in the meters. Limits in `promised` count as full.
    fn room(
        &self,
        from: Option<&AccountId>,
        growth: Growth,
        meters: &[Metered],
        promised: &BTreeSet<LimitId>,
    ) -> Result<(), Denied> {
        let Err(denied) = self.fits(Measure::Used, from, growth, meters, promised) else {
            return Ok(());
        };
        let wait = self
            .fits(Measure::Floor, from, growth, meters, &BTreeSet::new())
            .is_ok();
        Err(match denied {
            Denied::Short(shortfall) => Denied::Short(Shortfall { wait, ..shortfall }),
            misuse @ Denied::Misuse(_) => misuse,
        })
    }

    fn fits(
        &self,
        measure: Measure,
        from: Option<&AccountId>,
        growth: Growth,
        meters: &[Metered],
        promised: &BTreeSet<LimitId>,
    ) -> Result<(), Denied> {
        let check = |asked: Usd, lacking: &dyn Fn() -> LimitId, limit: Option<Usd>, used: Usd| {
            let after = plus(used, asked)?;
            let is_promised = || !promised.is_empty() && promised.contains(&lacking());
            match limit.filter(|limit| after > *limit || is_promised()) {
                None => Ok(after),
                Some(limit) => Err(Denied::Short(Shortfall {
                    requested: asked,
                    at: lacking(),
                    limit,
                    used,
                    wait: false,
                })),
            }
        };
        let asked = measure.growth(growth);
        for Metered { id, limit } in meters {
            let meter = self.meter(id);
            let used = match measure {
                Measure::Used => plus(meter.spent, meter.held)?,
                Measure::Floor => meter.spent,
            };
            check(asked, &|| LimitId::Meter(id.clone()), Some(*limit), used)?;
        }
        let (mut at, mut asked) = (from, asked);
        while let Some(id) = at.filter(|_| asked > Usd::ZERO) {
            let account = self.account(id)?;
            let used = measure.of(account);
            let lacking = || LimitId::Account(id.clone());
            let after = check(asked, &lacking, account.limit, used)?;
            let reserved = account.reserved();
            asked = minus(after.max(reserved), used.max(reserved))?;
            at = account.parent.as_ref();
        }
        Ok(())
    }

    pub(super) fn meter(&self, id: &MeterId) -> Meter {
        let changed = self.rows.meters.get(id).copied();
        changed.unwrap_or_else(|| self.ledger.meter(id))
    }
}

fn plus(a: Usd, b: Usd) -> Result<Usd, Misuse> {
    a.checked_add(b).ok_or(Misuse::Overflow)
}

fn minus(a: Usd, b: Usd) -> Result<Usd, Misuse> {
    a.checked_sub(b).ok_or(Misuse::Overflow)
}

/// Checks that the sum of the parts of an account does not overflow.
fn check_fits(account: &Account) -> Result<(), Misuse> {
    let parts = [account.held(), account.open, account.closed.money];
    parts
        .into_iter()
        .try_fold(account.own.money, plus)
        .map(drop)
}
