// SPDX-License-Identifier: Apache-2.0
//! Network configurations, written as users write them.

use crate::Node;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// The directory of the VM with the files of `conf/`.
const HANDED_OUT: &str = "/etc/cni/net.d";

/// A network configuration for one plugin.
#[derive(Clone, Debug)]
pub struct Conf(Map<String, Value>);

impl Conf {
    /// A configuration from a JSON object.
    pub fn new(text: Value) -> Self {
        match text {
            Value::Object(object) => Self(object),
            other => panic!("a configuration is an object, not {other}"),
        }
    }

    /// The first plugin of a file of `conf/`, as a runtime passes it to the plugin, with leases in the node's own
    /// directory and no cooldown.
    pub fn handed_out(file: &str, node: &Node) -> Self {
        let path = Path::new(HANDED_OUT).join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| {
            panic!(
                "{}: {e}; give tests/fabric/run --share \"$PWD/conf:{HANDED_OUT}\"",
                path.display()
            )
        });
        let list: Value = serde_json::from_str(&text).unwrap();
        let mut ipam = list["plugins"][0]["ipam"].clone();
        ipam["dataDir"] = json!(node.path("rdma-ipam"));
        ipam["cooldown"] = json!(0);
        Self::new(list["plugins"][0].clone())
            .with("name", list["name"].clone())
            .with("cniVersion", list["cniVersion"].clone())
            .with("ipam", ipam)
    }

    /// Sets `key` to `value`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// Removes `key`.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.0.remove(key);
        self
    }

    /// Sets the version of the specification.
    #[must_use]
    pub fn version(self, version: &str) -> Self {
        self.with("cniVersion", version)
    }

    /// Sets the name of the network.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.with("name", name)
    }

    /// The text value of `key`.
    pub fn text(&self, key: &str) -> &str {
        self.0
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_else(|| panic!("{key} is no text in {self:?}"))
    }

    /// The configuration as JSON.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// Adds the attachments that GC must keep.
    #[must_use]
    pub fn keeping(self, valid: &[(&str, &str)]) -> Self {
        let list = valid
            .iter()
            .map(|(id, ifname)| json!({"containerID": id, "ifname": ifname}))
            .collect::<Vec<_>>();
        self.with("cni.dev/valid-attachments", list)
    }
}
