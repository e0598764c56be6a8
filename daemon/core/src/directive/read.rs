//! The reader: checks elements against their shapes, and collects findings.

use std::collections::BTreeSet;
use std::str::FromStr;

use roxmltree::{Attribute, Node};

use super::shape::{Content, Shape};
use super::source::{OPAQUE, Source, finding};
use crate::declared::{Finding, TOO_COMPLEX};
use crate::error::excerpt;
use crate::expr::{Severity, did_you_mean, nearest};
use crate::yaml::Position;

/// Limit of the findings reported; a file with more has one cause.
const MOST_FINDINGS: usize = 100;

pub(super) type Element<'r> = Node<'r, 'r>;

pub(super) struct Reader<'s, 't> {
    pub(super) source: &'s Source<'t>,
    findings: Vec<Finding>,
    is_late: &'s dyn Fn() -> bool,
    gave_up: bool,
}

impl<'s, 't> Reader<'s, 't> {
    /// Makes a reader that gives up when `is_late` returns true.
    pub(super) const fn until(source: &'s Source<'t>, is_late: &'s dyn Fn() -> bool) -> Self {
        Self {
            source,
            findings: Vec::new(),
            is_late,
            gave_up: false,
        }
    }

    /// True if time is left; reports once that there is none.
    pub(super) fn has_time(&mut self) -> bool {
        if !self.gave_up && (self.is_late)() {
            self.gave_up = true;
            let message = "the file takes too long to check: make it smaller";
            self.error(TOO_COMPLEX, 0, message);
        }
        !self.gave_up
    }

    /// True if another warning would still be reported.
    pub(super) const fn reports_warnings(&self) -> bool {
        self.findings.len() < MOST_FINDINGS
    }

    /// Returns the findings, in the order of the text.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|f| (f.line, f.column));
        self.findings
    }

    fn report(&mut self, severity: Severity, code: &'static str, at: Position, message: String) {
        let room = match severity {
            Severity::Warning => MOST_FINDINGS,
            // Warnings never keep an error from being reported.
            Severity::Error => 2 * MOST_FINDINGS,
        };
        if self.findings.len() < room {
            let finding = finding(code, at, message);
            self.findings.push(Finding {
                severity,
                ..finding
            });
        }
    }

    /// Reports an error at a byte of the XML.
    pub(super) fn error(&mut self, code: &'static str, at: usize, message: impl Into<String>) {
        let at = self.source.position(at);
        self.report(Severity::Error, code, at, message.into());
    }

    /// Reports a warning at a byte of the XML.
    pub(super) fn warn(&mut self, code: &'static str, at: usize, message: impl Into<String>) {
        let at = self.source.position(at);
        self.report(Severity::Warning, code, at, message.into());
    }

    /// Reports a warning at a position of the file.
    pub(super) fn warn_at(&mut self, code: &'static str, at: Position, message: impl Into<String>) {
        self.report(Severity::Warning, code, at, message.into());
    }

    pub(super) fn not_supported(&mut self, at: usize, what: &str) {
        let message = format!("{what} is not supported by this release yet");
        self.error("not_supported", at, message);
    }

    /// Checks an element against its shape, if time is left.
    pub(super) fn check(&mut self, element: Element<'_>, shape: &Shape) {
        if !self.has_time() {
            return;
        }
        let name = element.tag_name().name();
        for attribute in element.attributes() {
            let known = attribute.name();
            if attribute.namespace().is_some()
                || !(known.starts_with("x-") || shape.attributes.contains(&known))
            {
                let told = unknown("attribute", known, name, shape.attributes);
                self.error("unknown_attribute", attribute.range().start, told);
            }
        }
        let mut seen = BTreeSet::new();
        for child in element.children().filter(Node::is_element) {
            let known = child.tag_name().name();
            let at = child.range().start;
            let free = known.starts_with("x-") || OPAQUE.contains(&known);
            if child.tag_name().namespace().is_none() && shape.elements.contains(&known) {
                if !seen.insert(known) && !shape.repeated.contains(&known) {
                    let message = format!("<{known}> occurs twice in <{name}>; one is enough");
                    self.error("duplicate_element", at, message);
                }
            } else if !free && shape.content != Content::Anything {
                let told = unknown("element", &format!("<{known}>"), name, shape.elements);
                self.error("unknown_element", at, told);
            }
        }
        self.check_text(element, shape.content);
    }

    fn check_text(&mut self, element: Element<'_>, content: Content) {
        let is_said = |child: &Element<'_>| {
            child.is_text() && child.text().is_some_and(|text| !text.trim().is_empty())
        };
        let Some(text) = element.children().find(is_said) else {
            return;
        };
        let name = element.tag_name().name();
        let at = text.range().start + leading_blanks(text.text().unwrap_or_default());
        match content {
            Content::Text | Content::Anything => {}
            Content::Ignored => {
                self.warn(
                    "no_effect",
                    at,
                    format!("the text in <{name}> does nothing"),
                );
            }
            Content::Nothing => {
                let message = format!("<{name}> holds no text");
                self.error("unexpected_text", at, message);
            }
        }
    }

    /// Returns the text of an attribute, if it is present. An empty one counts as absent, with an error.
    pub(super) fn attribute<'r>(
        &mut self,
        element: Element<'r>,
        name: &str,
    ) -> Option<Attribute<'r, 'r>> {
        let attribute = element.attribute_node(name)?;
        if attribute.value().trim().is_empty() {
            let message = format!("`{name}` is empty; give it a value or leave it out");
            self.error("empty", attribute.range().start, message);
            return None;
        }
        Some(attribute)
    }

    /// Returns the text of a required attribute.
    pub(super) fn required<'r>(
        &mut self,
        element: Element<'r>,
        name: &str,
        why: &str,
    ) -> Option<Attribute<'r, 'r>> {
        if element.attribute_node(name).is_none() {
            let tag = element.tag_name().name();
            let message = format!("<{tag}> has no `{name}`: {why}");
            self.error("missing_attribute", element.range().start, message);
        }
        self.attribute(element, name)
    }

    /// Returns the value of an attribute, if it is present. `read` returns `None` for a text that is not `what`.
    pub(super) fn read<T>(
        &mut self,
        element: Element<'_>,
        name: &str,
        what: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let attribute = self.attribute(element, name)?;
        let value = read(attribute.value().trim());
        if value.is_none() {
            let given = excerpt(attribute.value());
            let message = format!("`{name}` must be {what}, not `{given}`");
            self.error("wrong_type", attribute.range_value().start, message);
        }
        value
    }

    /// Reads a number from an attribute, if it is present.
    pub(super) fn number<T: FromStr>(
        &mut self,
        element: Element<'_>,
        name: &str,
        what: &str,
    ) -> Option<T> {
        self.read(element, name, what, |text| text.parse().ok())
    }

    /// Returns the value that an attribute names, if it is present.
    pub(super) fn word<T: Copy>(
        &mut self,
        element: Element<'_>,
        name: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let attribute = self.attribute(element, name)?;
        let word = attribute.value().trim();
        let found = words.iter().find(|(known, _)| *known == word);
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!(
                "`{name}` must be one of {}, not `{}`{}",
                all.join(", "),
                excerpt(word),
                suggestion(word, &all)
            );
            self.error("unknown_value", attribute.range_value().start, message);
        }
        found.map(|(_, value)| *value)
    }

    /// Reads `true` or `false` from an attribute, if it is present.
    pub(super) fn switch(&mut self, element: Element<'_>, name: &str) -> Option<bool> {
        self.word(element, name, &[("true", true), ("false", false)])
    }
}

/// Returns the first element of that name.
pub(super) fn child<'r>(element: Element<'r>, name: &str) -> Option<Element<'r>> {
    elements(element, name).next()
}

/// Returns the elements of that name, in order.
pub(super) fn elements<'r>(element: Element<'r>, name: &str) -> impl Iterator<Item = Element<'r>> {
    element
        .children()
        .filter(move |child| child.is_element() && child.tag_name().name() == name)
}

/// Returns the text of an element, without blanks around it and without comments.
pub(super) fn text_of(element: Element<'_>) -> String {
    let texts = element.children().filter(Node::is_text);
    let whole: String = texts.filter_map(|text| text.text()).collect();
    whole.trim().to_owned()
}

/// Returns the offset of the first character of an element's text that is no blank; of the element, if there is none.
pub(super) fn text_start(element: Element<'_>) -> usize {
    let text = element
        .children()
        .find(|child| child.is_text() && child.text().is_some_and(|text| !text.trim().is_empty()));
    text.map_or(element.range().start, |text| {
        text.range().start + leading_blanks(text.text().unwrap_or_default())
    })
}

fn leading_blanks(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

fn unknown(what: &str, name: &str, element: &str, known: &[&str]) -> String {
    let hint = suggestion(name.trim_matches(['<', '>']), known);
    let list = match known {
        [] => "it has none but x-…".to_owned(),
        known => format!("there are {}, and x-…", known.join(", ")),
    };
    format!(
        "<{element}> has no {what} `{}`{hint}; {list}",
        excerpt(name)
    )
}

pub(super) fn suggestion(word: &str, known: &[&str]) -> String {
    did_you_mean(nearest(word, known.iter().copied()))
}
