// SPDX-License-Identifier: Apache-2.0
//! Finds which links the node itself or pods of other plugins use.
//!
//! Invariant: link-local addresses and their routes do not count as uses. Any other address, route, upper link or child
//! does.

pub mod queue_pairs;

use super::ip::{field, list};
use crate::node::facts::NodeFacts;
use crate::output::CommandError;
use queue_pairs::QueuePairs;
use serde_json::Value;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// The directory in which runtimes and `ip netns` keep the names of namespaces.
pub const NAMESPACES: &str = "/run/netns";
/// Kinds of links that sit on another one.
const CHILDREN: [&str; 5] = ["ipoib", "macvlan", "macvtap", "ipvlan", "vlan"];

/// The output of `ip` that this module evaluates.
#[derive(Clone, Debug, Default)]
struct Listing {
    links: Vec<Value>,
    addresses: Vec<Value>,
    routes: Vec<Value>,
    /// The links of other namespaces, by their names.
    others: Vec<(String, Vec<Value>)>,
}

/// All uses of all links.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    links: Vec<(String, String)>,
    hardware: Vec<(String, String)>,
    /// The uses of the candidates' devices by RDMA.
    pub rdma: QueuePairs,
}

impl Uses {
    /// Reads the uses from the kernel.
    ///
    /// # Errors
    /// `ip` is missing or fails.
    pub fn read(facts: &NodeFacts) -> Result<Self, CommandError> {
        let mut routes = list(&["-4", "route", "show", "table", "all"])?;
        routes.extend(list(&["-6", "route", "show", "table", "all"])?);
        let of_links = Self::of(&Listing {
            links: list(&["-details", "link", "show"])?,
            addresses: list(&["address", "show"])?,
            routes,
            others: others(),
        });
        let ports = facts.candidates.iter().filter_map(|one| one.port.as_ref());
        Ok(Self {
            rdma: QueuePairs::read(ports.map(|port| port.device.as_str())),
            ..of_links
        })
    }

    /// Why the link is in use; `None` if it is spare.
    pub fn of_link(&self, link: &str) -> Option<&str> {
        let found = self.links.iter().find(|(name, _)| name == link);
        found.map(|(_, why)| why.as_str())
    }

    /// The link's hardware address, as `ip` writes it.
    pub fn hardware_address(&self, link: &str) -> Option<&str> {
        let found = self.hardware.iter().find(|(name, _)| name == link);
        found.map(|(_, address)| address.as_str())
    }

    /// One use of one link.
    #[cfg(test)]
    pub(super) fn with(link: &str, why: &str) -> Self {
        Self {
            links: vec![(link.to_owned(), why.to_owned())],
            ..Self::default()
        }
    }

    fn of(listing: &Listing) -> Self {
        let mut uses = Vec::new();
        for link in &listing.links {
            uses.extend(of_link(link));
        }
        for link in &listing.addresses {
            uses.extend(of_addresses(link));
        }
        for route in &listing.routes {
            uses.extend(of_route(route));
        }
        for (namespace, links) in &listing.others {
            uses.extend(links.iter().filter_map(|child| {
                let parent = parent_of(child, links, &listing.links)?;
                let name = field(child, "ifname");
                Some((parent, format!("has {name} of the namespace {namespace} on it")))
            }));
        }
        let hardware = listing.links.iter();
        Self {
            links: uses,
            hardware: hardware
                .map(|link| (field(link, "ifname"), field(link, "address")))
                .collect(),
            rdma: QueuePairs::default(),
        }
    }
}

/// The links of every other named namespace. A namespace that ends meanwhile has none.
fn others() -> Vec<(String, Vec<Value>)> {
    let names = fs::read_dir(Path::new(NAMESPACES))
        .into_iter()
        .flatten()
        .flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter_map(|name| {
            let links = list(&["-netns", &name, "-details", "link", "show"]).ok()?;
            Some((name, links))
        })
        .collect()
}

fn of_link(link: &Value) -> Vec<(String, String)> {
    let name = field(link, "ifname");
    let mut uses = Vec::new();
    let (upper, lower) = (field(link, "master"), field(link, "link"));
    if !upper.is_empty() {
        uses.push((upper.clone(), format!("has the port {name}")));
        uses.push((name.clone(), format!("is a port of {upper}")));
    }
    if !lower.is_empty() {
        uses.push((lower, format!("has {name} on it")));
    }
    uses
}

fn of_addresses(link: &Value) -> Vec<(String, String)> {
    let addresses = link["addr_info"].as_array().into_iter().flatten();
    let known = addresses.filter(|address| !is_link_local(&field(address, "local")));
    known
        .map(|address| {
            let why = format!(
                "has the node's address {}/{}",
                field(address, "local"),
                field(address, "prefixlen")
            );
            (field(link, "ifname"), why)
        })
        .collect()
}

fn of_route(route: &Value) -> Vec<(String, String)> {
    let destination = field(route, "dst");
    let by_itself = matches!(
        field(route, "type").as_str(),
        "local" | "broadcast" | "multicast" | "anycast"
    );
    if by_itself || is_link_local(destination.split('/').next().unwrap_or_default()) {
        return Vec::new();
    }
    let paths = route["nexthops"].as_array().into_iter().flatten();
    let links = std::iter::once(route).chain(paths).map(|path| field(path, "dev"));
    links
        .filter(|link| !link.is_empty())
        .map(|link| (link, format!("has a route of the node: {destination}")))
        .collect()
}

/// The link of this namespace that `child`, one of another namespace's `siblings`, sits on.
///
/// The kernel does not report the parent's namespace of an `IPoIB` child (it has no `get_link_net`). So `ip` looks up the
/// parent's number among the siblings. This function treats the parent as a link of this namespace.
fn parent_of(child: &Value, siblings: &[Value], links: &[Value]) -> Option<String> {
    let kind = child["linkinfo"]["info_kind"].as_str()?;
    let index = child["link_index"].as_u64().or_else(|| {
        let shown = child["link"].as_str().filter(|_| kind == "ipoib")?;
        let by_name = siblings.iter().find(|link| link["ifname"] == shown);
        match by_name {
            Some(sibling) => sibling["ifindex"].as_u64(),
            None => shown.strip_prefix("if")?.parse().ok(),
        }
    })?;
    let parent = links
        .iter()
        .find(|link| link["ifindex"].as_u64() == Some(index))?;
    CHILDREN.contains(&kind).then(|| field(parent, "ifname"))
}

fn is_link_local(address: &str) -> bool {
    match address.parse() {
        Ok(IpAddr::V4(address)) => address.is_link_local(),
        Ok(IpAddr::V6(address)) => address.is_unicast_link_local() || address.is_multicast(),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
