// SPDX-License-Identifier: Apache-2.0
//! Network configurations, written as users write them.

use serde_json::{Map, Value, json};

/// A network configuration for one plugin.
#[derive(Clone, Debug)]
pub struct Conf(Map<String, Value>);

impl Conf {
    /// The configuration `text`, which is an object.
    pub fn new(text: Value) -> Self {
        match text {
            Value::Object(object) => Self(object),
            other => panic!("a configuration is an object, not {other}"),
        }
    }

    /// The same with `key` set to `value`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// The same without `key`.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.0.remove(key);
        self
    }

    /// The same in another version of the specification.
    #[must_use]
    pub fn version(self, version: &str) -> Self {
        self.with("cniVersion", version)
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.with("name", name)
    }

    /// The value of `key`, which is a text.
    pub fn text(&self, key: &str) -> &str {
        self.0
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_else(|| panic!("{key} is no text in {self:?}"))
    }

    /// The JSON document.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// The same with the attachments that GC keeps.
    #[must_use]
    pub fn keeping(self, valid: &[(&str, &str)]) -> Self {
        let list = valid
            .iter()
            .map(|(id, ifname)| json!({"containerID": id, "ifname": ifname}))
            .collect::<Vec<_>>();
        self.with("cni.dev/valid-attachments", list)
    }
}
