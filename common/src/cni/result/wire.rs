// SPDX-License-Identifier: Apache-2.0
//! Results of 0.3.0 to 1.1.0: one shape, less what a version does not know.

use super::{CniResult, Dns, Interface, IpConfig, Route};
use crate::cni::conf::decode;
use crate::cni::error::Error;
use crate::cni::version::Version;
use serde::Deserialize;
use serde_json::{Value, json};

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
    let mut document = json!({ "cniVersion": version.as_str(), "dns": result.dns });
    let interfaces = result
        .interfaces
        .iter()
        .map(|i| interface(i, version))
        .collect::<Vec<_>>();
    let ips = result.ips.iter().map(|i| ip(i, version)).collect::<Vec<_>>();
    let routes = result
        .routes
        .iter()
        .map(|r| route(r, version))
        .collect::<Vec<_>>();
    for (key, list) in [("interfaces", interfaces), ("ips", ips), ("routes", routes)] {
        if !list.is_empty() {
            document[key] = Value::Array(list);
        }
    }
    document
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
    })
}
