// SPDX-License-Identifier: Apache-2.0
//! Results of 0.1.0 and 0.2.0: at most one address per family, no interfaces.

use super::{CniResult, Dns, IpConfig, Route};
use crate::cni::error::Error;
use crate::cni::plain::decode;
use crate::cni::version::Version;
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::IpAddr;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Document {
    ip4: Option<Family>,
    ip6: Option<Family>,
    dns: Option<Dns>,
}

#[derive(Serialize, Deserialize)]
struct Family {
    ip: IpNetwork,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

pub(super) fn write(result: &CniResult, version: Version) -> Value {
    let mut document = json!({ "cniVersion": version.as_str(), "dns": result.dns });
    for (key, is_v4) in [("ip4", true), ("ip6", false)] {
        // The shape holds one address per family. The first one is the pod's.
        let Some(ip) = result.ips.iter().find(|ip| ip.address.is_ipv4() == is_v4) else {
            continue;
        };
        let routes = result.routes.iter().filter(|r| r.dst.is_ipv4() == is_v4);
        document[key] = json!(Family {
            ip: ip.address,
            gateway: ip.gateway,
            routes: routes.map(|r| Route::new(r.dst, r.gw)).collect(),
        });
    }
    document
}

pub(super) fn read(value: &Value) -> Result<CniResult, Error> {
    let document: Document = decode(value)?;
    let mut result = CniResult {
        dns: document.dns.unwrap_or_default(),
        ..CniResult::default()
    };
    for family in [document.ip4, document.ip6].into_iter().flatten() {
        result.ips.push(IpConfig {
            address: family.ip,
            gateway: family.gateway,
            interface: None,
            probe: false,
        });
        result.routes.extend(family.routes);
    }
    Ok(result)
}
