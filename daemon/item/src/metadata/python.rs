//! Module-level literal assignments of a Python file.

use ruff_python_ast::{Expr, Number, Stmt, UnaryOp};
use serde_json::{Map, Value};

use super::keys::Fields;
use super::{Error, line_of};

/// Python names and their fields.
const NAMES: [(&str, &str); 18] = [
    ("__version__", "version"),
    ("__tool_type__", "tool_type"),
    ("__executor_id__", "executor_id"),
    ("__category__", "category"),
    ("__tool_name__", "name"),
    ("__tool_description__", "description"),
    ("__effect__", "effect"),
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

/// Assignments to known names, by their YAML names; the last one of a name wins.
pub(super) fn assignments(text: &str) -> Result<Fields, Error> {
    let module = ruff_python_parser::parse_module(text).map_err(|error| Error::Syntax {
        line: line_of(text, error.location.start().to_usize()),
        message: error.error.to_string(),
    })?;
    let mut fields = Fields::new();
    for statement in module.suite() {
        let (target, value, start) = if let Stmt::Assign(assign) = statement
            && let [target] = assign.targets.as_slice()
        {
            (target, &*assign.value, assign.range.start())
        } else if let Stmt::AnnAssign(assign) = statement
            && let Some(value) = &assign.value
        {
            (&*assign.target, &**value, assign.range.start())
        } else {
            continue;
        };
        let Expr::Name(name) = target else { continue };
        let Some((_, field)) = NAMES.iter().find(|(known, _)| *known == name.id.as_str()) else {
            continue;
        };
        let line = line_of(text, start.to_usize());
        let value = literal(value).ok_or_else(|| Error::NotLiteral {
            line,
            name: name.id.to_string(),
        })?;
        fields.put(field, value, line);
    }
    Ok(fields)
}

/// Value of a literal; `None` if it would have to be computed, or JSON has no such value.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other expression of Python would have to be computed"
)]
fn literal(expression: &Expr) -> Option<Value> {
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
            let number = literal(&unary.operand)?;
            match number.as_number()? {
                number if number.is_f64() => number.as_f64().map(|float| Value::from(-float)),
                integer => exact(&format!("-{integer}")),
            }
        }
        Expr::List(list) => list.elts.iter().map(literal).collect(),
        Expr::Tuple(tuple) => tuple.elts.iter().map(literal).collect(),
        Expr::Dict(dict) => dict
            .items
            .iter()
            .map(|item| match literal(item.key.as_ref()?)? {
                Value::String(key) => Some((key, literal(&item.value)?)),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => None,
            })
            .collect::<Option<Map<_, _>>>()
            .map(Value::Object),
        _ => None,
    }
}

/// The integer `text`; `None` if it does not fit 64 bits, because it would be rounded.
fn exact(text: &str) -> Option<Value> {
    let signed = text.parse::<i64>().map(Value::from);
    signed
        .or_else(|_| text.parse::<u64>().map(Value::from))
        .ok()
}
