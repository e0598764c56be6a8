//! Items and keys as wire types.

use rye_core::error::with_sources;
use rye_core::model::Effect;
use rye_item::library::Entry;
use rye_item::trust::{PartialCoverage, TrustedKey};
use rye_proto::v1;

use super::timestamp;
use crate::index::Described;

/// An item as a row of a list.
pub(crate) fn entry(entry: &Entry) -> v1::Item {
    let (report, metadata) = (&entry.report, &entry.metadata);
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    v1::Item {
        item: Some((&report.item).into()),
        space: entry.space.as_str().to_owned(),
        path: report.path.display().to_string(),
        verdict: report.verdict.as_str().to_owned(),
        problem: report
            .refusal
            .as_ref()
            .map(|why| with_sources(why))
            .unwrap_or_default(),
        fingerprint: report
            .fingerprint
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        owner: said(&report.owner),
        title: said(&metadata.title),
        description: said(&metadata.description),
        version: said(&metadata.version),
        tool_type: said(&metadata.tool_type),
    }
}

pub(crate) fn described(described: Described) -> v1::DescribeResponse {
    let metadata = &described.entry.metadata;
    let effect = match metadata.effect {
        None => "",
        Some(Effect::Pure) => "pure",
        Some(Effect::Idempotent) => "idempotent",
        Some(Effect::AtMostOnce) => "at_most_once",
    };
    v1::DescribeResponse {
        item: Some(entry(&described.entry)),
        inputs_schema_json: described
            .inputs
            .map(|schema| schema.to_string())
            .unwrap_or_default(),
        has_permissions: described.permissions.is_some(),
        permissions: described.permissions.unwrap_or_default(),
        executor_id: metadata.executor_id.clone().unwrap_or_default(),
        effect: effect.to_owned(),
        tags: metadata.tags.clone(),
        shadows: described
            .shadows
            .iter()
            .map(|other| v1::ShadowedItem {
                space: other.space.as_str().to_owned(),
                path: other.path.display().to_string(),
            })
            .collect(),
    }
}

/// `node` is the fingerprint of the daemon's own key.
pub(crate) fn key(trusted: &TrustedKey, node: &str) -> v1::TrustedKey {
    let fingerprint = trusted.key.fingerprint().to_string();
    v1::TrustedKey {
        is_node: fingerprint == node,
        fingerprint,
        owner: trusted.owner.clone(),
        space: trusted.space.as_str().to_owned(),
        not_after: trusted.not_after.map(timestamp),
        revoked_at: trusted.revoked_at.map(timestamp),
        accept_partial: trusted.partial == PartialCoverage::Accepted,
        public_pem: trusted.key.to_pem(),
    }
}
