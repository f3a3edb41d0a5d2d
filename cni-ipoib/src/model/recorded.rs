// SPDX-License-Identifier: Apache-2.0
//! A node as a person records it with the tools at hand:
//!
//! ```sh
//! ip -d -j address show; ip -j route show default; cd /sys
//! for l in class/{infiniband,net}/*/device; do echo "$l -> $(realpath --relative-to=. $l)"; done
//! for f in class/infiniband/*/{node_guid,ports/1/{link_layer,state,phys_state,rate,lid,sm_lid,gids/0,pkeys/*,gid_attrs/ndevs/*}} \
//!     class/net/*/{ifindex,dev_port,device/numa_node}; do t=$(cat $f 2>/dev/null) && echo "$f = $t"; done
//! ```

use super::{ModelKernel, Node, link};
use common::netlink::{IpoibMode, Link, LinkInfo, LinkLayer, RouteEntry};
use common::rdma::Pkey;
use ipnetwork::IpNetwork;
use serde_json::Value;

/// The node of such a record: its sysfs, and its kernel.
pub(crate) fn recorded(sysfs: &str, addresses: &str, routes: &str) -> (Node, ModelKernel) {
    let node = Node::bare();
    for (from, to) in sysfs.lines().filter_map(|line| line.split_once(" -> ")) {
        node.follow(from, to);
    }
    for (file, text) in sysfs.lines().filter_map(|line| line.split_once(" = ")) {
        node.write(file, text);
    }
    let told: Vec<Value> = serde_json::from_str(addresses).unwrap();
    let kernel = ModelKernel::new(told.iter().map(|one| read_link(one, &told)).collect());
    for one in &told {
        let of_link = one["addr_info"].as_array().unwrap().iter();
        let global = of_link.filter(|address| address["scope"] == "global");
        let nets = global.map(|address| (number(&one["ifindex"]), network(address)));
        kernel.set().state.host_addresses.extend(nets);
    }
    let routes: Vec<Value> = serde_json::from_str(routes).unwrap();
    for route in routes.iter().filter(|route| route["dst"] == "default") {
        let dev = told.iter().find(|one| one["ifname"] == route["dev"]).unwrap();
        let entry = RouteEntry::new("0.0.0.0/0".parse().unwrap(), number(&dev["ifindex"]));
        kernel.set().state.host_routes.push(entry);
    }
    (node, kernel)
}

fn read_link(told: &Value, all: &[Value]) -> Link {
    let text = |key: &str| told[key].as_str().unwrap_or_default();
    let layer = match text("link_type") {
        "infiniband" => LinkLayer::Infiniband,
        "ether" => LinkLayer::Ethernet,
        "loopback" => LinkLayer::Loopback,
        other => panic!("link type {other}"),
    };
    let has = |flag: &str| told["flags"].as_array().unwrap().iter().any(|f| f == flag);
    let index_of = |name: &Value| {
        all.iter()
            .find(|one| one["ifname"] == *name)
            .map(|one| number(&one["ifindex"]))
    };
    let kind = told["linkinfo"]["info_kind"].as_str();
    let names = told["altnames"].as_array().into_iter().flatten();
    Link {
        altnames: names.map(|name| name.as_str().unwrap().to_owned()).collect(),
        mtu: number(&told["mtu"]),
        up: has("UP"),
        carrier: has("LOWER_UP"),
        master: told.get("master").and_then(index_of),
        parent: told
            .get("link")
            .and_then(index_of)
            .or(told.get("link_index").map(number)),
        parent_netnsid: told
            .get("link_netnsid")
            .map(|id| i32::try_from(number(id)).unwrap()),
        info: match kind {
            Some("ipoib") => LinkInfo::Ipoib {
                pkey: Pkey::DEFAULT,
                mode: IpoibMode::Datagram,
                umcast: false,
            },
            _ => LinkInfo::Other,
        },
        kind: kind.map(str::to_owned),
        ..link(layer, number(&told["ifindex"]), text("ifname"), text("address"))
    }
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn network(address: &Value) -> IpNetwork {
    let text = format!("{}/{}", address["local"].as_str().unwrap(), address["prefixlen"]);
    text.parse().unwrap()
}
