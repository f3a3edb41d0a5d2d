// SPDX-License-Identifier: Apache-2.0
//! A node with hardware to move: `ib0` on `mlx5_0`, `ib1` on `mlx5_1`, and the Ethernet links `ens1` and `ens2`.

use crate::device::snapshot;
use crate::journal::Intent;
use crate::kernel::{Kernel, Side, Sysctls};
use crate::model::{Fixture, Ipam, Subsystem, ethernet, ipoib, saved};
use common::cni::{self, CniResult};
use common::netlink::{AddrGenMode, IpoibMode, Link, LinkInfo, NetnsMode};
use common::rdma::Pkey;
use serde_json::{Value, json};

const GUID: u64 = 0x248a_0703_00b4_0c5e;

/// Every mode in which an RDMA subsystem and its kernel can move a link.
pub(crate) const WAYS: [(NetnsMode, bool); 3] = [
    (NetnsMode::Shared, false),
    (NetnsMode::Exclusive, false),
    (NetnsMode::Exclusive, true),
];

/// The node, with its RDMA subsystem in `mode`, of a kernel whose `IPoIB` links follow their RDMA device, or not.
pub(crate) fn fixture((mode, links_follow): (NetnsMode, bool)) -> Fixture {
    rig_with(Ipam::dual_stack(), (mode, links_follow))
}

pub(crate) fn rig_with(ipam: Ipam, (mode, links_follow): (NetnsMode, bool)) -> Fixture {
    let fixture = Fixture::with(ipam);
    let other = "248a:0703:00b4:0c5f";
    fixture
        .node
        .device("mlx5_1", "0000:5e:00.0")
        .port("mlx5_1", 1, "InfiniBand", "4: ACTIVE");
    fixture
        .node
        .write(
            "class/infiniband/mlx5_1/ports/1/gids/0",
            &format!("fe80:0000:0000:0000:{other}"),
        )
        .write("class/infiniband/mlx5_1/node_guid", other)
        .netdev("ib1", 5, "0000:5e:00.0")
        .netdev("ens1", 6, "0000:17:00.0")
        .netdev("ens2", 7, "0000:17:00.1");
    for pci in ["0000:3b:00.0", "0000:5e:00.0", "0000:17:00.0", "0000:17:00.1"] {
        fixture
            .node
            .write(&format!("devices/pci0000:3a/{pci}/driver/name"), "mlx5_core");
    }
    let mut model = fixture.kernel.set();
    model.state.host = vec![
        ib0(),
        ib1(),
        ens("ens1", 6, "0000:17:00.0"),
        ens("ens2", 7, "0000:17:00.1"),
    ];
    model.state.rdma = Subsystem::default();
    model.state.rdma.mode = mode;
    model.state.rdma.device(1, "mlx5_0", GUID, None);
    model.state.rdma.device(2, "mlx5_1", GUID + 1, None);
    model.state.left.links_follow = links_follow;
    for index in [4, 6] {
        for what in ["address fe80::1/64", "route to 10.9.0.0/16", "neighbour 10.7.0.9"] {
            model.state.left.carried.push((index, saved(what)));
        }
    }
    for name in ["ib0", "ens1"] {
        let set = Sysctls::from([("ipv4/conf/rp_filter".to_owned(), "2".to_owned())]);
        model.state.left.sysctls.push((name.to_owned(), set));
    }
    drop(model);
    fixture
}

/// All its properties differ from those of a new link.
fn ib0() -> Link {
    Link {
        altnames: vec!["ibp59s0".to_owned(), "rail0".to_owned()],
        alias: Some("to the storage".to_owned()),
        group: 7,
        mtu: 65520,
        flags: 0x1200,
        tx_queue: 256,
        addr_gen_mode: Some(AddrGenMode::None),
        device: Some("pci/0000:3b:00.0".to_owned()),
        // A link in connected mode has the flag RC in its address.
        address: "80:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e"
            .parse()
            .unwrap(),
        info: LinkInfo::Ipoib {
            pkey: Pkey(0xffff),
            mode: IpoibMode::Connected,
            umcast: true,
        },
        ..ipoib(4, "ib0", 0xffff)
    }
}

fn ib1() -> Link {
    Link {
        device: Some("pci/0000:5e:00.0".to_owned()),
        address: "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5f"
            .parse()
            .unwrap(),
        ..ipoib(5, "ib1", 0xffff)
    }
}

fn ens(name: &str, index: u32, pci: &str) -> Link {
    let address = format!("b8:3f:d2:00:00:0{index}").parse().unwrap();
    Link {
        altnames: vec![format!("{name}np0")],
        alias: Some(name.to_owned()),
        device: Some(format!("pci/{pci}")),
        perm_address: Some(address),
        address: format!("02:00:00:00:00:0{index}").parse().unwrap(),
        mtu: 9000,
        ..ethernet(index, name)
    }
}

/// Keys that move `link`, with everything that can be undone.
pub(crate) fn keys(fixture: &Fixture, link: &str) -> Value {
    json!({
        "mode": "device", "master": link, "mtu": 2000,
        "runtimeConfig": {"CNIDeviceInfoFile": fixture.info_file()},
    })
}

pub(crate) fn add(fixture: &Fixture, link: &str) -> Result<CniResult, cni::Error> {
    fixture.add_with("c1", &keys(fixture, link))
}

/// The intent of an ADD that is about to move `link`.
pub(crate) fn claim(fixture: &Fixture, link: &str) -> Intent {
    let kernel = &mut fixture.kernel.clone();
    let link = kernel.link(Side::Host, link).unwrap().unwrap();
    let device = snapshot::take(kernel, &link, None, Vec::new()).unwrap();
    Intent {
        device: Some(device),
        ..fixture.pod.intent(&link.name)
    }
}

/// The state of the host, independent of order and indices.
#[derive(Debug, PartialEq)]
pub(crate) struct Host {
    links: Vec<Link>,
    carried: Vec<(String, String)>,
    sysctls: Vec<(String, Sysctls)>,
    /// The names of the links that run programs by tcx.
    tcx: Vec<String>,
    rdma: Vec<String>,
}

pub(crate) fn host(fixture: &Fixture) -> Host {
    let state = fixture.kernel.state();
    let name = |index: u32| {
        let link = state.host.iter().find(|link| link.index == index);
        link.map_or_else(|| format!("#{index}"), |link| link.name.clone())
    };
    let mut carried: Vec<_> = state
        .left
        .carried
        .iter()
        .map(|(of, s)| (name(*of), s.what.clone()))
        .collect();
    carried.sort();
    let mut sysctls = state.left.sysctls.clone();
    sysctls.sort();
    let mut rdma: Vec<String> = state
        .rdma
        .names(Side::Host)
        .into_iter()
        .map(str::to_owned)
        .collect();
    rdma.sort();
    let has_tcx = |link: &&Link| state.left.tcx.contains(&link.index);
    let mut tcx: Vec<String> = state
        .host
        .iter()
        .filter(has_tcx)
        .map(|link| link.name.clone())
        .collect();
    tcx.sort();
    let mut links = state.host;
    links.sort_by(|a, b| a.name.cmp(&b.name));
    for link in &mut links {
        link.index = 0;
        link.altnames.sort();
    }
    Host {
        links,
        carried,
        sysctls,
        tcx,
        rdma,
    }
}
