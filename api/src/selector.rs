// SPDX-License-Identifier: Apache-2.0
//! Label selectors with the limits that Kubernetes' own schema leaves out. The API server then refuses a wrong selector
//! when it is written and not when it is used.

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
    let rules: Vec<_> = [
        values_belong(),
        labels_are_labels(),
        expressions_are_about_labels(),
    ]
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

const KEY: &str = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
const SPELLING: &str = "a key is a name such as rail or example.com/rail, and key and value are made of letters, digits, -, _ and ., beginning and ending with a letter or digit";

/// Rejects keys and values that no label can have. Such a selector would select nothing, or the API server would refuse
/// every list that uses it.
fn labels_are_labels() -> Rule {
    cel::plain(
        format!(
            "!has(self.matchLabels) || self.matchLabels.all(k, k.matches('{KEY}') && self.matchLabels[k].matches('{VALUE}'))"
        ),
        &format!("matchLabels: {SPELLING}"),
    )
}

fn expressions_are_about_labels() -> Rule {
    cel::plain(
        format!(
            "!has(self.matchExpressions) || self.matchExpressions.all(e, e.key.matches('{KEY}') && (!has(e.values) || e.values.all(v, v.matches('{VALUE}'))))"
        ),
        &format!("matchExpressions: {SPELLING}"),
    )
}
