//! Module-level literal assignments of a Python file.

use std::collections::HashMap;

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{Alias, Expr, ExprName, Number, Stmt, UnaryOp};
use serde_json::{Map, Value};

use super::keys::Fields;
use super::{Error, line_of};

/// Python names and their fields.
const NAMES: [(&str, &str); 24] = [
    ("__version__", "version"),
    ("__tool_type__", "tool_type"),
    ("__executor_id__", "executor_id"),
    ("__category__", "category"),
    ("__tool_name__", "name"),
    ("__tool_description__", "description"),
    ("__callers__", "callers"),
    ("__effect__", "effect"),
    ("__output__", "output"),
    ("__replay__", "replay"),
    ("__isolation__", "isolation"),
    ("__resources__", "resources"),
    ("PERMISSIONS", "permissions"),
    ("CONFIG_SCHEMA", "config_schema"),
    ("ENV_CONFIG", "env_config"),
    ("CONFIG", "config"),
    ("CONFIG_RESOLVE", "config_resolve"),
    ("__execution_owner__", "execution_owner"),
    ("__native_async__", "native_async"),
    ("__native_resume__", "native_resume"),
    ("CHILD_CONSTRAINTS", "child_constraints"),
    ("__inputs__", "inputs"),
    ("__outputs__", "outputs"),
    ("__env_requires__", "env_requires"),
];

/// Assignments to known names, by their YAML names; the last one of a name wins. A value may name literals above it.
pub(super) fn assignments(text: &str) -> Result<Fields, Error> {
    let module = ruff_python_parser::parse_module(text).map_err(|error| Error::Syntax {
        line: line_of(text, error.location.start().to_usize()),
        message: error.error.to_string(),
    })?;
    let mut fields = Fields::new();
    let mut constants = Constants::default();
    for statement in module.suite() {
        let Some((name, value)) = assigned(statement) else {
            constants.forget(statement);
            continue;
        };
        let Some((_, field)) = NAMES.iter().find(|(known, _)| *known == name.id.as_str()) else {
            constants.assign(name, value, statement);
            continue;
        };
        let line = line_of(text, name.range.start().to_usize());
        let value = constants.literal(value).ok_or_else(|| Error::NotLiteral {
            line,
            name: name.id.to_string(),
        })?;
        fields.put(field, value, line);
    }
    Ok(fields)
}

/// The name and the value of a statement that assigns to one name.
fn assigned(statement: &Stmt) -> Option<(&ExprName, &Expr)> {
    let (target, value) = if let Stmt::Assign(assign) = statement
        && let [target] = assign.targets.as_slice()
    {
        (target, &*assign.value)
    } else if let Stmt::AnnAssign(assign) = statement
        && let Some(value) = &assign.value
    {
        (&*assign.target, &**value)
    } else {
        return None;
    };
    let Expr::Name(name) = target else {
        return None;
    };
    Some((name, value))
}

/// Most bytes of JSON that names in the literals of one file may stand for.
const MOST_NAMED: usize = 1 << 20;

/// Values of names that hold a literal so far, with their sizes as JSON in bytes. A literal below may name them.
#[derive(Default)]
struct Constants<'m> {
    known: HashMap<&'m str, (Value, usize)>,
    /// Bytes that names have stood for.
    named: usize,
}

impl<'m> Constants<'m> {
    /// Records that `name` is `value`, if that is a literal without names.
    fn assign(&mut self, name: &'m ExprName, value: &Expr, statement: &'m Stmt) {
        self.forget(statement);
        if let Some(literal) = Self::default().literal(value) {
            let size = literal.to_string().len();
            self.known.insert(name.id.as_str(), (literal, size));
        }
    }

    /// Forgets the names that a statement mentions: it may change their values. A function does so only when it is called.
    fn forget(&mut self, statement: &'m Stmt) {
        if let Stmt::FunctionDef(function) = statement {
            self.known.remove(function.name.as_str());
        } else if !self.known.is_empty() {
            self.visit_stmt(statement);
        }
    }

    /// Value of a literal; `None` if it would have to be computed, or JSON has no such value.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other expression of Python would have to be computed"
    )]
    fn literal(&mut self, expression: &Expr) -> Option<Value> {
        match expression {
            Expr::StringLiteral(text) => Some(Value::from(text.value.to_str())),
            Expr::BooleanLiteral(boolean) => Some(Value::from(boolean.value)),
            Expr::NoneLiteral(_) => Some(Value::Null),
            Expr::NumberLiteral(number) => match &number.value {
                Number::Int(int) => exact(&int.to_string()),
                Number::Float(float) => serde_json::Number::from_f64(*float).map(Value::Number),
                Number::Complex { .. } => None,
            },
            Expr::UnaryOp(unary) if unary.op == UnaryOp::USub => {
                let number = self.literal(&unary.operand)?;
                match number.as_number()? {
                    number if number.is_f64() => number.as_f64().map(|float| Value::from(-float)),
                    integer => exact(&format!("-{integer}")),
                }
            }
            Expr::List(list) => list.elts.iter().map(|entry| self.literal(entry)).collect(),
            Expr::Tuple(tuple) => tuple.elts.iter().map(|entry| self.literal(entry)).collect(),
            Expr::Dict(dict) => dict
                .items
                .iter()
                .map(|item| match self.literal(item.key.as_ref()?)? {
                    Value::String(key) => Some((key, self.literal(&item.value)?)),
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_) => None,
                })
                .collect::<Option<Map<_, _>>>()
                .map(Value::Object),
            Expr::Name(name) => self.named(name),
            _ => None,
        }
    }

    /// Value of a name, within the bound of all names.
    fn named(&mut self, name: &ExprName) -> Option<Value> {
        let (value, size) = self.known.get(name.id.as_str())?;
        self.named = self.named.saturating_add(*size);
        (self.named <= MOST_NAMED).then(|| value.clone())
    }
}

impl<'m> Visitor<'m> for Constants<'m> {
    fn visit_expr(&mut self, expression: &'m Expr) {
        if let Expr::Name(name) = expression {
            self.known.remove(name.id.as_str());
        }
        visitor::walk_expr(self, expression);
    }

    fn visit_alias(&mut self, alias: &'m Alias) {
        let name = alias.asname.as_ref().unwrap_or(&alias.name);
        self.known.remove(name.as_str());
    }
}

/// The integer `text`; `None` if it does not fit 64 bits, because it would be rounded.
fn exact(text: &str) -> Option<Value> {
    let signed = text.parse::<i64>().map(Value::from);
    signed
        .or_else(|_| text.parse::<u64>().map(Value::from))
        .ok()
}
