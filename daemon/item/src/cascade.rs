//! Merging of configuration files of the same name: system, then user, then project.
//!
//! **Rules.** Maps are merged key by key. A list whose first entry has an `id` is merged by `id`. An entry with a known
//! id replaces that entry as a whole, at its position. Any other entry is appended. Every other list, and every other
//! value, is replaced. The key `extends` of an upper file is ignored, as the original does.
//!
//! **Origin.** Each list entry with an `id` gets its space under the key [`ORIGIN`]. A reader of the merged
//! configuration can so identify the entries that are part of the program. No file may use that key.

use rye_core::error::{ErrorKind, Kinded};
use rye_core::policy::ORIGIN;
use rye_core::yaml::push_segment;
use serde_json::{Map, Value};

use crate::spaces::Space;

/// Errors of a merge. `at` is a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("`{at}`: the key `{ORIGIN}` is reserved")]
    Reserved { at: String },
    /// The file adds an entry without an id to a list that is merged by id.
    #[error(
        "`{at}`: each entry of this list needs an `id`, by which it replaces another or is added"
    )]
    NoId { at: String },
    #[error("`{at}`: the id {id} occurs above; each entry of this list needs one of its own")]
    SameId {
        /// Pointer to the second entry with this id.
        at: String,
        /// The id, as JSON.
        id: String,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Reserved { .. } | Self::NoId { .. } | Self::SameId { .. } => ErrorKind::Invalid,
        }
    }
}

/// Adds the origin `space` to the list entries of `file`.
pub fn add_origin(mut file: Map<String, Value>, space: Space) -> Result<Map<String, Value>, Error> {
    add_origin_to_map(&mut file, space, &mut String::new())?;
    Ok(file)
}

fn add_origin_to_map(
    map: &mut Map<String, Value>,
    space: Space,
    at: &mut String,
) -> Result<(), Error> {
    if map.contains_key(ORIGIN) {
        return Err(Error::Reserved { at: at.clone() });
    }
    for (key, value) in map {
        below(at, key, |at| add_origin_to_value(value, space, at))?;
    }
    Ok(())
}

fn add_origin_to_value(value: &mut Value, space: Space, at: &mut String) -> Result<(), Error> {
    match value {
        Value::Object(map) => add_origin_to_map(map, space, at),
        Value::Array(list) => add_origin_to_list(list, space, at),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn add_origin_to_list(list: &mut [Value], space: Space, at: &mut String) -> Result<(), Error> {
    let unique = by_id(list);
    for index in 0..list.len() {
        let (before, rest) = list.split_at_mut(index);
        let Some(entry) = rest.first_mut() else { break };
        below(at, &index.to_string(), |at| {
            add_origin_to_value(entry, space, at)?;
            let Value::Object(map) = entry else {
                return Ok(());
            };
            let Some(id) = map.get("id") else {
                return Ok(());
            };
            if unique && before.iter().any(|above| above.get("id") == Some(id)) {
                return Err(Error::SameId {
                    at: at.clone(),
                    id: id.to_string(),
                });
            }
            map.insert(ORIGIN.to_owned(), space.as_str().into());
            Ok(())
        })?;
    }
    Ok(())
}

/// Removes the origins again.
pub fn remove_origins(map: &mut Map<String, Value>) {
    map.shift_remove(ORIGIN);
    map.values_mut().for_each(remove_origins_of_value);
}

fn remove_origins_of_value(value: &mut Value) {
    match value {
        Value::Object(map) => remove_origins(map),
        Value::Array(list) => list.iter_mut().for_each(remove_origins_of_value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Merges `upper` into `base`. Both must have their origins set.
pub fn merge(base: &mut Map<String, Value>, upper: Map<String, Value>) -> Result<(), Error> {
    merge_maps(base, upper, &mut String::new())
}

fn merge_maps(
    base: &mut Map<String, Value>,
    upper: Map<String, Value>,
    at: &mut String,
) -> Result<(), Error> {
    for (key, value) in upper {
        if key == "extends" {
            continue;
        }
        below(at, &key, |at| match (base.get_mut(&key), value) {
            (Some(Value::Object(base)), Value::Object(upper)) => merge_maps(base, upper, at),
            (Some(Value::Array(base)), Value::Array(upper)) if by_id(base) => {
                merge_lists(base, upper, at)
            }
            (Some(place), value) => {
                *place = value;
                Ok(())
            }
            (None, value) => {
                base.insert(key.clone(), value);
                Ok(())
            }
        })?;
    }
    Ok(())
}

fn by_id(list: &[Value]) -> bool {
    list.first().is_some_and(|entry| entry.get("id").is_some())
}

fn merge_lists(base: &mut Vec<Value>, upper: Vec<Value>, at: &mut String) -> Result<(), Error> {
    for (index, entry) in upper.into_iter().enumerate() {
        let Some(id) = entry.get("id") else {
            push_segment(at, &index.to_string());
            return Err(Error::NoId { at: at.clone() });
        };
        match base.iter_mut().find(|known| known.get("id") == Some(id)) {
            Some(place) => *place = entry,
            None => base.push(entry),
        }
    }
    Ok(())
}

fn below<T>(at: &mut String, key: &str, go: impl FnOnce(&mut String) -> T) -> T {
    let length = at.len();
    push_segment(at, key);
    let done = go(at);
    at.truncate(length);
    done
}

#[cfg(test)]
mod tests;
