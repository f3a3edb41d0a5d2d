// SPDX-License-Identifier: Apache-2.0
//! Parses a recording of a node, which a person made with the commands of `docs/cli.md` to examine the node on
//! another machine. Depends on `common` alone: the tests of `cni-ipoib` choose a master on recorded nodes, too.

use common::netlink::{Address, BondMode, FailOverMac, IpoibMode, Link, LinkInfo, LinkLayer, RouteEntry};
use common::rdma::Pkey;
use ipnetwork::IpNetwork;
use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path};

/// The links of a recorded node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// The links.
    pub(crate) links: Vec<Link>,
    /// Addresses, each with the index of its link.
    pub(crate) addresses: Vec<(u32, Address)>,
    /// The default routes.
    pub(crate) routes: Vec<RouteEntry>,
}

impl Recorded {
    /// Parses the output of `ip -d -j address show` and `ip -j route show default`.
    ///
    /// # Errors
    /// The input is not the output of these commands. The message names the link and its member.
    pub(crate) fn read(addresses: &str, routes: &str) -> Result<Self, String> {
        let listed: Vec<Value> =
            serde_json::from_str(addresses).map_err(|e| format!("the links are no list of JSON: {e}"))?;
        let mut node = Self::default();
        for one in &listed {
            let link = read_link(one, &listed)?;
            let of_link = one["addr_info"].as_array().into_iter().flatten();
            for address in of_link {
                node.addresses.push((link.index, read_address(address)?));
            }
            node.links.push(link);
        }
        let routes: Vec<Value> =
            serde_json::from_str(routes).map_err(|e| format!("the routes are no list of JSON: {e}"))?;
        for route in routes.iter().filter(|route| route["dst"] == "default") {
            // A route over several links has a list. A route that refuses packets has no link.
            let hops = route["nexthops"].as_array().into_iter().flatten();
            for over in hops
                .chain([route])
                .map(|hop| &hop["dev"])
                .filter(|dev| !dev.is_null())
            {
                let index = index_of(&listed, over)
                    .ok_or_else(|| format!("a default route goes over {over}, which is no link here"))?;
                let everywhere =
                    IpNetwork::V4(ipnetwork::Ipv4Network::new_checked(0.into(), 0).ok_or("no /0")?);
                node.routes.push(RouteEntry::new(everywhere, index));
            }
        }
        Ok(node)
    }
}

/// Creates the recorded sysfs below `root`, from lines `file = text` and `link -> directory`.
///
/// # Errors
/// A line leads out of `root`, or nothing can be written there.
pub(crate) fn write_sysfs(record: &str, root: &Path) -> io::Result<()> {
    let below = |path: &str| {
        let plain = Path::new(path)
            .components()
            .all(|c| matches!(c, Component::Normal(_)));
        let outside = || io::Error::new(io::ErrorKind::InvalidData, format!("{path} leads out of sysfs"));
        plain.then(|| root.join(path)).ok_or_else(outside)
    };
    let parent = |path: &Path| path.parent().map_or(Ok(()), fs::create_dir_all);
    for (from, to) in record.lines().filter_map(|line| line.split_once(" -> ")) {
        let (from, to) = (below(from)?, below(to)?);
        fs::create_dir_all(&to)?;
        parent(&from)?;
        symlink(to, from)?;
    }
    for (file, text) in record.lines().filter_map(|line| line.split_once(" = ")) {
        let file = below(file)?;
        parent(&file)?;
        fs::write(file, format!("{text}\n"))?;
    }
    Ok(())
}

fn read_link(link: &Value, all: &[Value]) -> Result<Link, String> {
    let text = |key: &str| link[key].as_str().unwrap_or_default();
    let name = text("ifname");
    let layer = match text("link_type") {
        "infiniband" => LinkLayer::Infiniband,
        "ether" => LinkLayer::Ethernet,
        "loopback" => LinkLayer::Loopback,
        _ => LinkLayer::Other(0),
    };
    let index = number(&link["ifindex"]).ok_or_else(|| format!("link {name:?} has no ifindex"))?;
    let has = |flag: &str| {
        let flags = link["flags"].as_array();
        flags.is_some_and(|flags| flags.iter().any(|f| f == flag))
    };
    let kind = link["linkinfo"]["info_kind"].as_str();
    let names = link["altnames"].as_array().into_iter().flatten();
    // For a link without one, `address` is absent or of another kind, e.g. an IPv4 address for a tunnel.
    let address = text("address").parse().unwrap_or_default();
    Ok(Link {
        altnames: names.filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
        address,
        mtu: number(&link["mtu"]).unwrap_or(0),
        up: has("UP"),
        carrier: has("LOWER_UP"),
        master: index_of(all, &link["master"]),
        parent: index_of(all, &link["link"]).or_else(|| number(&link["link_index"])),
        parent_netnsid: number(&link["link_netnsid"]).and_then(|id| i32::try_from(id).ok()),
        alias: link["ifalias"].as_str().map(str::to_owned),
        info: info(kind, &link["linkinfo"]["info_data"], all),
        kind: kind.map(str::to_owned),
        ..Link::new(index, name, layer)
    })
}

fn info(kind: Option<&str>, data: &Value, all: &[Value]) -> LinkInfo {
    match kind {
        Some("ipoib") => LinkInfo::Ipoib {
            pkey: data["key"]
                .as_str()
                .and_then(|key| key.parse().ok())
                .unwrap_or(Pkey::DEFAULT),
            mode: match data["mode"].as_str() {
                Some("connected") => IpoibMode::Connected,
                _ => IpoibMode::Datagram,
            },
            umcast: false,
        },
        Some("bond") => match data["mode"]
            .as_str()
            .and_then(|mode| mode.parse::<BondMode>().ok())
        {
            Some(mode) => LinkInfo::Bond {
                mode,
                active: index_of(all, &data["active_slave"]),
                miimon: number(&data["miimon"]).unwrap_or(0),
                fail_over_mac: FailOverMac::None,
            },
            None => LinkInfo::Other,
        },
        _ => LinkInfo::Other,
    }
}

fn index_of(all: &[Value], name: &Value) -> Option<u32> {
    let found = all.iter().find(|one| !name.is_null() && one["ifname"] == *name)?;
    number(&found["ifindex"])
}

fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

fn read_address(address: &Value) -> Result<Address, String> {
    let text = format!(
        "{}/{}",
        address["local"].as_str().unwrap_or_default(),
        address["prefixlen"]
    );
    let network: IpNetwork = text
        .parse()
        .map_err(|_| format!("{text} is no address with its prefix"))?;
    Ok(Address {
        address: network,
        tentative: false,
        dad_failed: false,
        no_dad: false,
        permanent: true,
        scope: match address["scope"].as_str() {
            Some("link") => 253,
            Some("host") => 254,
            _ => 0,
        },
    })
}
