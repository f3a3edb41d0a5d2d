// SPDX-License-Identifier: Apache-2.0
//! Builds the body of a write: a JSON merge patch (RFC 7386) of the members that this version of the program knows.
//!
//! An UPDATE replaces the whole object. It would lose a field of a newer version of the definitions that this program
//! does not know. A merge patch leaves such fields alone. It carries `metadata.resourceVersion`, so the API server
//! returns 409 if the object has changed since it was read.
//!
//! Invariant: a member that this program knows gets the value that the object has. If the object lacks the member, the
//! patch has null, which deletes it. The same holds for each key of a free map, such as the labels of a selector: no schema
//! names these keys, so the version that was read does. All other members stay.
//!
//! Lists are replaced as a whole. The items of lists that the controller and the agent write have no members that a newer version
//! may add, or they keep them (`crate::address_space::PoolEntry`). `rdmanet import` drops such members of ranges and routes.

use crate::definitions::definitions;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::Resource;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The members of an object that this program knows, with their own members.
#[derive(Debug, Default)]
struct Shape(BTreeMap<String, Shape>);

/// The shapes of our kinds, by plural.
static SHAPES: LazyLock<BTreeMap<String, Shape>> = LazyLock::new(|| {
    let all = definitions().into_iter();
    all.map(|definition| {
        let mut versions = definition.spec.versions.into_iter();
        let schema = versions.find_map(|version| version.schema?.open_api_v3_schema);
        let mut shape = schema.as_ref().map(Shape::of).unwrap_or_default();
        shape.accepted_is_a_spec(schema.as_ref());
        (definition.spec.names.plural, shape)
    })
    .collect()
});

impl Shape {
    fn of(schema: &JSONSchemaProps) -> Self {
        let members = schema.properties.iter().flatten();
        Self(
            members
                .map(|(name, member)| (name.clone(), Self::of(member)))
                .collect(),
        )
    }

    /// The schema of `status.accepted` has no members, and its content is that of a `spec`.
    fn accepted_is_a_spec(&mut self, schema: Option<&JSONSchemaProps>) {
        let spec = schema.and_then(|schema| schema.properties.as_ref()?.get("spec"));
        let status = self
            .0
            .get_mut("status")
            .and_then(|status| status.0.get_mut("accepted"));
        if let (Some(spec), Some(accepted)) = (spec, status) {
            *accepted = Self::of(spec);
        }
    }

    /// `value` with null for each known member that it lacks.
    fn complete(&self, value: &mut Value) {
        let Value::Object(members) = value else { return };
        for (name, shape) in &self.0 {
            match members.get_mut(name) {
                Some(member) => shape.complete(member),
                None => {
                    members.insert(name.clone(), Value::Null);
                }
            }
        }
    }
}

/// Adds null to `patch` for each member of `before` that it lacks.
fn delete_absent(before: &Value, patch: &mut Value) {
    let (Value::Object(before), Value::Object(patch)) = (before, patch) else {
        return;
    };
    for (name, there) in before {
        match patch.get_mut(name) {
            Some(member) => delete_absent(there, member),
            None => {
                patch.insert(name.clone(), Value::Null);
            }
        }
    }
}

/// The part of a resource that a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All but the status.
    Main,
    /// Metadata alone.
    Metadata,
    /// The status.
    Status,
}

/// The patch that gives `part` of an object the content that `object` has, if it is the version `before` that `object` was made
/// from.
///
/// # Errors
/// A sentence: `object` was never read, or it cannot be written as JSON.
pub(super) fn of<K: Resource<DynamicType = ()> + Serialize>(
    before: &K,
    object: &K,
    part: Part,
) -> Result<Value, String> {
    let meta = object.meta();
    // Without a version, the patch would change whatever is there.
    let Some(version) = &meta.resource_version else {
        return Err("the object has no resourceVersion, so it was not read before this write".to_owned());
    };
    let mut metadata = json!({ "resourceVersion": version });
    if part != Part::Status {
        metadata["finalizers"] = json!(meta.finalizers);
        if let Some(annotations) = &meta.annotations {
            metadata["annotations"] = json!(annotations);
        }
    }
    let mut patch = Map::new();
    patch.insert("metadata".to_owned(), metadata);
    let json =
        |object: &K| serde_json::to_value(object).map_err(|e| format!("it cannot be written as JSON: {e}"));
    let (before, all) = (json(before)?, json(object)?);
    let Value::Object(all) = all else {
        return Ok(Value::Object(patch));
    };
    let shape = SHAPES.get(&*K::plural(&()));
    for (name, mut content) in all {
        let wanted = match name.as_str() {
            "metadata" | "apiVersion" | "kind" => false,
            "status" => part == Part::Status,
            _ => part == Part::Main,
        };
        if wanted {
            if let Some(shape) = shape.and_then(|shape| shape.0.get(&name)) {
                shape.complete(&mut content);
            }
            if let Some(before) = before.get(&name) {
                delete_absent(before, &mut content);
            }
            patch.insert(name, content);
        }
    }
    Ok(Value::Object(patch))
}

#[cfg(test)]
mod tests;
