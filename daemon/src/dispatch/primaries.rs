//! Fetch and sign actions: their permissions and parameters.

use rye_core::capability::Primary;
use rye_core::definition::{FETCH, SIGN};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::model::{Failure, Object};
use serde_json::{Value, json};

use crate::chain::NativeCall;
use crate::native;
use crate::services::Order;

/// Plans a fetch of `item` if all parts of it are `permitted`. An action on the fetch tool itself may name the item in
/// its parameters. A query returns only permitted items.
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

/// Plans the signing of `item` if it is `permitted`. The items that a glob matches are checked when they are found.
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

/// Adds `item` to the parameters. They stay unchanged if `item` is the tool `open` itself and they name items.
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

/// Item in the parameters, with its type. An item without a type is searched later among those that may be fetched.
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
