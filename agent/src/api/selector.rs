// SPDX-License-Identifier: Apache-2.0
//! Label selectors with the limits that Kubernetes' own schema leaves out, so that a wrong one is refused when it is
//! written and not when it is used.

use super::cel;
use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

/// The schema of a `LabelSelector`.
pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
    let mut schema = json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": 16,
                "additionalProperties": { "type": "string", "maxLength": 63 },
            },
            "matchExpressions": {
                "type": "array",
                "maxItems": 16,
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string", "minLength": 1, "maxLength": 317 },
                        "operator": { "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"] },
                        "values": { "type": "array", "maxItems": 64, "items": { "type": "string", "maxLength": 63 } },
                    },
                },
            },
        },
    });
    let rules: Vec<_> = [values_belong()]
        .iter()
        .filter_map(|rule| serde_json::to_value(rule).ok())
        .collect();
    schema.insert("x-kubernetes-validations".to_owned(), rules.into());
    schema
}

fn values_belong() -> Rule {
    cel::plain(
        "!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",
        "matchExpressions: operators In and NotIn need values, Exists and DoesNotExist take none",
    )
}
