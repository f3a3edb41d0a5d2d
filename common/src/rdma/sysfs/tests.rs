// SPDX-License-Identifier: Apache-2.0
use super::super::{Guid, Pkey, Port, PortLayer, PortState};
use super::{Sysfs, rate_mbps};
use crate::netlink::{HwAddress, Link, LinkLayer};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

/// A node's sysfs. Each method adds a part in the layout of the kernel.
struct Node {
    root: TempDir,
}

const GUID: &str = "248a:0703:00b4:0c5e";

impl Node {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.root.path())
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.root.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }

    fn link(&self, from: &str, to: &str) {
        let (from, to) = (self.root.path().join(from), self.root.path().join(to));
        fs::create_dir_all(&to).unwrap();
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(to, from).unwrap();
    }

    fn device(&self, name: &str, behind: &str, guid: &str) -> &Self {
        self.write(&format!("class/infiniband/{name}/node_guid"), guid);
        self.link(&format!("class/infiniband/{name}/device"), behind);
        self
    }

    /// A port with a GID that ends in `guid`.
    fn port(&self, device: &str, number: u32, layer: &str, guid: &str) -> &Self {
        let port = format!("class/infiniband/{device}/ports/{number}");
        for (file, text) in [
            ("link_layer", layer),
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", "200 Gb/sec (4X HDR)"),
            ("lid", "0x11"),
            ("sm_lid", "0x1"),
            ("gids/0", &format!("fe80:0000:0000:0000:{guid}")),
        ] {
            self.write(&format!("{port}/{file}"), text);
        }
        self
    }

    fn netdev(&self, name: &str, index: u32, dev_port: u32, behind: Option<&str>) -> &Self {
        self.write(&format!("class/net/{name}/ifindex"), &index.to_string());
        self.write(&format!("class/net/{name}/dev_port"), &dev_port.to_string());
        if let Some(behind) = behind {
            self.link(&format!("class/net/{name}/device"), behind);
        }
        self
    }

    /// The names of the device and port below `link`.
    fn port_of(&self, link: &Link) -> Option<(String, u32)> {
        let devices = self.sysfs().devices().unwrap();
        self.sysfs()
            .port_of(&devices, link)
            .map(|(device, port)| (device.name.clone(), port.number))
    }
}

fn link(layer: LinkLayer, index: u32, name: &str, address: &str) -> Link {
    Link {
        address: address.parse::<HwAddress>().unwrap(),
        ..Link::new(index, name, layer)
    }
}

/// An IPoIB link on the port with [`GUID`].
fn ipoib(index: u32, name: &str) -> Link {
    link(
        LinkLayer::Infiniband,
        index,
        name,
        "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e",
    )
}

fn ethernet(index: u32, name: &str) -> Link {
    link(LinkLayer::Ethernet, index, name, "02:00:00:00:0a:0b")
}

#[test]
fn a_node_without_rdma_has_no_devices() {
    assert_eq!(Node::new().sysfs().devices().unwrap(), []);
}

#[test]
fn devices_are_read_with_their_ports() {
    let node = Node::new();
    node.device("mlx5_1", "devices/pci0000:3a/0000:3b:00.1", GUID)
        .port("mlx5_1", 1, "InfiniBand", GUID);
    node.device("mlx5_0", "devices/pci0000:3a/0000:3b:00.0", "0000:0000:0000:0000");
    let devices = node.sysfs().devices().unwrap();
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["mlx5_0", "mlx5_1"]);
    let device = &devices[1];
    assert_eq!(device.node_guid, Guid(0x248a_0703_00b4_0c5e));
    assert_eq!(device.pci.unwrap().to_string(), "0000:3b:00.1");
    let expected = Port {
        number: 1,
        layer: PortLayer::Infiniband,
        state: PortState::Active,
        phys_state: "LinkUp".to_owned(),
        rate_mbps: Some(200_000),
        lid: 17,
        sm_lid: 1,
        gid: Some("fe80::248a:703:b4:c5e".parse().unwrap()),
    };
    assert_eq!(device.ports, [expected]);
    assert_eq!(device.ports[0].guid(), Some(Guid(0x248a_0703_00b4_0c5e)));
    assert_eq!(device.ports[0].subnet_prefix(), Some(0xfe80 << 48));
}

#[test]
fn a_value_that_the_driver_does_not_report_is_not_an_error() {
    let node = Node::new();
    fs::create_dir_all(node.root.path().join("class/infiniband/odd0/ports/1")).unwrap();
    let devices = node.sysfs().devices().unwrap();
    assert_eq!(
        (devices[0].pci, devices[0].node_guid, &devices[0].path),
        (None, Guid(0), &None)
    );
    let port = &devices[0].ports[0];
    assert_eq!(
        (port.layer, port.state, port.gid, port.lid),
        (PortLayer::Unspecified, PortState::Unknown, None, 0)
    );
    assert_eq!(node.sysfs().pkeys(&devices[0], port).unwrap(), []);
    assert_eq!(
        node.sysfs().netdevs(&devices[0], port).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
fn pkeys_keep_the_order_of_their_table() {
    let node = Node::new();
    node.device("mlx5_0", "devices/0000:3b:00.0", GUID)
        .port("mlx5_0", 1, "InfiniBand", GUID);
    for (slot, pkey) in [
        (0, "0xffff"),
        (1, "0x0000"),
        (2, "0x8001"),
        (10, "0x0002"),
        (9, "0x8003"),
    ] {
        node.write(&format!("class/infiniband/mlx5_0/ports/1/pkeys/{slot}"), pkey);
    }
    let devices = node.sysfs().devices().unwrap();
    let pkeys = node.sysfs().pkeys(&devices[0], &devices[0].ports[0]).unwrap();
    assert_eq!(pkeys, [Pkey(0xffff), Pkey(0x8001), Pkey(0x8003), Pkey(0x0002)]);
}

#[test]
fn an_ipoib_link_is_on_the_port_of_its_guid_and_device() {
    let node = Node::new();
    node.device("mlx5_0", "devices/0000:3b:00.0", GUID).port(
        "mlx5_0",
        1,
        "InfiniBand",
        "0000:0000:0000:0001",
    );
    node.device("mlx5_1", "devices/0000:3b:00.1", GUID)
        .port("mlx5_1", 1, "InfiniBand", GUID);
    node.device("twin", "devices/0000:aa:00.0", GUID)
        .port("twin", 2, "InfiniBand", GUID);
    assert_eq!(
        node.port_of(&ipoib(4, "ib1")),
        Some(("mlx5_1".to_owned(), 1)),
        "by GUID alone"
    );
    node.netdev("ib1", 4, 1, Some("devices/0000:aa:00.0"));
    assert_eq!(
        node.port_of(&ipoib(4, "ib1")),
        Some(("twin".to_owned(), 2)),
        "by GUID and device"
    );
    assert_eq!(
        node.port_of(&ipoib(5, "ib1")),
        Some(("mlx5_1".to_owned(), 1)),
        "sysfs shows another ib1"
    );
}

#[test]
fn an_ipoib_link_with_its_own_guid_is_found_by_port_number() {
    let node = Node::new();
    let behind = "devices/0000:3b:00.0";
    node.device("mlx4_0", behind, GUID)
        .port("mlx4_0", 1, "InfiniBand", "0000:0000:0000:0001")
        .port("mlx4_0", 2, "InfiniBand", "0000:0000:0000:0002")
        .netdev("ib1", 4, 1, Some(behind));
    assert_eq!(node.port_of(&ipoib(4, "ib1")), Some(("mlx4_0".to_owned(), 2)));
    assert_eq!(node.port_of(&ipoib(5, "ib9")), None);
}

#[test]
fn an_ethernet_link_is_on_the_device_behind_it() {
    let node = Node::new();
    let behind = "devices/0000:3b:00.0";
    node.device("mlx4_0", behind, GUID)
        .port("mlx4_0", 1, "Ethernet", "0000:0000:0000:0001")
        .port("mlx4_0", 2, "Ethernet", "0000:0000:0000:0002")
        .netdev("eth1", 4, 1, Some(behind))
        .netdev("eth2", 5, 0, Some("devices/0000:01:00.0"));
    assert_eq!(node.port_of(&ethernet(4, "eth1")), Some(("mlx4_0".to_owned(), 2)));
    assert_eq!(node.port_of(&ethernet(5, "eth2")), None, "a card without RDMA");
    assert_eq!(
        node.port_of(&ethernet(9, "eth1")),
        None,
        "sysfs shows another eth1"
    );
}

#[test]
fn a_soft_roce_link_is_found_in_the_gid_table() {
    let node = Node::new();
    node.write("class/infiniband/rxe0/node_guid", GUID);
    node.port("rxe0", 1, "Ethernet", GUID).netdev("v0", 4, 0, None);
    for (slot, name) in [(0, "v0"), (1, "v0"), (2, "v0.5")] {
        node.write(
            &format!("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/{slot}"),
            name,
        );
    }
    let devices = node.sysfs().devices().unwrap();
    assert_eq!(
        node.sysfs().netdevs(&devices[0], &devices[0].ports[0]).unwrap(),
        ["v0", "v0.5"]
    );
    assert_eq!(node.port_of(&ethernet(4, "v0")), Some(("rxe0".to_owned(), 1)));
    assert_eq!(node.port_of(&ethernet(5, "v1")), None);
    assert_eq!(
        node.port_of(&ipoib(6, "v0")),
        None,
        "an InfiniBand link is on no Ethernet device"
    );
}

/// In switchdev mode the directory of the physical function lists the uplink and all representors, each with `dev_port` 0.
#[test]
fn a_representor_is_on_no_rdma_port() {
    let node = Node::new();
    let function = Some("devices/0000:3b:00.0");
    node.device("mlx5_0", "devices/0000:3b:00.0", GUID)
        .port("mlx5_0", 1, "Ethernet", GUID)
        .netdev("eth0", 4, 0, function)
        .netdev("eth1", 5, 0, function);
    let named = |index, name, port: &str| Link {
        phys_port_name: Some(port.to_owned()),
        ..ethernet(index, name)
    };
    assert_eq!(
        node.port_of(&named(4, "eth0", "p0")),
        Some(("mlx5_0".to_owned(), 1))
    );
    assert_eq!(node.port_of(&named(5, "eth1", "pf0vf0")), None);
}

#[test]
fn a_link_of_a_pod_in_the_gid_table_makes_no_host_link_of_its_name_an_rdma_link() {
    let node = Node::new();
    node.device("mlx5_0", "devices/0000:3b:00.0", GUID)
        .port("mlx5_0", 1, "Ethernet", GUID)
        .netdev("eth1", 4, 0, Some("devices/0000:3b:00.0"))
        .netdev("eth2", 5, 0, Some("devices/0000:01:00.0"))
        .netdev("dummy0", 6, 0, None);
    for (slot, name) in [(0, "eth1"), (3, "eth2"), (4, "dummy0")] {
        node.write(
            &format!("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/{slot}"),
            name,
        );
    }
    assert_eq!(node.port_of(&ethernet(4, "eth1")), Some(("mlx5_0".to_owned(), 1)));
    assert_eq!(node.port_of(&ethernet(5, "eth2")), None, "a card without RDMA");
    assert_eq!(node.port_of(&ethernet(6, "dummy0")), None, "above no hardware");
}

#[test]
fn a_vlan_of_a_bond_is_found_in_the_gid_table_of_the_hardware_below() {
    let node = Node::new();
    node.device("mlx5_bond_0", "devices/0000:3b:00.0", GUID)
        .port("mlx5_bond_0", 1, "Ethernet", GUID)
        .netdev("eth1", 4, 0, Some("devices/0000:3b:00.0"))
        .netdev("bond0", 5, 0, None)
        .netdev("bond0.7", 6, 0, None);
    node.link("class/net/bond0/lower_eth1", "class/net/eth1");
    node.link("class/net/bond0.7/lower_bond0", "class/net/bond0");
    for (slot, name) in [(0, "bond0"), (1, "bond0.7")] {
        node.write(
            &format!("class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/{slot}"),
            name,
        );
    }
    let lag = Some(("mlx5_bond_0".to_owned(), 1));
    assert_eq!(node.port_of(&ethernet(5, "bond0")), lag);
    assert_eq!(node.port_of(&ethernet(6, "bond0.7")), lag);
    assert_eq!(
        node.port_of(&ethernet(9, "bond0")),
        None,
        "sysfs shows another bond0"
    );
}

#[test]
fn the_pci_function_of_a_subfunction_is_its_parents() {
    let node = Node::new();
    node.netdev("eth0", 2, 0, Some("devices/pci0000:3a/0000:3b:00.0"))
        .netdev(
            "sf0",
            3,
            0,
            Some("devices/pci0000:3a/0000:3b:00.0/mlx5_core.sf.4"),
        )
        .netdev("v0", 4, 0, None);
    let pci = |name: &str| node.sysfs().pci_of_netdev(name).map(|pci| pci.to_string());
    assert_eq!(pci("eth0").as_deref(), Some("0000:3b:00.0"));
    assert_eq!(pci("sf0").as_deref(), Some("0000:3b:00.0"));
    for name in ["v0", "none", "", "..", "a/b"] {
        assert_eq!(pci(name), None, "{name:?}");
    }
}

#[test]
fn the_links_of_a_pci_function_or_an_auxiliary_device_are_listed() {
    let node = Node::new();
    for place in [
        "pci/devices/0000:3b:00.0/net/ib1",
        "pci/devices/0000:3b:00.0/net/ib0",
        "auxiliary/devices/mlx5_core.sf.4/net/sf0",
    ] {
        fs::create_dir_all(node.root.path().join("bus").join(place)).unwrap();
    }
    let links = |device: &str| node.sysfs().netdevs_of(device).unwrap();
    assert_eq!(links("0000:3b:00.0"), ["ib0", "ib1"]);
    assert_eq!(links("mlx5_core.sf.4"), ["sf0"]);
    for none in ["0000:3b:00.1", "", "..", "../0000:3b:00.0"] {
        assert_eq!(links(none), Vec::<String>::new(), "{none:?}");
    }
}

#[test]
fn the_links_of_a_devices_directory_are_listed() {
    let node = Node::new();
    for place in [
        "3b:00.0/net/ib1",
        "3b:00.0/net/ib0",
        "5e:00.0/net/ib2",
        "17:00.0/nvme",
    ] {
        let directory = node.root.path().join("devices/pci0000:3a").join(place);
        fs::create_dir_all(directory).unwrap();
    }
    let links = |directory: &str| node.sysfs().netdevs_in(Path::new(directory)).unwrap();
    assert_eq!(links("/sys/devices/pci0000:3a/3b:00.0"), ["ib0", "ib1"]);
    assert_eq!(links("/sys/devices/pci0000:3a/5e:00.0"), ["ib2"]);
    let inside = node.root.path().join("devices/pci0000:3a/3b:00.0");
    for none in [
        "/sys/devices/pci0000:3a/17:00.0",
        "/sys/devices/pci0000:3a/3b:00.7",
        "/sys/devices/pci0000:3a/3b:00.0/net",
        "/devices/pci0000:3a/3b:00.0",
        "devices/pci0000:3a/3b:00.0",
        "/sysfs/devices/pci0000:3a/3b:00.0",
        inside.to_str().unwrap(),
        "",
    ] {
        assert_eq!(links(none), Vec::<String>::new(), "{none:?}");
    }
}

#[test]
fn a_devices_directory_that_cannot_be_listed_is_an_error() {
    let node = Node::new();
    node.write("devices/pci0000:3a/3b:00.0/net", "a file");
    let directory = Path::new("/sys/devices/pci0000:3a/3b:00.0");
    node.sysfs().netdevs_in(directory).unwrap_err();
}

#[test]
fn rates_are_read_to_the_tenth() {
    assert_eq!(rate_mbps("2.5 Gb/sec (1X SDR)"), Some(2500));
    assert_eq!(rate_mbps("400 Gb/sec (4X NDR)"), Some(400_000));
    assert_eq!(rate_mbps("fast"), None);
}

#[test]
fn the_nodes_own_sysfs_is_at_sys() {
    assert_eq!(Sysfs::host(), Sysfs::at(Path::new("/sys")));
}

#[test]
fn a_links_numa_node_is_its_devices() {
    let node = Node::new();
    node.netdev("ib0", 4, 0, Some("devices/pci0000:3a/0000:3b:00.0"))
        .netdev("ib1", 5, 0, Some("devices/pci0000:5d/0000:5e:00.0"))
        .netdev("veth0", 6, 0, None);
    node.write("devices/pci0000:3a/0000:3b:00.0/numa_node", "1");
    node.write("devices/pci0000:5d/0000:5e:00.0/numa_node", "-1");
    let nodes = ["ib0", "ib1", "veth0", "../ib0", ""].map(|name| node.sysfs().numa_node_of_netdev(name));
    assert_eq!(nodes, [Some(1), None, None, None, None]);
}

#[test]
fn empty_entries_of_the_gid_table_are_left_out() {
    let node = Node::new();
    node.device("mlx5_2", "devices/pci0000:3a/0000:3b:00.0", GUID)
        .port("mlx5_2", 1, "Ethernet", GUID);
    let port = "class/infiniband/mlx5_2/ports/1";
    for (file, text) in [
        ("gids/3", "0000:0000:0000:0000:0000:ffff:0a14:0015"),
        ("gids/10", "fe80:0000:0000:0000:0000:0000:0000:0000"),
        ("gids/11", "0000:0000:0000:0000:0000:0000:0000:0000"),
        ("gid_attrs/types/3", "RoCE v2"),
        ("gid_attrs/ndevs/3", "bond0"),
    ] {
        node.write(&format!("{port}/{file}"), text);
    }
    let devices = node.sysfs().devices().unwrap();
    let gids = node.sysfs().gids(&devices[0], &devices[0].ports[0]).unwrap();
    let indexes: Vec<u32> = gids.iter().map(|gid| gid.index).collect();
    assert_eq!(indexes, [0, 3]);
    assert_eq!(
        (gids[1].roce_version(), gids[1].netdev.as_deref()),
        (Some(2), Some("bond0"))
    );
    assert_eq!((gids[0].roce_version(), &gids[0].netdev), (None, &None));
    assert_eq!(gids[1].gid.to_ipv4_mapped().unwrap().to_string(), "10.20.0.21");
}

#[test]
fn the_file_of_a_device_is_found_by_the_name_of_the_device() {
    let node = Node::new();
    assert_eq!(node.sysfs().verbs_file("mlx5_1"), None);
    node.write("class/infiniband_verbs/abi_version", "6");
    for (file, name) in [("uverbs0", "mlx5_10"), ("uverbs3", "mlx5_1")] {
        node.write(&format!("class/infiniband_verbs/{file}/ibdev"), name);
    }
    assert_eq!(node.sysfs().verbs_file("mlx5_1").as_deref(), Some("uverbs3"));
    assert_eq!(node.sysfs().verbs_file("mlx5_2"), None);
}

#[test]
fn a_module_that_is_built_in_without_a_parameter_is_found_by_its_class() {
    for (name, registers) in [
        ("ib_uverbs", "class/infiniband_verbs/abi_version"),
        ("rdma_ucm", "class/misc/rdma_cm/dev"),
    ] {
        let node = Node::new();
        node.write("module/ib_core/parameters/netns_mode", "N");
        assert_eq!(node.sysfs().has_module(name), Some(false));
        node.write(registers, "6");
        assert_eq!(node.sysfs().has_module(name), Some(true), "{name}");
    }
}

#[test]
fn modules_and_the_namespace_mode_are_read_from_sysfs() {
    let node = Node::new();
    assert_eq!(
        (node.sysfs().has_module("ib_ipoib"), node.sysfs().shares_rdma()),
        (None, None)
    );
    node.write("module/ib_core/parameters/netns_mode", "N");
    assert_eq!(node.sysfs().has_module("ib_core"), Some(true));
    assert_eq!(
        (node.sysfs().has_module("ib_ipoib"), node.sysfs().shares_rdma()),
        (Some(false), Some(false))
    );
}
