//! The file around the nodes: labels, permissions, inputs and `config`.

use std::collections::HashMap;
use std::num::NonZeroU32;

use serde_json::Value;

use super::graph::{Graph, GraphLimits, Nodes, OnError};
use super::hook::{GRAPH_LAYER, Hook};
use super::inputs::Inputs;
use super::keys;
use super::read::{At, Reader};
use super::work::Next;
use crate::callers::Callers;
use crate::capability;
use crate::declared::Zero;
use crate::expr::{self, Condition};
use crate::model::{Durability, Object, Recovery};
use crate::money::Usd;
use crate::seal::{canonical, sha256_hex};

/// The limits of a graph: its own, and those of each thread that it starts.
pub(super) const LIMITS: [&str; 6] = ["spend", "spawns", "depth", "turns", "tokens", "duration"];

/// Returns the highest cost of choosing an edge and the hooks to call, in visited values.
fn cost(nodes: &Nodes, hooks: &[Hook]) -> usize {
    let of_node = |next: &Next| match next {
        Next::End | Next::Always(_) => 0,
        Next::Edges(edges) => edges
            .iter()
            .filter_map(|edge| edge.when.as_ref())
            .map(Condition::cost)
            .fold(0, usize::saturating_add),
    };
    let of_nodes = nodes.iter().map(|node| of_node(&node.next)).max();
    let of_hooks = hooks.iter().filter_map(|hook| hook.condition.as_ref());
    of_hooks
        .map(Condition::cost)
        .fold(of_nodes.unwrap_or(0), usize::saturating_add)
}

impl<'d> Reader<'d> {
    /// Reads the whole file; `None` after an error that leaves a part without a value.
    pub(super) fn graph(&mut self) -> Option<Graph> {
        let root = self.root();
        if !root.value.is_object() {
            self.error("wrong_type", &root, "a graph file is a map of keys");
            return None;
        }
        self.map(&root, &keys::FILE)?;
        self.labels(&root);
        let version = self.text(&root, "version");
        let category = self.text(&root, "category");
        let permissions = self.permissions(&root);
        self.callers(&root);
        let env_requires = self.env_requires(&root);
        let inputs = self.inputs(&root);
        let limits = self.limits(&root);
        let config = root.child("config")?;
        self.map(&config, &keys::CONFIG)?;
        let max_steps = self.whole(&config, "max_steps", 0);
        let state = self.initial_state(&config);
        let modes = &[("fail", OnError::Fail), ("continue", OnError::Continue)];
        let on_error = self.word(&config, "on_error", modes);
        let recoveries = &[("resume", Recovery::Resume), ("suspend", Recovery::Suspend)];
        let recovery = self.stated(&config, "recovery", recoveries);
        let durabilities = &[
            ("strict", Durability::Strict),
            ("relaxed", Durability::Relaxed),
        ];
        let durability = self.stated(&config, "durability", durabilities);
        let timeout = self.seconds(&config, "timeout", Zero::Refused);
        let max_concurrency = self
            .whole(&config, "max_concurrency", 1)
            .and_then(NonZeroU32::new);
        let nodes = self.nodes(&config);
        let hooks = self.hooks(&config);
        let start = self.start(&config);
        let (nodes, hooks) = (nodes?, hooks?);
        Some(Graph {
            version: version?.to_owned(),
            category: category?.to_owned(),
            name: self.text(&root, "name").map(ToOwned::to_owned),
            description: self
                .text(&root, "description")
                .map(ToOwned::to_owned)
                .unwrap_or_default(),
            permissions,
            inputs: inputs?,
            limits,
            start: start?,
            cost: cost(&nodes, &hooks),
            nodes,
            max_steps,
            on_error: on_error?,
            state: state?,
            recovery,
            durability,
            env_requires,
            hooks,
            timeout,
            max_concurrency,
            digest: sha256_hex(canonical(config.value)),
        })
    }

    /// Reads the descriptive keys.
    fn labels(&mut self, root: &At<'d>) {
        if let Some(other) = self.text(root, "tool_type").filter(|of| *of != "graph") {
            let message = format!("`tool_type` of a graph is `graph`, not `{other}`");
            self.error("unknown_value", root.at("/tool_type"), message);
        }
        for key in ["executor_id", "author", "title", "license"] {
            self.text(root, key);
        }
        let ignored = keys::IGNORED.into_iter().filter_map(|key| root.child(key));
        let ignored: Vec<At<'d>> = ignored.collect();
        if let Some(first) = ignored.first() {
            let all: Vec<String> = ignored.iter().map(|at| format!("`{}`", at.key())).collect();
            let message = format!("nothing depends on {} here", all.join(", "));
            self.warn("no_effect", first.named(), message);
        }
        if let Some(tags) = root.child("tags") {
            self.texts(&tags);
        }
    }

    /// Reads `limits`, and warns of keys without effect.
    fn limits(&mut self, root: &At<'d>) -> GraphLimits {
        let Some(limits) = root.given("limits") else {
            return GraphLimits::default();
        };
        let Some(members) = self.members(&limits, "a map such as {spend: 0.50, spawns: 20}") else {
            return GraphLimits::default();
        };
        for (_, at) in members.iter().filter(|(key, _)| !LIMITS.contains(key)) {
            let message = "of `limits`, `spend`, `spawns` and `depth` bind a graph, and `turns`, `tokens` and `duration` each \
                           thread that it starts; its steps are `config.max_steps`, its time is `config.timeout`";
            self.warn("no_effect", at.named(), message);
        }
        let duration = self.seconds(&limits, "duration", Zero::Allowed);
        GraphLimits {
            spend: self.amount(&limits, "spend"),
            spawns: self.whole(&limits, "spawns", 0),
            depth: self.whole(&limits, "depth", 0),
            turns: self.whole(&limits, "turns", 0),
            tokens: self.whole(&limits, "tokens", 0).map(u64::from),
            duration_ms: duration.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    fn amount(&mut self, limits: &At<'d>, key: &str) -> Option<Usd> {
        let at = limits.given(key)?;
        let amount = Usd::from_json(at.value);
        amount
            .map_err(|error| self.error("bad_amount", &at, format!("`limits.{key}`: {error}")))
            .ok()
    }

    /// Reads the declared patterns; `None` if there are none, or after an error.
    /// Checks `callers`, which the metadata of the item has.
    fn callers(&mut self, root: &At<'d>) {
        if let Some(callers) = root.given("callers")
            && Callers::of_json(callers.value).is_none()
        {
            let message = format!("`callers` must be {}", Callers::EXPECTED);
            self.error("unknown_value", &callers, message);
        }
    }

    fn permissions(&mut self, root: &At<'d>) -> Option<Vec<String>> {
        let at = root.child("permissions")?;
        let patterns = self.texts(&at)?;
        let mut normalised = Vec::with_capacity(patterns.len());
        for (index, pattern) in patterns.into_iter().enumerate() {
            let entry = format!("/{index}");
            let now = capability::normalise(pattern);
            if now != pattern {
                let message = format!("`{pattern}` is read as `{now}`");
                self.warn("old_spelling", at.at(&entry), message);
            }
            if !capability::can_match(&now) {
                let message = format!(
                    "`{pattern}` allows nothing: patterns look like rye.execute.tool.rye.bash"
                );
                self.warn("no_effect", at.at(&entry), message);
            }
            normalised.push(now);
        }
        Some(normalised)
    }

    fn inputs(&mut self, root: &At<'d>) -> Option<Inputs> {
        let Some(at) = root.child("config_schema") else {
            return Some(Inputs::default());
        };
        if !at.value.is_object() {
            self.wrong_type(&at, "a JSON schema, a map");
            return None;
        }
        let inputs = Inputs::new(at.value)
            .map_err(|(below, message)| {
                let at = At {
                    value: at.value,
                    pointer: format!("{}{below}", at.pointer),
                };
                self.error("bad_schema", &at, message);
            })
            .ok()?;
        for (key, message) in inputs.bad_defaults() {
            let default = at
                .child("properties")
                .and_then(|properties| properties.child(&key))
                .and_then(|property| property.child("default"));
            let message = format!("the default of input `{key}` breaks its own schema: {message}");
            self.error(
                "bad_schema",
                &default.unwrap_or_else(|| at.clone()),
                message,
            );
        }
        Some(inputs)
    }

    /// Reads a value of a closed list, if the key is present.
    fn stated<T: Copy + Default>(
        &mut self,
        config: &At<'d>,
        key: &'static str,
        words: &[(&str, T)],
    ) -> Option<T> {
        config.given(key)?;
        self.word(config, key, words)
    }

    fn initial_state(&mut self, config: &At<'d>) -> Option<Object> {
        let Some(at) = config.child("state") else {
            return Some(Object::new());
        };
        let Value::Object(state) = at.value else {
            self.wrong_type(&at, "a map");
            return None;
        };
        if let Some(inputs) = at.child("inputs") {
            self.error(
                "bad_assign",
                inputs.named(),
                "`state.inputs` holds the inputs of the run; give defaults in `config_schema`",
            );
        }
        if !expr::references(at.value, &|_| true).is_empty() {
            let message = "the state a run begins with is literal: nothing in it is interpolated";
            self.warn("no_effect", at.named(), message);
        }
        Some(state.clone())
    }

    fn nodes(&mut self, config: &At<'d>) -> Option<Nodes> {
        let at = config.child("nodes")?;
        let members = self.members(&at, "a map of nodes by name")?;
        if members.is_empty() {
            self.error(
                "missing_key",
                &at,
                "`nodes` is empty: a graph needs at least one node",
            );
        }
        self.context.names = at.value.as_object();
        let mut nodes = Vec::with_capacity(members.len());
        for (name, at) in members {
            if !self.has_time() {
                return None;
            }
            self.node = Some(name.to_owned());
            nodes.push(self.read_node(name, &at));
            self.node = None;
        }
        nodes.into_iter().collect()
    }

    fn start(&mut self, config: &At<'d>) -> Option<String> {
        self.target(&config.child("start")?)
    }

    fn hooks(&mut self, config: &At<'d>) -> Option<Vec<Hook>> {
        let Some(at) = config.given("hooks") else {
            return Some(Vec::new());
        };
        let entries = self.entries(&at, "a list of hooks {event, condition, action}")?;
        let mut lines = HashMap::new();
        let mut hooks = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let hook = self.hook(entry, &format!("hook-{}", index + 1));
            if let Some(hook) = &hook {
                if let Some(first) = lines.insert(hook.id.clone(), index + 1) {
                    let message = format!(
                        "hook {} has the id `{}` of hook {first}; give it another `id`",
                        index + 1,
                        hook.id
                    );
                    self.error("duplicate_id", entry, message);
                }
                if hook.layer != GRAPH_LAYER {
                    let message = "the hooks of a graph are layer 1; leave `layer` out";
                    self.error("unknown_value", entry.at("/layer"), message);
                }
            }
            hooks.push(hook);
        }
        hooks.into_iter().collect()
    }
}
