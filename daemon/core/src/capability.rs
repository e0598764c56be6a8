//! Permissions of a run, as layers that only narrow.
//!
//! A capability is the name of one action: `rye.<execute|fetch|sign>.<item type>.<id, / as .>`. A [`Layer`] is a list
//! of patterns over such names (`*` any text, `?` one character, `[…]` a set). A run carries the layers of its caller
//! and its own. An action is allowed if **every** layer allows it. An empty layer denies everything, and so does an
//! empty list of layers. [`UNSAFE_WRITE`] is covered by no pattern with a wildcard, except in the layer of a person.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{InvalidId, ItemId, ItemKind, ItemRef};

/// The right to write files that take effect without a signature. It is not the name of an item's action.
pub const UNSAFE_WRITE: &str = "rye.execute.tool.rye.file-system.write.unsafe";

/// Action on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Primary {
    Execute,
    /// Reading or finding an item.
    Fetch,
    Sign,
}

impl Primary {
    const ALL: [Self; 3] = [Self::Execute, Self::Fetch, Self::Sign];

    /// Returns the name used in capabilities and graph files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Fetch => "fetch",
            Self::Sign => "sign",
        }
    }
}

/// Name of one action, against which patterns are matched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Capability(String);

impl Capability {
    /// Returns the capability needed to do `primary` to `item`. A `.` inside the id is written `%2E`, and a `%` as
    /// `%25`, so that `a.b` and `a/b` never share a capability.
    pub fn of(primary: Primary, item: &ItemRef) -> Self {
        let mut name = prefix(primary, item.kind);
        for c in item.id.as_str().chars() {
            match c {
                '/' => name.push('.'),
                '.' => name.push_str("%2E"),
                '%' => name.push_str("%25"),
                other => name.push(other),
            }
        }
        Self(name)
    }

    /// Returns the capability [`UNSAFE_WRITE`].
    pub fn unsafe_write() -> Self {
        Self(UNSAFE_WRITE.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the common prefix of all capabilities for `primary` and items of this kind.
fn prefix(primary: Primary, kind: ItemKind) -> String {
    format!("rye.{}.{kind}.", primary.as_str())
}

fn prefixes() -> impl Iterator<Item = (Primary, ItemKind, String)> {
    Primary::ALL
        .into_iter()
        .flat_map(|primary| ItemKind::ALL.map(|kind| (primary, kind, prefix(primary, kind))))
}

/// Splits the name of an action into primary, item kind and escaped id.
fn parts(name: &str) -> Option<(Primary, ItemKind, &str)> {
    prefixes().find_map(|(primary, kind, prefix)| {
        let id = name.strip_prefix(&prefix)?;
        Some((primary, kind, id))
    })
}

/// Decodes the escaped id of a capability.
fn id_of(text: &str) -> Result<ItemId, InvalidId> {
    let id = text.replace('.', "/").replace("%2E", ".");
    ItemId::new(id.replace("%25", "%"))
}

/// Items that a pattern names without wildcards in the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    Item(ItemRef),
    /// Every item of the kind in this folder and in its subfolders.
    Below(ItemKind, ItemId),
}

impl Named {
    /// Returns the items that `pattern` names for `primary`, or `None` if it is for another primary, has other wildcards
    /// or names no item.
    pub fn of(pattern: &str, primary: Primary) -> Option<Self> {
        let (done, kind, id) = parts(pattern)?;
        let folder = id.strip_suffix(".*");
        let id = folder.unwrap_or(id);
        if done != primary || is_open(id) || pattern == UNSAFE_WRITE {
            return None;
        }
        let id = id_of(id).ok()?;
        Some(match folder {
            Some(_) => Self::Below(kind, id),
            None => Self::Item(ItemRef { kind, id }.canonical()),
        })
    }
}

impl FromStr for Capability {
    type Err = InvalidId;

    /// Reads the name of one action, or an item with its type (`tool:rye/bash`) as the action to execute it. `/` may
    /// replace `.` in a name. Older names are accepted as in patterns and calls.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = |reason| InvalidId {
            text: text.to_owned(),
            what: "an action",
            reason,
        };
        if is_open(text) {
            return Err(invalid("it is a pattern; name one action"));
        }
        if text.contains(':') {
            let item = ItemRef::parse(text, ItemKind::Tool)?;
            return Ok(Self::of(Primary::Execute, &item.canonical()));
        }
        let name = normalise(text);
        let (primary, kind, id) = parts(&name).ok_or_else(|| {
            invalid("write it as tool:a/b, or as rye.execute.tool.a.b with execute, fetch or sign and the type of the item")
        })?;
        let id = id_of(id)?;
        Ok(Self::of(primary, &ItemRef { kind, id }.canonical()))
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// List of patterns of one origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Declarer, for people: `uid:0`, `--cap`, `permissions of tool:a/b`.
    pub source: String,
    /// Patterns of which one match is enough.
    pub patterns: Vec<String>,
}

/// Start of the source of a person's layer.
const PERSON: &str = "uid:";

impl Layer {
    /// Returns the layer of a person, who may do everything.
    pub fn person(uid: impl fmt::Display) -> Self {
        Self {
            source: format!("{PERSON}{uid}"),
            patterns: vec!["rye.*".to_owned()],
        }
    }

    /// Returns true if a pattern covers `capability`. A malformed pattern covers nothing.
    pub fn allows(&self, capability: &Capability) -> bool {
        let name = capability.as_str();
        if name == UNSAFE_WRITE && !self.source.starts_with(PERSON) {
            return self.patterns.iter().any(|pattern| pattern == name);
        }
        self.patterns.iter().any(|pattern| matches(pattern, name))
    }
}

/// Fails with the first layer that does not allow `capability`, or with `None` if there are no layers.
pub fn check<'a>(layers: &'a [Layer], capability: &Capability) -> Result<(), Option<&'a Layer>> {
    if layers.is_empty() {
        return Err(None);
    }
    match layers.iter().find(|layer| !layer.allows(capability)) {
        Some(refusing) => Err(Some(refusing)),
        None => Ok(()),
    }
}

/// Refusal of an action; it names the first layer that does not cover it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("permission denied: `{action}` is {uncovered}")]
pub struct Denied {
    action: Capability,
    uncovered: String,
}

/// Checks that all of `layers` allow `primary` on `item`.
pub fn permit(layers: &[Layer], primary: Primary, item: &ItemRef) -> Result<(), Denied> {
    permit_action(layers, Capability::of(primary, item))
}

/// Checks that all of `layers` allow `action`.
pub fn permit_action(layers: &[Layer], action: Capability) -> Result<(), Denied> {
    let uncovered = match check(layers, &action) {
        Ok(()) => return Ok(()),
        Err(None) => "there are no capabilities at all".to_owned(),
        Err(Some(Layer { source, patterns })) if patterns.is_empty() => {
            format!("not covered by {source} (an empty list, which denies everything)")
        }
        Err(Some(Layer { source, patterns })) => {
            format!("not covered by {source} ({})", patterns.join(", "))
        }
    };
    Err(Denied { action, uncovered })
}

/// The folder of the original that holds only its tool for commands, which is `rye/bash` here.
const BASH_FOLDER: &str = ".tool.rye.bash.*";

/// Rewrites older spellings: `rye.search.…` and `rye.load.…` become `rye.fetch.…`, and `….tool.rye.bash.*` becomes
/// `….tool.rye.bash`.
pub fn normalise(pattern: &str) -> String {
    if pattern.ends_with(BASH_FOLDER) {
        return normalise(pattern.trim_end_matches(".*"));
    }
    for old in ["rye.search.", "rye.load."] {
        if let Some(rest) = pattern.strip_prefix(old) {
            return format!("rye.fetch.{rest}");
        }
    }
    pattern.to_owned()
}

/// Returns true if `text` holds a wildcard.
fn is_open(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns the text of a pattern up to its first wildcard.
fn literal(pattern: &str) -> &str {
    pattern.split(['*', '?', '[']).next().unwrap_or_default()
}

/// Returns true if both patterns may cover a common action. Two patterns with wildcards are compared only by their text
/// up to the first wildcard, so the result may be a false positive.
pub fn may_meet(one: &str, other: &str) -> bool {
    match (is_open(one), is_open(other)) {
        (false, _) => matches(other, one),
        (true, false) => matches(one, other),
        (true, true) => {
            let (one, other) = (literal(one), literal(other));
            one.starts_with(other) || other.starts_with(one)
        }
    }
}

/// Returns true if `wide` covers every action that `narrow` covers. The test matches `wide` against the text of
/// `narrow`, and may miss some cases. `?` and sets cover one character and so no wildcard, which may stand for many.
pub fn covers(wide: &str, narrow: &str) -> bool {
    let tells = !is_open(narrow) || wide == narrow || !wide.contains(['?', '[']);
    tells && matches(wide, narrow)
}

/// True if `pattern` covers that action on `item`.
pub fn covers_action(pattern: &str, primary: Primary, item: &ItemRef) -> bool {
    let layer = Layer {
        source: String::new(),
        patterns: vec![pattern.to_owned()],
    };
    layer.allows(&Capability::of(primary, item))
}

/// Returns true if a pattern may cover some capability. Only its text up to the first wildcard is examined.
pub fn can_match(pattern: &str) -> bool {
    let literal = literal(pattern);
    let is_whole = literal.len() == pattern.len();
    // Ids are written with dots.
    !literal.contains('/')
        && prefixes().any(|(_, _, prefix)| match literal.strip_prefix(&prefix) {
            Some(id) => !(is_whole && id.is_empty()),
            None => !is_whole && prefix.starts_with(literal),
        })
}

/// Shell-style match over the whole text: `*`, `?`, `[abc]`, `[a-z]`, `[!a]`. It is case-sensitive, and `*` crosses
/// dots.
///
/// The worst case is linear in the product of both lengths, because a caller chooses the pattern. The text is made of
/// ids, which hold none of these characters.
pub fn matches(pattern: &str, text: &str) -> bool {
    let common = common_start(pattern.as_bytes(), text.as_bytes());
    match &pattern.as_bytes()[common..] {
        [] => text.len() == common,
        b"*" => true,
        [b'*' | b'?' | b'[', ..] => matches_wild(&pattern[common..], &text[common..]),
        // Most patterns end here, without any copy.
        _ => false,
    }
}

/// Returns the number of leading bytes that both texts share.
fn common_start(one: &[u8], other: &[u8]) -> usize {
    let ((words, _), (others, _)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let equal = words
        .iter()
        .zip(others)
        .take_while(|(one, other)| one == other);
    let words = 8 * equal.count();
    let rest = one[words..].iter().zip(&other[words..]);
    words + rest.take_while(|(one, other)| one == other).count()
}

fn matches_wild(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some('?') => Some(p + 1),
            Some('[') => match_set(&pattern, p, text[t]),
            Some(c) if *c == text[t] => Some(p + 1),
            Some(_) | None => None,
        };
        match (step, star) {
            (Some(next), _) => {
                p = next;
                t += 1;
            }
            (None, Some((after_star, from))) => {
                p = after_star;
                t = from + 1;
                star = Some((after_star, t));
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Matches `c` against the set that opens at `pattern[open]`. Returns the position after the set, or `None` if the set
/// does not match or is not closed.
fn match_set(pattern: &[char], open: usize, c: char) -> Option<usize> {
    let negated = pattern.get(open + 1) == Some(&'!');
    let first = open + 1 + usize::from(negated);
    let close = (first + 1..pattern.len()).find(|&at| pattern[at] == ']')?;
    let mut found = false;
    let mut at = first;
    while at < close {
        if at + 2 < close && pattern[at + 1] == '-' {
            found |= (pattern[at]..=pattern[at + 2]).contains(&c);
            at += 3;
        } else {
            found |= pattern[at] == c;
            at += 1;
        }
    }
    (found != negated).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::{ItemId, ItemKind};

    fn cap(id: &str) -> Capability {
        Capability::of(
            Primary::Execute,
            &ItemRef {
                kind: ItemKind::Tool,
                id: ItemId::new(id).unwrap(),
            },
        )
    }

    fn layer(patterns: &[&str]) -> Layer {
        Layer {
            source: "test".into(),
            patterns: patterns.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn older_spellings_of_patterns_are_read() {
        for (pattern, read) in [
            ("rye.load.*", "rye.fetch.*"),
            ("rye.execute.tool.rye.bash.*", "rye.execute.tool.rye.bash"),
            ("rye.search.tool.rye.bash.*", "rye.fetch.tool.rye.bash"),
            (
                "rye.execute.tool.rye.bashful.*",
                "rye.execute.tool.rye.bashful.*",
            ),
            ("rye.execute.tool.rye.*", "rye.execute.tool.rye.*"),
        ] {
            assert_eq!(normalise(pattern), read);
        }
    }

    #[test]
    fn patterns_match_as_shells_match() {
        for (pattern, id, expected) in [
            ("rye.execute.tool.*", "rye/bash", true),
            ("rye.execute.tool.rye.bash", "rye/bash", true),
            ("rye.execute.tool.rye.bas?", "rye/bash", true),
            ("rye.execute.tool.rye.[ab]ash", "rye/bash", true),
            ("rye.execute.tool.rye.[!b]ash", "rye/bash", false),
            ("rye.execute.tool.rye.[a-c]ash", "rye/bash", true),
            ("rye.execute.tool.rye.[", "rye/bash", false),
            ("rye.execute.tool.RYE.bash", "rye/bash", false),
            ("rye.fetch.*", "rye/bash", false),
            ("*bash", "rye/bash", true),
            ("*", "rye/bash", true),
            ("", "rye/bash", false),
            ("rye.execute.tool.a.b", "a.b", false),
            ("rye.execute.tool.a%2Eb", "a.b", true),
            (
                "*a*a*a*a*a*a*a*b",
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                false,
            ),
        ] {
            assert_eq!(
                matches(pattern, cap(id).as_str()),
                expected,
                "{pattern} on {id}"
            );
        }
    }

    #[test]
    fn capability_parses_item_or_action_name() {
        for (text, name) in [
            ("tool:rye/bash", "rye.execute.tool.rye.bash"),
            ("knowledge:a.b/c", "rye.execute.knowledge.a%2Eb.c"),
            ("rye.execute.tool.rye.bash", "rye.execute.tool.rye.bash"),
            ("rye.execute.tool.rye/bash", "rye.execute.tool.rye.bash"),
            ("rye.sign.config.a%2Eb.c%25", "rye.sign.config.a%2Eb.c%25"),
            // Aliases of the same item.
            ("tool:rye/bash/bash", "rye.execute.tool.rye.bash"),
            (
                "rye.execute.tool.rye.bash.bash",
                "rye.execute.tool.rye.bash",
            ),
            ("rye.search.knowledge.a", "rye.fetch.knowledge.a"),
        ] {
            let action = text.parse::<Capability>().map(|action| action.0);
            assert_eq!(action.as_deref(), Ok(name), "{text}");
        }
        for (text, told) in [
            ("", "is not an action"),
            ("rye/bash", "write it as tool:a/b"),
            ("rye.eat.tool.a", "write it as tool:a/b"),
            ("execute.tool.a", "write it as tool:a/b"),
            ("rye.execute.tool.*", "name one action"),
            ("tool:rye/*", "name one action"),
            ("rye.execute.tool.", "it is empty"),
            ("rye.execute.tool.a..b", "empty path segment"),
            ("spoon:a", "not an item type"),
            ("tool:../a", "ids cannot leave"),
        ] {
            let error = text.parse::<Capability>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn named_reads_item_and_folder_patterns() {
        let item = |id: &str| Some(Named::Item(ItemRef::tool(ItemId::new(id).unwrap())));
        let below = |id: &str| Some(Named::Below(ItemKind::Tool, ItemId::new(id).unwrap()));
        for (pattern, named) in [
            ("rye.execute.tool.rye.bash", item("rye/bash")),
            ("rye.execute.tool.rye.bash.bash", item("rye/bash")),
            ("rye.execute.tool.a%2Eb.c", item("a.b/c")),
            ("rye.execute.tool.rye.*", below("rye")),
            ("rye.execute.tool.a%2Eb.c.*", below("a.b/c")),
            ("rye.execute.tool.*", None),
            ("rye.execute.tool.rye.b*", None),
            ("rye.execute.tool.r?e.*", None),
            ("rye.execute.*", None),
            ("rye.*", None),
            ("rye.fetch.tool.rye.bash", None),
        ] {
            assert_eq!(Named::of(pattern, Primary::Execute), named, "{pattern}");
        }
    }

    #[test]
    fn may_meet_is_false_for_disjoint_patterns() {
        for (one, other, meet) in [
            ("rye.execute.tool.a", "rye.execute.tool.a", true),
            ("rye.execute.tool.a", "rye.execute.tool.b", false),
            ("rye.execute.tool.a", "rye.execute.*", true),
            ("rye.execute.tool.a.*", "rye.execute.tool.*", true),
            ("rye.execute.tool.a.*", "rye.execute.tool.b.*", false),
            ("rye.execute.tool.a.*", "rye.fetch.*", false),
            ("rye.execute.tool.*.b", "rye.execute.tool.a.*", true),
        ] {
            assert_eq!(may_meet(one, other), meet, "{one} and {other}");
            assert_eq!(may_meet(other, one), meet, "{other} and {one}");
        }
    }

    #[test]
    fn unsafe_write_is_covered_by_its_exact_name_or_a_person_only() {
        let exact = layer(&["rye.fetch.*", UNSAFE_WRITE]);
        let action = Capability::unsafe_write();
        assert!(check(&[Layer::person(7)], &action).is_ok());
        assert!(check(&[Layer::person(7), exact.clone()], &action).is_ok());
        for wide in [
            "*",
            "rye.*",
            "rye.execute.tool.rye.file-system.*",
            "rye.execute.tool.rye.file-system.write.*",
            "rye.execute.tool.rye.file-system.write.unsaf[e]",
            "rye.execute.tool.rye.file-system.write",
        ] {
            let wide = layer(&[wide]);
            assert_eq!(
                check(&[Layer::person(7), exact.clone(), wide.clone()], &action),
                Err(Some(&wide))
            );
        }
        assert_eq!(Named::of(UNSAFE_WRITE, Primary::Execute), None);
    }

    #[test]
    fn authority_only_narrows() {
        let all = layer(&["rye.*"]);
        let bash = layer(&["rye.execute.tool.rye.bash"]);
        let none = layer(&[]);
        assert!(check(&[all.clone(), bash.clone()], &cap("rye/bash")).is_ok());
        assert_eq!(
            check(&[all.clone(), bash.clone()], &cap("rye/core/echo")),
            Err(Some(&bash))
        );
        assert_eq!(
            check(&[all, none.clone()], &cap("rye/bash")),
            Err(Some(&none))
        );
        assert_eq!(check(&[], &cap("rye/bash")), Err(None));
    }

    proptest! {
        #[test]
        fn fast_match_agrees_with_full_match(
            pattern in "[ab.ä*?\\[\\]!-]{0,24}",
            text in "[ab.ä]{0,24}",
            start in "[ab.]{0,20}",
        ) {
            for pattern in [pattern.clone(), format!("{start}{pattern}")] {
                for text in [text.clone(), format!("{start}{text}")] {
                    prop_assert_eq!(matches(&pattern, &text), matches_wild(&pattern, &text));
                }
            }
        }

        #[test]
        fn additional_layer_never_allows_more(
            layers in prop::collection::vec(prop::collection::vec("(rye[.])?(execute|fetch|[*])[.]?(tool|[*])?[.]?[ab*]{0,2}", 0..4), 0..4),
            more in prop::collection::vec("(rye[.])?(execute|fetch|[*])[.]?(tool|[*])?[.]?[ab*]{0,2}", 0..4),
            id in "[ab]{1,2}",
        ) {
            let of = |patterns: &Vec<String>| Layer {
                source: "test".into(),
                patterns: patterns.clone(),
            };
            let few: Vec<Layer> = layers.iter().map(of).collect();
            let action = cap(&id);
            let is_allowed = |layers: &[Layer]| check(layers, &action).is_ok();
            let each = !few.is_empty() && few.iter().all(|layer| layer.allows(&action));
            prop_assert_eq!(is_allowed(&few), each);
            let mut many = few.clone();
            many.push(of(&more));
            prop_assert!(few.is_empty() || is_allowed(&few) || !is_allowed(&many));
            let (one, reversed) = (is_allowed(&many), many.iter().rev().cloned().collect::<Vec<_>>());
            prop_assert_eq!(one, is_allowed(&reversed), "the order does not matter");
        }
    }
}
