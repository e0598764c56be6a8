//! The element `directive`, and all of `metadata` but the permissions.

use std::time::Duration;

use roxmltree::Attribute;

use super::read::{Element, Reader, child, elements, text_of, text_start};
use super::{CallStart, Context, Directive, DirectiveLimits, ToolUse, Wish, contract, shape};
use crate::callers::Callers;
use crate::error::excerpt;
use crate::id::{ItemId, ItemKind, ItemRef};
use crate::money::Usd;

/// Older spellings of limits, with their present names.
const OLD_LIMITS: [(&str, &str); 5] = [
    ("max_turns", "turns"),
    ("max_tokens", "tokens"),
    ("max_spend", "spend"),
    ("max_spawns", "spawns"),
    ("duration", "duration_seconds"),
];

/// Limit of the bytes of a label.
const MOST_LABEL: usize = 4096;
/// The longest time that a file may set, in seconds: a year.
const MOST_SECONDS: f64 = 31_536_000.0;

impl Reader<'_, '_> {
    /// Reads the whole file; `None` after an error that leaves a part without a value.
    pub(super) fn directive(&mut self, root: Element<'_>, id: &ItemId) -> Option<Directive> {
        if root.tag_name().name() != "directive" {
            let message = format!(
                "the block holds <{}>, not a <directive>",
                excerpt(root.tag_name().name())
            );
            self.error("missing_directive", root.range().start, message);
            return None;
        }
        self.check(root, &shape::DIRECTIVE);
        let name = self.required(root, "name", "it is the name of the file without `.md`");
        let version = self.required(root, "version", "write version=\"1.0.0\"");
        let extends = self.item_attribute(root, "extends", ItemKind::Directive);
        self.check_name(name, id);
        self.check_version(version);
        let contract = contract::read(self, root);
        let metadata = child(root, "metadata");
        if metadata.is_none() {
            let message =
                "<directive> has no <metadata>: it holds description, author and category";
            self.error("missing_element", root.range().start, message);
        }
        let metadata = metadata?;
        self.check(metadata, &shape::METADATA);
        let description = self.label(metadata, "description");
        let author = self.label(metadata, "author");
        let category = self.category(metadata, id);
        self.callers(metadata);
        let model = self.model(metadata);
        let limits = self.limits(metadata);
        let (permissions, acknowledged) = self.permissions(metadata);
        self.hooks(metadata);
        let context = self.context(metadata);
        let tools = self.tools(metadata);
        let continuation = self.continuation(metadata);
        self.cost(metadata);
        Some(Directive {
            name: name?.value().to_owned(),
            version: version?.value().to_owned(),
            extends,
            description: description?,
            author: author?,
            category: category?,
            tags: self.tags(metadata),
            model,
            limits,
            permissions,
            acknowledged,
            context,
            tools,
            continuation,
            inputs: contract.inputs,
            outputs: contract.outputs,
            actions: contract.actions,
            body: self.source.body().trim().to_owned(),
        })
    }

    fn check_name(&mut self, name: Option<Attribute<'_, '_>>, id: &ItemId) {
        if let Some(name) = name
            && name.value() != id.name()
        {
            let message = format!(
                "`name` is `{}`, the file is `{}.md`; they must agree",
                excerpt(name.value()),
                id.name()
            );
            self.error("wrong_name", name.range_value().start, message);
        }
    }

    fn check_version(&mut self, version: Option<Attribute<'_, '_>>) {
        if let Some(version) = version
            && !is_version(version.value())
        {
            let message = format!(
                "`version` must look like 1.0.0, not `{}`",
                excerpt(version.value())
            );
            self.error("wrong_type", version.range_value().start, message);
        }
    }

    /// Returns the text of a required element.
    fn label(&mut self, metadata: Element<'_>, name: &str) -> Option<String> {
        let element = child(metadata, name);
        let text = element.map(|element| {
            self.check(element, &shape::LABEL);
            text_of(element)
        });
        let at = element.unwrap_or(metadata).range().start;
        match text {
            Some(text) if text.len() > MOST_LABEL => {
                let message = format!("<{name}> is longer than {MOST_LABEL} bytes");
                self.error("too_large", at, message);
                None
            }
            Some(text) if !text.is_empty() => Some(text),
            Some(_) => {
                self.error("empty", at, format!("<{name}> is empty"));
                None
            }
            None => {
                let message = format!("<metadata> has no <{name}>");
                self.error("missing_element", at, message);
                None
            }
        }
    }

    /// Reads the category, which may be empty at the top of the folder.
    fn category(&mut self, metadata: Element<'_>, id: &ItemId) -> Option<String> {
        let Some(element) = child(metadata, "category") else {
            let message = format!(
                "<metadata> has no <category>: it is the folder of the file, `{}`",
                id.category()
            );
            self.error("missing_element", metadata.range().start, message);
            return None;
        };
        self.check(element, &shape::LABEL);
        let category = text_of(element);
        if category != id.category() {
            let message = format!(
                "<category> is `{}`, the folder of the file is `{}`; they must agree",
                excerpt(&category),
                id.category()
            );
            self.error("wrong_name", text_start(element), message);
        }
        Some(category)
    }

    /// Checks the callers, which the metadata of the item has.
    fn callers(&mut self, metadata: Element<'_>) {
        let Some(element) = child(metadata, "callers") else {
            return;
        };
        self.check(element, &shape::LABEL);
        if Callers::of_text(&text_of(element)).is_none() {
            let message = "<callers> has at least one of the words model, code, graph and person, separated by commas";
            self.error("unknown_value", text_start(element), message);
        }
    }

    fn tags(&mut self, metadata: Element<'_>) -> Vec<String> {
        let Some(element) = child(metadata, "tags") else {
            return Vec::new();
        };
        self.check(element, &shape::LABEL);
        let text = text_of(element);
        let tags = text.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        tags.map(ToOwned::to_owned).collect()
    }

    fn model(&mut self, metadata: Element<'_>) -> Wish {
        let old = child(metadata, "model_class");
        if let Some(old) = old {
            self.warn(
                "old_spelling",
                old.range().start,
                "<model_class> is read as <model>",
            );
        }
        let Some(element) = child(metadata, "model").or(old) else {
            return Wish::default();
        };
        self.check(element, &shape::MODEL);
        let mut text = |name| {
            let attribute = self.attribute(element, name)?;
            Some(attribute.value().trim().to_owned())
        };
        let (id, tier, provider) = (text("id"), text("tier"), text("provider"));
        let (effort, fallback) = (text("effort"), text("fallback"));
        let old_fallback = text("fallback_id");
        if let Some(attribute) = element.attribute_node("fallback_id") {
            let message = "`fallback_id` is read as `fallback`";
            self.warn("old_spelling", attribute.range().start, message);
        }
        let temperature = self.read(element, "temperature", "a number from 0 to 2", |text| {
            text.parse()
                .ok()
                .filter(|given| (0.0..=2.0).contains(given))
        });
        Wish {
            id,
            tier,
            provider,
            effort,
            max_output: self.number(element, "max_output", "a whole number of tokens"),
            temperature,
            fallback: fallback.or(old_fallback),
            one_call: self.switch(element, "parallel") == Some(false),
        }
    }

    fn limits(&mut self, metadata: Element<'_>) -> DirectiveLimits {
        let Some(element) = child(metadata, "limits") else {
            return DirectiveLimits::default();
        };
        self.check(element, &shape::LIMITS);
        for (old, now) in OLD_LIMITS {
            let Some(attribute) = element.attribute_node(old) else {
                continue;
            };
            let at = attribute.range().start;
            if element.has_attribute(now) {
                let message = format!("`{old}` is another name of `{now}`; leave it out");
                self.error("conflict", at, message);
            } else {
                self.warn("old_spelling", at, format!("`{old}` is read as `{now}`"));
            }
        }
        self.currency(element);
        let written = |now: &'static str| {
            let old = OLD_LIMITS.iter().find(|(_, known)| *known == now);
            match old {
                Some((old, _)) if !element.has_attribute(now) => *old,
                Some(_) | None => now,
            }
        };
        let whole = "a whole number from 0 on";
        DirectiveLimits {
            turns: self.number(element, written("turns"), whole),
            tokens: self.number(element, written("tokens"), whole),
            spend: self.amount(element, written("spend")),
            spawns: self.number(element, written("spawns"), whole),
            depth: self.number(element, "depth", whole),
            duration_ms: self.seconds(element, written("duration_seconds")),
        }
    }

    fn currency(&mut self, limits: Element<'_>) {
        if let Some(currency) = self.attribute(limits, "spend_currency")
            && currency.value().trim() != "USD"
        {
            let given = excerpt(currency.value());
            let message = format!("`spend_currency` is USD, not `{given}`");
            self.error("unknown_value", currency.range_value().start, message);
        }
    }

    fn amount(&mut self, element: Element<'_>, name: &str) -> Option<Usd> {
        let attribute = self.attribute(element, name)?;
        let amount = Usd::parse(attribute.value());
        amount
            .map_err(|error| {
                let message = format!("`{name}`: {error}");
                self.error("wrong_type", attribute.range_value().start, message);
            })
            .ok()
    }

    /// Reads a number of seconds, as milliseconds.
    fn seconds(&mut self, element: Element<'_>, name: &str) -> Option<u64> {
        let what = format!("a number of seconds from 0 to {MOST_SECONDS:.0}");
        self.read(element, name, &what, |text| {
            let seconds = text.parse().ok().filter(|given| *given <= MOST_SECONDS)?;
            let duration = Duration::try_from_secs_f64(seconds).ok()?;
            u64::try_from(duration.as_millis()).ok()
        })
    }

    fn hooks(&mut self, metadata: Element<'_>) {
        if let Some(hooks) = child(metadata, "hooks")
            && hooks.first_element_child().is_some()
        {
            self.not_supported(hooks.range().start, "<hooks> of a directive");
        }
    }

    fn context(&mut self, metadata: Element<'_>) -> Context {
        let Some(element) = child(metadata, "context") else {
            return Context::default();
        };
        self.check(element, &shape::CONTEXT);
        Context {
            system: self.knowledge(element, "system"),
            before: self.knowledge(element, "before"),
            after: self.knowledge(element, "after"),
            suppress: self.suppressed(element),
        }
    }

    /// Returns the knowledge that elements of that name list, each once.
    fn knowledge(&mut self, context: Element<'_>, name: &str) -> Vec<ItemId> {
        let mut items = Vec::new();
        for element in elements(context, name) {
            self.check(element, &shape::LABEL);
            if !self.has_time() {
                break;
            }
            let text = text_of(element);
            let item = self.item(&text, ItemKind::Knowledge, text_start(element));
            items.extend(item.map(|item| item.id).filter(|id| !items.contains(id)));
        }
        items
    }

    fn suppressed(&mut self, context: Element<'_>) -> Vec<String> {
        let mut names = Vec::new();
        for element in elements(context, "suppress") {
            self.check(element, &shape::LABEL);
            let name = text_of(element);
            if name.is_empty() {
                let message = "<suppress> is empty; it names a hook or a knowledge item";
                self.error("empty", element.range().start, message);
            } else if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn tools(&mut self, metadata: Element<'_>) -> ToolUse {
        let Some(element) = child(metadata, "tools") else {
            return ToolUse::default();
        };
        self.check(element, &shape::TOOLS);
        if self.word(element, "mode", &[("native", false), ("text", true)]) == Some(true) {
            self.not_supported(element.range().start, "`mode=\"text\"` of <tools>");
        }
        let starts = [
            ("streaming", CallStart::Streaming),
            ("message", CallStart::Message),
        ];
        let most = "a whole number from 1 on";
        ToolUse {
            start: self.word(element, "start", &starts),
            max_parallel: self.read(element, "max_parallel", most, |text| {
                text.parse().ok().filter(|most| *most > 0)
            }),
        }
    }

    fn continuation(&mut self, metadata: Element<'_>) -> Option<ItemRef> {
        let element = child(metadata, "continuation_directive")?;
        self.check(element, &shape::LABEL);
        let text = text_of(element);
        let item = self.item(&text, ItemKind::Directive, text_start(element))?;
        let message =
            "<continuation_directive> does nothing; a thread that is continued keeps its directive";
        self.warn("no_effect", element.range().start, message);
        Some(item)
    }

    fn cost(&mut self, metadata: Element<'_>) {
        if let Some(cost) = child(metadata, "cost") {
            self.check(cost, &shape::COST);
            let message = "<cost> does nothing; what a thread may use is in <limits>";
            self.warn("no_effect", cost.range().start, message);
        }
    }

    fn item_attribute(
        &mut self,
        element: Element<'_>,
        name: &str,
        kind: ItemKind,
    ) -> Option<ItemRef> {
        let attribute = self.attribute(element, name)?;
        self.item(
            attribute.value().trim(),
            kind,
            attribute.range_value().start,
        )
    }

    /// Reads the item of that kind from `text`.
    fn item(&mut self, text: &str, kind: ItemKind, at: usize) -> Option<ItemRef> {
        let named = ItemRef::parse(text, kind).map_err(|error| error.to_string());
        let of_kind = named.and_then(|item| {
            if item.kind == kind {
                Ok(item)
            } else {
                Err(format!("`{}` is not of type {kind}", excerpt(text)))
            }
        });
        of_kind
            .map_err(|problem| self.error("bad_name", at, problem))
            .ok()
    }
}

/// True if `text` is a version: three numbers with dots, and an optional suffix.
fn is_version(text: &str) -> bool {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<&str> = core.split('.').collect();
    let is_number = |part: &&str| {
        !part.is_empty() && part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+'));
    plain && parts.len() == 3 && parts.iter().all(is_number)
}
