// SPDX-License-Identifier: Apache-2.0
//! A recording of a node, made by a person with standard tools and examined on another machine:
//!
//! ```sh
//! ip -d -j address show >address.json; ip -j route show default >route.json; cd /sys
//! for l in class/{infiniband,net}/*/device; do d=$(readlink -f $l); echo "$l -> ${d#/sys/}"; done >sysfs
//! for f in class/infiniband/*/{hca_type,node_guid,ports/*/{link_layer,state,phys_state,rate,lid,sm_lid,gids/*,pkeys/*,gid_attrs/*/*}} \
//!     class/net/*/{ifindex,dev_port,device/numa_node}; do t=$(cat $f 2>/dev/null) && echo "$f = $t"; done >>sysfs
//! ```

use crate::select::View;
use common::netlink::{
    Address, BondMode, Error, FailOverMac, IpoibMode, Link, LinkInfo, LinkLayer, RouteEntry,
};
use common::rdma::Pkey;
use ipnetwork::IpNetwork;
use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path};

/// The links of a recorded node.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The links.
    pub links: Vec<Link>,
    /// Addresses, each with the index of its link.
    pub addresses: Vec<(u32, Address)>,
    /// The default routes.
    pub routes: Vec<RouteEntry>,
}

impl View for Recorded {
    fn links(&mut self) -> Result<Vec<Link>, Error> {
        Ok(self.links.clone())
    }

    fn routes(&mut self, index: u32) -> Result<Vec<RouteEntry>, Error> {
        let through = self.routes.iter().filter(|route| route.index == index);
        Ok(through.cloned().collect())
    }

    fn addresses(&mut self, index: u32) -> Result<Vec<Address>, Error> {
        let of_link = self.addresses.iter().filter(|(of, _)| *of == index);
        Ok(of_link.map(|(_, address)| address.clone()).collect())
    }
}

impl Recorded {
    /// Parses the output of `ip -d -j address show` and `ip -j route show default`.
    ///
    /// # Errors
    /// The input is not the output of these commands. The message names the link and its member.
    pub fn read(addresses: &str, routes: &str) -> Result<Self, String> {
        let told: Vec<Value> =
            serde_json::from_str(addresses).map_err(|e| format!("the links are no list of JSON: {e}"))?;
        let mut node = Self::default();
        for one in &told {
            let link = read_link(one, &told)?;
            let of_link = one["addr_info"].as_array().into_iter().flatten();
            for address in of_link {
                node.addresses.push((link.index, read_address(address)?));
            }
            node.links.push(link);
        }
        let routes: Vec<Value> =
            serde_json::from_str(routes).map_err(|e| format!("the routes are no list of JSON: {e}"))?;
        for route in routes.iter().filter(|route| route["dst"] == "default") {
            let index = index_of(&told, &route["dev"]).ok_or_else(|| {
                format!(
                    "a default route goes over {}, which is no link here",
                    route["dev"]
                )
            })?;
            let everywhere = IpNetwork::V4(ipnetwork::Ipv4Network::new_checked(0.into(), 0).ok_or("no /0")?);
            node.routes.push(RouteEntry::new(everywhere, index));
        }
        Ok(node)
    }
}

/// Creates the recorded sysfs below `root`, from lines `file = text` and `link -> folder`.
///
/// # Errors
/// A line leads out of `root`, or nothing can be written there.
pub fn write_sysfs(record: &str, root: &Path) -> io::Result<()> {
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

fn read_link(told: &Value, all: &[Value]) -> Result<Link, String> {
    let text = |key: &str| told[key].as_str().unwrap_or_default();
    let name = text("ifname");
    let layer = match text("link_type") {
        "infiniband" => LinkLayer::Infiniband,
        "ether" => LinkLayer::Ethernet,
        "loopback" => LinkLayer::Loopback,
        _ => LinkLayer::Other(0),
    };
    let index = number(&told["ifindex"]).ok_or_else(|| format!("link {name:?} has no ifindex"))?;
    let has = |flag: &str| {
        let flags = told["flags"].as_array();
        flags.is_some_and(|flags| flags.iter().any(|f| f == flag))
    };
    let kind = told["linkinfo"]["info_kind"].as_str();
    let names = told["altnames"].as_array().into_iter().flatten();
    // For a link without one, `address` is absent or of another kind, e.g. an IPv4 address for a tunnel.
    let address = text("address").parse().unwrap_or_default();
    Ok(Link {
        altnames: names.filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
        address,
        mtu: number(&told["mtu"]).unwrap_or(0),
        up: has("UP"),
        carrier: has("LOWER_UP"),
        master: index_of(all, &told["master"]),
        parent: index_of(all, &told["link"]).or_else(|| number(&told["link_index"])),
        parent_netnsid: number(&told["link_netnsid"]).and_then(|id| i32::try_from(id).ok()),
        alias: told["ifalias"].as_str().map(str::to_owned),
        info: info(kind, &told["linkinfo"]["info_data"], all),
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

fn read_address(told: &Value) -> Result<Address, String> {
    let text = format!(
        "{}/{}",
        told["local"].as_str().unwrap_or_default(),
        told["prefixlen"]
    );
    let address: IpNetwork = text
        .parse()
        .map_err(|_| format!("{text} is no address with its prefix"))?;
    Ok(Address {
        address,
        tentative: false,
        dad_failed: false,
        no_dad: false,
        permanent: true,
        scope: match told["scope"].as_str() {
            Some("link") => 253,
            Some("host") => 254,
            _ => 0,
        },
    })
}

#[cfg(test)]
mod tests;
