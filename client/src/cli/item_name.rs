//! Names of items on the command line: by id, by type and id, or by file.

use std::fmt;

use rye_core::id::{InvalidId, ItemKind, ItemRef};
use rye_item::sign;

/// An item: `ID`, `TYPE:ID`, or the path of its file. A path is resolved before the verb begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ItemName {
    text: String,
    /// Type of an item whose name gives none; `None` means a tool.
    default: Option<ItemKind>,
    /// The only type that is accepted; `None` accepts all.
    only: Option<ItemKind>,
    /// True if the name is a pattern of ids, for a verb that accepts one.
    is_pattern: bool,
}

impl ItemName {
    fn new(text: &str, default: Option<ItemKind>, only: Option<ItemKind>) -> Result<Self, String> {
        let name = Self {
            text: text.to_owned(),
            default,
            only,
            is_pattern: false,
        };
        if !name.is_path() {
            name.check()?;
        }
        Ok(name)
    }

    /// Parses an item of the type `only`, or a pattern of such items.
    fn new_or_pattern(text: &str, only: ItemKind) -> Result<Self, String> {
        let (word, id) = text.split_once(':').unwrap_or(("", text));
        if !sign::is_glob(id) {
            return Self::new(text, Some(only), Some(only));
        }
        if !["", only.as_str()].contains(&word) {
            return Err(format!("it is a pattern of {only}s: leave out `{word}:`"));
        }
        Ok(Self {
            text: id.to_owned(),
            default: Some(only),
            only: Some(only),
            is_pattern: true,
        })
    }

    /// Returns the type and the pattern, if the name is a pattern of ids.
    pub(crate) fn pattern(&self) -> Option<(ItemKind, &str)> {
        self.only
            .filter(|_| self.is_pattern)
            .map(|kind| (kind, self.text.as_str()))
    }

    /// True if it can only be a path.
    pub(crate) fn is_path(&self) -> bool {
        let begins = |start: &&str| self.text.starts_with(*start);
        ["/", "./", "../"].iter().any(begins) || self.is_below_a_space()
    }

    /// True if it is a path into a folder of items.
    pub(crate) fn is_below_a_space(&self) -> bool {
        self.text.split('/').any(|part| part == ".ai")
    }

    /// True if it gives a type. Such a name is no path.
    pub(crate) fn has_type(&self) -> bool {
        let word = self.text.split_once(':').map(|(word, _)| word);
        word.is_some_and(|word| word.parse::<ItemKind>().is_ok())
    }

    /// Returns the name as typed, or the item that [`Self::found`] put in its place.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Replaces the path by the `item` that it resolved to. Refuses an item of a type that is not accepted.
    pub(crate) fn found(&mut self, item: &ItemRef) -> Result<(), String> {
        self.text = item.to_string();
        self.check()
    }

    /// Sets the only accepted type to `kind`, which another argument gives.
    pub(crate) fn of_kind(&mut self, kind: ItemKind) -> Result<(), String> {
        (self.default, self.only) = (Some(kind), Some(kind));
        if self.is_path() { Ok(()) } else { self.check() }
    }

    /// Returns the item. A name without a type gets the default type.
    pub(crate) fn item(&self) -> Result<ItemRef, InvalidId> {
        ItemRef::parse(&self.text, self.default.unwrap_or(ItemKind::Tool))
    }

    fn check(&self) -> Result<(), String> {
        let item = self.item().map_err(|error| error.to_string())?;
        match self.only {
            Some(ItemKind::Directive) if item.kind != ItemKind::Directive => Err(format!(
                "it is a {}, and only directives make threads",
                item.kind
            )),
            Some(only) if item.kind != only => Err(format!(
                "`{item}` is a {}, but a {only} is needed",
                item.kind
            )),
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses an item; without a type it is a tool.
pub(super) fn tool_name(text: &str) -> Result<ItemName, String> {
    ItemName::new(text, Some(ItemKind::Tool), None)
}

/// Parses a tool and refuses other types.
pub(super) fn only_tool(text: &str) -> Result<ItemName, String> {
    ItemName::new(text, Some(ItemKind::Tool), Some(ItemKind::Tool))
}

/// Parses a tool or a pattern of tools, and refuses other types.
pub(super) fn tools(text: &str) -> Result<ItemName, String> {
    ItemName::new_or_pattern(text, ItemKind::Tool)
}

/// Parses a directive or a pattern of directives, and refuses other types.
pub(super) fn directives(text: &str) -> Result<ItemName, String> {
    ItemName::new_or_pattern(text, ItemKind::Directive)
}

/// Parses a directive and refuses other types.
pub(super) fn directive_name(text: &str) -> Result<ItemName, String> {
    ItemName::new(text, Some(ItemKind::Directive), Some(ItemKind::Directive))
}

/// Parses an item of any type.
pub(super) fn any_name(text: &str) -> Result<ItemName, String> {
    ItemName::new(text, None, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_named_by_its_id_with_its_type_or_by_its_path() {
        for (text, is_path, has_type) in [
            ("app/deploy", false, false),
            ("tool:app/deploy", false, true),
            (".ai/tools/app/deploy.yaml", true, false),
            ("./deploy.yaml", true, false),
            ("/p/.ai/tools/app/deploy.yaml", true, false),
            ("app/deploy.yaml", false, false),
        ] {
            let name = tool_name(text).unwrap();
            assert_eq!(
                (name.is_path(), name.has_type()),
                (is_path, has_type),
                "{text}"
            );
        }
        assert!(tool_name("a//b").is_err() && tool_name("").is_err());
    }

    #[test]
    fn verb_may_accept_patterns_of_its_type() {
        for (text, pattern) in [("tool:app/*", "app/*"), ("app/**", "app/**"), ("*", "*")] {
            assert_eq!(
                tools(text).unwrap().pattern(),
                Some((ItemKind::Tool, pattern))
            );
        }
        assert_eq!(tools("app/deploy").unwrap().pattern(), None);
        assert!(tools("directive:app/*").unwrap_err().contains("leave out"));
        assert!(directives("directive:*").is_ok());
        assert_eq!(only_tool("app/*").unwrap().pattern(), None);
    }

    #[test]
    fn item_argument_of_other_type_is_refused_in_every_notation() {
        assert!(directive_name("tool:a/b").is_err());
        assert_eq!(
            directive_name("a/b").unwrap().item().unwrap().to_string(),
            "directive:a/b"
        );
        let mut name = directive_name(".ai/tools/a/b.yaml").unwrap();
        let tool = ItemRef::parse("tool:a/b", ItemKind::Tool).unwrap();
        assert!(name.found(&tool).unwrap_err().contains("only directives"));
        let mut name = any_name("knowledge:a/b").unwrap();
        assert!(name.of_kind(ItemKind::Tool).is_err());
        assert!(only_tool("directive:a/b").is_err());
    }
}
