// SPDX-License-Identifier: Apache-2.0
//! Results of 0.3.0 to 1.1.0: one shape, without the members that a version does not have.

use super::{CniResult, Dns, Interface, IpConfig, Route};
use crate::cni::error::Error;
use crate::cni::plain::decode;
use crate::cni::version::Version;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Document {
    interfaces: Option<Vec<Interface>>,
    ips: Option<Vec<IpConfig>>,
    routes: Option<Vec<Route>>,
    dns: Option<Dns>,
}

pub(super) fn write(result: &CniResult, version: Version) -> Value {
    let chain = &result.chain;
    let mut document = chain.document.clone();
    document.insert("cniVersion".to_owned(), json!(version.as_str()));
    if result.dns != chain.dns || !document.contains_key("dns") {
        document.insert("dns".to_owned(), json!(result.dns));
    }
    let interfaces = result.interfaces.iter().map(|i| interface(i, version));
    append(&mut document, "interfaces", interfaces);
    append(&mut document, "ips", result.ips.iter().map(|i| ip(i, version)));
    append(
        &mut document,
        "routes",
        result.routes.iter().map(|r| route(r, version)),
    );
    Value::Object(document)
}

/// Appends the new items of `list` to an earlier plugin's items under `key`. Leaves out an empty list.
fn append(document: &mut Map<String, Value>, key: &str, list: impl Iterator<Item = Value>) {
    let mut all = match document.remove(key) {
        Some(Value::Array(before)) => before,
        _ => Vec::new(),
    };
    all.extend(list.skip(all.len()));
    if !all.is_empty() {
        document.insert(key.to_owned(), Value::Array(all));
    }
}

fn interface(interface: &Interface, version: Version) -> Value {
    if version >= Version::V1_1_0 {
        return json!(interface);
    }
    json!(Interface {
        mtu: None,
        socket_path: String::new(),
        pci_id: String::new(),
        ..interface.clone()
    })
}

fn ip(ip: &IpConfig, version: Version) -> Value {
    let mut document = json!(ip);
    if version <= Version::V0_4_0 {
        document["version"] = json!(if ip.address.is_ipv4() { "4" } else { "6" });
    }
    document
}

fn route(route: &Route, version: Version) -> Value {
    if version >= Version::V1_1_0 {
        json!(route)
    } else {
        json!(Route::new(route.dst, route.gw))
    }
}

pub(super) fn read(value: &Value) -> Result<CniResult, Error> {
    let document: Document = decode(value)?;
    Ok(CniResult {
        interfaces: document.interfaces.unwrap_or_default(),
        ips: document.ips.unwrap_or_default(),
        routes: document.routes.unwrap_or_default(),
        dns: document.dns.unwrap_or_default(),
        ..CniResult::default()
    })
}
