//! Permissions of a directive: patterns of capabilities, and the risks that its author accepts.

use std::time::Duration;

use super::read::{Element, Reader, child, elements, suggestion, text_of, text_start};
use super::shape::{self, Shape};
use super::{Acknowledged, Permissions};
use crate::capability::{self, Capability};
use crate::clock;
use crate::error::excerpt;
use crate::model::{ApprovalRule, Effect, OnExpiry};

const PRIMARIES: [&str; 3] = ["execute", "fetch", "sign"];
const TYPES: [&str; 4] = ["tool", "directive", "knowledge", "config"];
/// The classes of risk that may be acknowledged.
const RISKS: [&str; 4] = ["safe", "write", "elevated", "unrestricted"];

impl Reader<'_, '_> {
    /// Reads the declared permissions, `None` if there are none, and the acknowledged risks.
    pub(super) fn permissions(
        &mut self,
        metadata: Element<'_>,
    ) -> (Option<Permissions>, Vec<Acknowledged>) {
        let Some(element) = child(metadata, "permissions") else {
            return (None, Vec::new());
        };
        self.check(element, &shape::PERMISSIONS);
        let mut found = Permissions {
            written: self.source.written(element.range()).to_owned(),
            ..Permissions::default()
        };
        match text_of(element).as_str() {
            "" => {}
            "*" => found.patterns.push("rye.*".to_owned()),
            text => {
                let message = format!(
                    "the text of <permissions> is `*` or nothing, not `{}`; name items in <execute>, <fetch> and <sign>",
                    excerpt(text)
                );
                self.error("unexpected_text", text_start(element), message);
            }
        }
        for primary in PRIMARIES {
            for element in elements(element, primary) {
                self.primary(element, primary, &mut found);
            }
        }
        for approve in elements(element, "approve") {
            self.approve(approve, &mut found);
        }
        let risks = elements(element, "acknowledge");
        let acknowledged = risks.filter_map(|risk| self.acknowledged(risk)).collect();
        (Some(found), acknowledged)
    }

    fn primary(&mut self, element: Element<'_>, primary: &str, found: &mut Permissions) {
        if element.has_attribute("resource") || element.has_attribute("action") {
            return self.old_form(element, found);
        }
        let shape = Shape {
            attributes: &["effect"],
            ..shape::PRIMARY
        };
        self.check(element, &shape);
        let effect = self.effect(element);
        let mut patterns = self.patterns(element, primary);
        if let Some(effect) = effect {
            let named = patterns.iter().map(|pattern| (pattern.clone(), effect));
            found.effects.extend(named);
        }
        found.patterns.append(&mut patterns);
    }

    /// Returns the patterns of an element whose text is `*`, or that names items. They begin with `primary`.
    fn patterns(&mut self, element: Element<'_>, primary: &str) -> Vec<String> {
        let tag = element.tag_name().name();
        let mut patterns = Vec::new();
        match text_of(element).as_str() {
            "" => {}
            "*" => patterns.push(format!("rye.{primary}.*")),
            text => {
                let message = format!(
                    "the text of <{tag}> is `*` or nothing; write <{tag}><tool>{}</tool></{tag}>",
                    excerpt(text)
                );
                self.error("unexpected_text", text_start(element), message);
            }
        }
        for kind in TYPES {
            for item in elements(element, kind) {
                self.check(item, &shape::PERMITTED);
                if !self.has_time() {
                    return patterns;
                }
                let pattern = self.pattern(&format!("rye.{primary}.{kind}."), item);
                patterns.extend(pattern);
            }
        }
        if patterns.is_empty() && element.first_element_child().is_none() {
            let message = format!("<{tag}> has no effect: it names no item");
            self.warn("no_effect", element.range().start, message);
        }
        patterns
    }

    /// Reads the calls that need the approval of a person.
    fn approve(&mut self, element: Element<'_>, found: &mut Permissions) {
        let shape = Shape {
            attributes: &["expires", "on_expiry"],
            ..shape::PRIMARY
        };
        self.check(element, &shape);
        let what = "a time like 90s, 15m or 1h30m";
        let expires = self.read(element, "expires", what, clock::duration);
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let on_expiry = self.word(element, "on_expiry", &OnExpiry::WORDS);
        if on_expiry.is_some() && element.attribute_node("expires").is_none() {
            let message = "`on_expiry` goes with `expires`: without it, a question never expires";
            self.error("missing_attribute", element.range().start, message);
        }
        let rules = self.patterns(element, "execute").into_iter();
        found.approvals.extend(rules.map(|pattern| ApprovalRule {
            pattern,
            expires_ms: expires.map(milliseconds),
            on_expiry: on_expiry.unwrap_or(OnExpiry::Deny),
        }));
    }

    fn effect(&mut self, element: Element<'_>) -> Option<Effect> {
        let words = [
            ("pure", Effect::Pure),
            ("idempotent", Effect::Idempotent),
            ("at_most_once", Effect::AtMostOnce),
        ];
        self.word(element, "effect", &words)
    }

    /// Returns the pattern that an element names, which begins with `prefix`.
    fn pattern(&mut self, prefix: &str, item: Element<'_>) -> Option<String> {
        let text = text_of(item);
        if text.is_empty() {
            let message = "it is empty; name an item, or write * for all";
            self.error("empty", item.range().start, message);
            return None;
        }
        self.normalised(&format!("{prefix}{text}"), text_start(item))
    }

    /// Replaces the older names in a pattern.
    fn normalised(&mut self, pattern: &str, at: usize) -> Option<String> {
        let written = pattern.replace('/', ".");
        let pattern = capability::normalise(&written);
        if pattern != written {
            let message = format!("`{written}` is read as `{pattern}`");
            self.warn("old_spelling", at, message);
        }
        let is_literal = !pattern.contains(['*', '?', '[']);
        let pattern = match pattern.parse::<Capability>() {
            Ok(named) => {
                if named.as_str() != pattern {
                    let message = format!("`{pattern}` is read as `{named}`");
                    self.warn("old_spelling", at, message);
                }
                named.as_str().to_owned()
            }
            Err(error) if is_literal => {
                self.error("bad_name", at, error.to_string());
                return None;
            }
            Err(_) => pattern,
        };
        if !capability::can_match(&pattern) {
            let message = format!("`{}` allows nothing", excerpt(&pattern));
            self.warn("no_effect", at, message);
        }
        Some(pattern)
    }

    /// Reads `<execute resource="rye" action="tool.X"/>`.
    fn old_form(&mut self, element: Element<'_>, found: &mut Permissions) {
        let shape = Shape {
            attributes: &["resource", "action"],
            elements: &[],
            content: shape::Content::Nothing,
            ..shape::PRIMARY
        };
        self.check(element, &shape);
        let resource = self.required(element, "resource", "it is `rye`");
        let action = self.required(element, "action", "it is like `tool.rye.bash`");
        let (Some(resource), Some(action)) = (resource, action) else {
            return;
        };
        if resource.value() != "rye" {
            let message = format!("`resource` is `rye`, not `{}`", excerpt(resource.value()));
            self.error("unknown_value", resource.range_value().start, message);
            return;
        }
        let word = action.value().trim();
        let at = action.range_value().start;
        let Some(pattern) = old_action(word) else {
            let message = format!(
                "`action` begins with a type of item or with search or load, not like `{}`",
                excerpt(word)
            );
            self.error("unknown_value", at, message);
            return;
        };
        let Some(pattern) = self.normalised(&pattern, at) else {
            return;
        };
        let message = format!("`{}` is read as `{pattern}`", excerpt(word));
        self.warn("old_spelling", at, message);
        found.patterns.push(pattern);
    }

    fn acknowledged(&mut self, element: Element<'_>) -> Option<Acknowledged> {
        self.check(element, &shape::ACKNOWLEDGE);
        let why = "it names the class of risk";
        let risk = self.required(element, "risk", why)?;
        let word = risk.value().trim();
        if !RISKS.contains(&word) {
            let message = format!(
                "there is no class of risk `{}`{}; there are {}",
                excerpt(word),
                suggestion(word, &RISKS),
                RISKS.join(", ")
            );
            self.error("unknown_value", risk.range_value().start, message);
            return None;
        }
        Some(Acknowledged {
            risk: word.to_owned(),
            reason: text_of(element),
        })
    }
}

/// Returns the pattern that replaces an older action.
fn old_action(action: &str) -> Option<String> {
    let (head, rest) = action.split_once('.').unwrap_or((action, "*"));
    let is_type = |word: &str| TYPES.contains(&word);
    match head {
        "search" | "load" => {
            let first = rest.split('.').next().unwrap_or_default();
            let kind = if rest == "*" || is_type(first) {
                ""
            } else {
                "tool."
            };
            Some(format!("rye.fetch.{kind}{rest}"))
        }
        kind if is_type(kind) => Some(format!("rye.execute.{kind}.{rest}")),
        "execute" | "fetch" | "sign" => Some(format!("rye.{head}.{rest}")),
        _ => None,
    }
}
