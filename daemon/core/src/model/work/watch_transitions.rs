//! The transitions of watch rules.

use crate::model::event::{ProcessWatchChanged, ProcessWatched};
use crate::model::process_watch::{
    MOST_WATCH_RULES, ProcessWatch, WatchRule, WatchStatus, WatchedRule,
};

impl ProcessWatch {
    /// Records matches. Returns `false` and changes nothing if they do not follow those on record.
    pub(crate) fn record(&mut self, watched: &ProcessWatched) -> bool {
        let mut rules = self.rules.iter_mut();
        let Some(rule) = rules.find(|of| of.rule.id == watched.rule) else {
            return false;
        };
        if !rule.is_active() || rule.to != watched.from || watched.to <= watched.from {
            return false;
        }
        rule.to = watched.to;
        rule.matched += watched.matched;
        rule.minute = Some(watched.minute);
        if watched.suppressed > 0 {
            rule.status = WatchStatus::Resting;
        } else if rule.rule.once {
            rule.status = WatchStatus::Over;
        }
        true
    }

    /// Adds the rules, or begins those with the same ids anew. Returns `false` and changes nothing if they are too many.
    pub(crate) fn change(&mut self, changed: &ProcessWatchChanged) -> bool {
        let place = |rules: &[WatchedRule], rule: &WatchRule| {
            rules.iter().position(|of| of.rule.id == rule.id)
        };
        let new = changed.rules.iter();
        let new = new.filter(|rule| place(&self.rules, rule).is_none());
        if self.rules.len() + new.count() > MOST_WATCH_RULES {
            return false;
        }
        for rule in &changed.rules {
            let mut begun = WatchedRule::new(rule.clone(), changed.from);
            let Some(place) = place(&self.rules, rule) else {
                self.rules.push(begun);
                continue;
            };
            let known = &mut self.rules[place];
            if known.is_active() && known.rule == *rule {
                continue;
            }
            begun.matched = known.matched;
            begun.to = begun.to.max(known.to);
            *known = begun;
        }
        true
    }
}
