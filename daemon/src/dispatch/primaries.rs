//! Actions that fetch and sign: what they need, and what is asked for.

use rye_core::capability::Primary;
use rye_core::definition::{FETCH, SIGN};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::model::{Failure, Object};
use serde_json::{Value, json};

use crate::chain::NativeCall;
use crate::native;
use crate::services::Order;

/// The call that fetches `item`, if every part of it is `permitted`. An action on the tool that fetches may say in its parameters what
/// is fetched, and by a query it finds only what may be.
pub(super) fn fetch(
    order: &Order,
    item: &ItemRef,
    mut params: Object,
    permitted: impl Fn(Primary, &ItemRef) -> Result<(), Failure>,
) -> Result<NativeCall, Failure> {
    put_item(item, &mut params, FETCH, "query")?;
    if let Some(item) = named(&params) {
        permitted(Primary::Fetch, &item)?;
        if params.get("destination").is_some_and(Value::is_string) {
            permitted(Primary::Sign, &item)?;
        }
    }
    Ok(NativeCall {
        tool: native::Tool::Fetch,
        params,
        timeout: order.timeout,
    })
}

/// The call that signs `item`, if that is `permitted`; what stands for many items is asked about when they are found.
pub(super) fn sign(
    order: &Order,
    item: &ItemRef,
    mut params: Object,
    permitted: impl Fn(Primary, &ItemRef) -> Result<(), Failure>,
) -> Result<NativeCall, Failure> {
    put_item(item, &mut params, SIGN, "glob")?;
    if let Some(item) = named(&params) {
        permitted(Primary::Sign, &item)?;
    }
    Ok(NativeCall {
        tool: native::Tool::Sign,
        params,
        timeout: order.timeout,
    })
}

/// Puts `item` into the parameters, unless it is the tool `open` and they say what it is about themselves.
fn put_item(item: &ItemRef, params: &mut Object, open: &str, many: &str) -> Result<(), Failure> {
    let says = |key: &str| params.get(key).is_some_and(|value| !value.is_null());
    let is_open = item.kind == ItemKind::Tool && item.id.as_str() == open;
    if is_open && (says(many) || says("item_id")) {
        return Ok(());
    }
    if says("item_id") || says("item_type") {
        let text = "the action names the item: leave `item_id` and `item_type` out of its `params`";
        return Err(Failure::permanent("invalid_action", text));
    }
    params.insert("item_type".to_owned(), json!(item.kind.as_str()));
    params.insert("item_id".to_owned(), json!(item.id));
    Ok(())
}

/// The item that parameters name with its type. One without a type is looked for among those that may be fetched.
fn named(params: &Object) -> Option<ItemRef> {
    let id = params.get("item_id")?.as_str()?;
    let kind = params.get("item_type").and_then(Value::as_str);
    let kind: Option<ItemKind> = kind.and_then(|word| word.parse().ok());
    let item = match kind {
        Some(kind) => ItemRef {
            kind,
            id: ItemId::new(id).ok()?,
        },
        None if id.contains(':') => ItemRef::parse(id, ItemKind::Tool).ok()?,
        None => return None,
    };
    Some(item.canonical())
}
