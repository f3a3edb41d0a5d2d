// SPDX-License-Identifier: Apache-2.0
//! The result of ADD: held in the shape of 1.1.0, written and read in the shape of any version.

mod legacy;
mod wire;

use super::error::{Code, Error};
use super::plain::empty_is_none;
use super::version::Version;
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// A result (spec § Success).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniResult {
    /// The interfaces, in the order they were made.
    pub interfaces: Vec<Interface>,
    /// The addresses, each pointing into `interfaces`.
    pub ips: Vec<IpConfig>,
    /// The routes of the container.
    pub routes: Vec<Route>,
    /// Name resolution.
    pub dns: Dns,
    /// The result that this one continues; see [`CniResult::chained`].
    pub chain: Chain,
}

/// The result of an earlier plugin of the chain, word for word. Empty without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    document: Map<String, Value>,
    dns: Dns,
}

/// An interface of the host or of the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Its name in its namespace.
    pub name: String,
    /// Its hardware address in colon form: 6 bytes for Ethernet, 20 for `IPoIB`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Its MTU in bytes (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The namespace's path, empty for the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// A vhost-user socket (1.1.0); only passed through.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
    /// The PCI address of the device it belongs to (1.1.0).
    #[serde(default, rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// The address with its prefix length.
    pub address: IpNetwork,
    /// The gateway of its subnet.
    #[serde(
        default,
        deserialize_with = "empty_is_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub gateway: Option<IpAddr>,
    /// Its interface, as an index into [`CniResult::interfaces`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// Whether the main plugin must probe for another host with this address before the pod uses it. Only an
    /// IPAM plugin sets it, and only for a main plugin that declares [`PROBES`]. Other plugins ignore the
    /// member.
    #[serde(default, rename = "rdmanet.io/probe", skip_serializing_if = "is_false")]
    pub probe: bool,
}

/// The member of a delegated configuration by which a main plugin declares that it probes each address whose
/// [`IpConfig::probe`] is set, and fails ADD if another host answers.
pub const PROBES: &str = "rdmanet.io/probes";

/// The member of a delegated DEL by which a main plugin declares that its ADD did not succeed. The probe of an address
/// then found another host, or came to no result.
pub const UNFINISHED: &str = "rdmanet.io/unfinished";

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// A route; all but `dst` and `gw` exist since 1.1.0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination.
    pub dst: IpNetwork,
    /// The next hop. `None` stands for the gateway of the interface's address.
    #[serde(
        default,
        deserialize_with = "empty_is_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub gw: Option<IpAddr>,
    /// MTU along the route, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The MSS to advertise, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// The metric; lower is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The routing table; absent means main.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The scope: 0 universe, 253 link, 254 host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

impl Route {
    /// A route to `dst` through `gw`.
    pub fn new(dst: IpNetwork, gw: Option<IpAddr>) -> Self {
        Self {
            dst,
            gw,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
        }
    }
}

/// Name resolution (spec § Well-known Types, DNS).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Name servers, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search domains, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl CniResult {
    /// The document in the exact shape of `version`.
    ///
    /// Empty lists are left out: Multus reads `"interfaces": []` as an interface that exists (multus-cni
    /// `pkg/netutils`, PR#1095).
    pub fn to_json(&self, version: Version) -> Value {
        if version <= Version::V0_2_0 {
            legacy::write(self, version)
        } else {
            wire::write(self, version)
        }
    }

    /// Reads a result of any version. The keys show the version, since `prevResult` may lack `cniVersion`.
    ///
    /// # Errors
    /// [`Code::DECODE`] with the JSON path of the invalid value.
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        if !value.is_object() {
            return Err(Error::new(
                Code::DECODE,
                format!("a result is a JSON object, not {value}"),
            ));
        }
        let result = if is_legacy(value) {
            legacy::read(value)?
        } else {
            wire::read(value)?
        };
        result.check_indexes()?;
        Ok(result)
    }

    /// Reads the result of the previous plugin, for a plugin that appends to it.
    ///
    /// Its members are passed on unchanged, including the ones that this plugin does not know (spec § 2,
    /// `prevResult`). The shape of 0.2.0 holds one address of each family: nothing can be appended to it, and
    /// only known members are passed on.
    ///
    /// # Errors
    /// As [`CniResult::from_json`].
    pub fn chained(value: &Value) -> Result<Self, Error> {
        let mut result = Self::from_json(value)?;
        if let (Value::Object(document), false) = (value, is_legacy(value)) {
            result.chain = Chain {
                document: document.clone(),
                dns: result.dns.clone(),
            };
        }
        Ok(result)
    }

    fn check_indexes(&self) -> Result<(), Error> {
        match self.ips.iter().find(|ip| {
            ip.interface.is_some_and(|i| i >= self.interfaces.len()) && !self.interfaces.is_empty()
        }) {
            None => Ok(()),
            Some(ip) => Err(Error::new(
                Code::DECODE,
                format!(
                    "address {} names interface {}, but there are {}",
                    ip.address,
                    ip.interface.unwrap_or_default(),
                    self.interfaces.len()
                ),
            )),
        }
    }
}

/// Whether `value` has the shape of 0.2.0 and older.
fn is_legacy(value: &Value) -> bool {
    value.get("ip4").is_some() || value.get("ip6").is_some()
}

impl Dns {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests;
