//! The names, and the keys of `result`, that templates and conditions can read at each place of a file. Anything else
//! is an error.

use std::sync::Arc;

use serde_json::Value;

use super::read::{At, Reader};
use super::roots::{
    APPROVAL, COUNTS, OF_SERVICE, PROCESS_WAIT, RESULTS, Roots, SERVICE, SERVICES, Scope,
};
use super::segments::segments;
use super::work::Work;
use crate::expr::{self, Condition, did_you_mean};

/// Returns the keys that the result of a node can have; `None` if the item it uses decides.
pub(super) fn result_keys(work: &Work) -> Option<Arc<[String]>> {
    let keys: Vec<&str> = match work {
        Work::Foreach(_) => [RESULTS].into_iter().chain(COUNTS).collect(),
        Work::Parallel(parallel) => {
            let branches = parallel.branches.iter().map(|(name, _)| &**name);
            branches.chain(COUNTS).collect()
        }
        Work::Approval(_) => APPROVAL.to_vec(),
        Work::Service(_) => SERVICE.to_vec(),
        Work::ProcessWait(_) => PROCESS_WAIT.to_vec(),
        Work::Action(_) | Work::Gate | Work::Return { .. } | Work::Fail(_) | Work::Wait(_) => {
            return None;
        }
    };
    Some(keys.into_iter().map(ToOwned::to_owned).collect())
}

impl<'d> Reader<'d> {
    /// Begins a node or hook: a name that was reported at the previous one is reported again.
    pub(super) fn begin_scope(&mut self) {
        self.context.scope = Scope {
            roots: Some(Roots::default()),
            ..Scope::default()
        };
    }

    /// Reads with other names and another result in scope.
    pub(super) fn among<T>(
        &mut self,
        roots: Option<Roots<'d>>,
        result: Option<Arc<[String]>>,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let roots = std::mem::replace(&mut self.context.scope.roots, roots);
        let result = std::mem::replace(&mut self.context.scope.result, result);
        let value = read(self);
        (self.context.scope.roots, self.context.scope.result) = (roots, result);
        value
    }

    fn is_root(&self) -> impl Fn(&str) -> bool + use<'d> {
        let roots = self.context.scope.roots;
        move |name| roots.is_none_or(|roots| roots.has(name))
    }

    /// Checks the texts of a template.
    pub(crate) fn template(&mut self, at: &At<'d>) {
        let is_root = self.is_root();
        self.adopt("bad_template", at, expr::check(at.value, &is_root));
        let mut reads = Vec::new();
        expr::each_read(at.value, &is_root, &mut |read| {
            reads.push((read.at.to_owned(), read.path.into_owned(), read.for_shell));
        });
        for (below, path, for_shell) in reads {
            self.check_path(at, &below, &path, for_shell);
        }
    }

    /// Checks the paths of a condition.
    pub(super) fn check_paths(&mut self, at: &At<'d>, condition: &Condition) {
        for path in condition.paths() {
            self.check_path(at, "", path, None);
        }
    }

    /// True if the value of `template` depends on no name.
    pub(super) fn is_literal(&self, template: &Value) -> bool {
        let is_root = self.is_root();
        expr::references(template, &is_root).is_empty()
    }

    /// Reports a path that leads nowhere in every run.
    fn check_path(&mut self, at: &At<'d>, below: &str, path: &str, for_shell: Option<String>) {
        let Some(roots) = self.context.scope.roots else {
            return;
        };
        let mut steps = segments(path);
        let root = steps.next().unwrap_or_default();
        if !roots.has(root) {
            if self.context.scope.reported.insert(root.to_owned()) {
                let mut message = self.unknown_name(path, root, &roots);
                if let Some(escaped) = for_shell {
                    message = format!("{message}; {escaped}");
                }
                self.error("unknown_name", at.at(below), message);
            }
            return;
        }
        match (root, steps.next()) {
            ("result", Some(key)) => self.check_result_key(at, below, path, key),
            (SERVICES, Some(node)) => self.check_service(at, below, path, (node, steps.next())),
            (_, _) => {}
        }
    }

    /// Reports a path of a service that the graph does not have, or of a fact that services do not have.
    fn check_service(
        &mut self,
        at: &At<'d>,
        below: &str,
        path: &str,
        (node, fact): (&str, Option<&str>),
    ) {
        let services = self.service_nodes();
        if !services.contains(&node) {
            if self
                .context
                .scope
                .reported
                .insert(format!("{SERVICES}.{node}"))
            {
                let hint = did_you_mean(self.nearest(node, services));
                let message =
                    format!("reads {path}, but no node `{node}` has `type: service`{hint}");
                self.error("unknown_service", at.at(below), message);
            }
            return;
        }
        if let Some(fact) = fact.filter(|fact| !OF_SERVICE.contains(fact)) {
            let message = format!(
                "reads {path}, but a service has no `{fact}`; it has {}",
                OF_SERVICE.join(", ")
            );
            self.error("unknown_service", at.at(below), message);
        }
    }

    /// Returns the names of the nodes that are services, whether they can be read or not.
    fn service_nodes(&self) -> Vec<&'d str> {
        let config = self.root().child("config");
        let nodes = config.and_then(|config| config.child("nodes"));
        let nodes = nodes.and_then(|nodes| nodes.value.as_object());
        let is_service = |(name, node): (&'d String, &'d Value)| {
            let is_service = node.get("type").and_then(Value::as_str) == Some("service");
            is_service.then_some(name.as_str())
        };
        nodes.into_iter().flatten().filter_map(is_service).collect()
    }

    fn check_result_key(&mut self, at: &At<'d>, below: &str, path: &str, key: &str) {
        let Some(keys) = self.context.scope.result.clone() else {
            return;
        };
        let is_key = keys.iter().any(|known| known == key);
        if is_key || !self.context.scope.reported.insert(format!("result.{key}")) {
            return;
        }
        let hint = self
            .nearest(key, keys.iter().map(String::as_str))
            .map_or_else(String::new, |near| {
                format!(" (did you mean result.{near}?)")
            });
        let message = format!(
            "reads {path}, but the result of this node never has `{key}`{hint}; it has {}",
            keys.join(", ")
        );
        self.error("unknown_result", at.at(below), message);
    }

    fn unknown_name(&mut self, path: &str, root: &str, roots: &Roots<'_>) -> String {
        if root == "result" && roots.event.is_none() {
            return format!(
                "reads {path}, but `result` is there only in `assign` and `next` of a node that uses an item or asks a person; \
                 assign what later nodes need"
            );
        }
        let event = roots.event.map_or_else(String::new, |event| {
            format!(" at the event `{}`", event.as_str())
        });
        let hint = did_you_mean(self.nearest(root, roots.names()));
        let names: Vec<&str> = roots.names().collect();
        format!(
            "reads {path}, but there is no `{root}` here{event}{hint}; there are {}",
            names.join(", ")
        )
    }
}
