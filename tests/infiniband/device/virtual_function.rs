// SPDX-License-Identifier: Apache-2.0
//! An `InfiniBand` virtual function in a pod. Its GUIDs are set through the link of the physical function, and its driver
//! uses them once it is bound again.

use super::{in_both_modes, unchanged, whole_link};
use crate::fabric::{address, network, reaches, soon, with_functions};
use common::netlink::{Rdma, Socket};
use common::rdma::Guid;
use nix::sys::utsname::uname;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use tests::{Node, Pod, json};

const ASKED: Guid = Guid(0x0200_0000_0000_0021);

/// Runs `test` with `ib2` on virtual function 0 of the HCA of `ib0`, in both modes of the RDMA subsystem.
fn with_function(test: impl Fn(&Node) + Send + Sync) {
    in_both_modes(|node| with_functions(node, 1, || test(node)));
}

/// The GUID of the RDMA device, and that of the port in the address of the link `name`.
fn guids(mut rdma: Socket<Rdma>, link: &common::netlink::Link) -> (Guid, Guid) {
    let devices = rdma.devices().unwrap();
    let device = devices.iter().find(|device| device.name == "softib2").unwrap();
    (device.node_guid, link.address.port_guid().unwrap())
}

fn guids_in(pod: &Pod<'_>, exclusive: bool) -> (Guid, Guid) {
    let rdma = if exclusive {
        Socket::open_in(&pod.open()).unwrap()
    } else {
        Socket::open().unwrap()
    };
    guids(rdma, &pod.link("net1"))
}

/// Binds the driver of the function again.
fn rebind(node: &Node) {
    let driver = "/sys/bus/platform/drivers/softib";
    fs::write(format!("{driver}/unbind"), "softib.2").unwrap();
    fs::write(format!("{driver}/bind"), "softib.2").unwrap();
    soon("the driver creates ib2", || {
        node.link_names().contains(&"ib2".to_owned())
    });
}

/// Lets the port of the function come up. It is down after the module was loaded.
fn let_up(node: &Node) {
    node.ip("link set ib0 vf 0 state auto");
    soon("ib2 has carrier", || node.link("ib2").carrier);
}

/// Whether this kernel reports no device of a link, so that no function can get a GUID.
fn is_too_old() -> bool {
    uname().unwrap().release().as_bytes().starts_with(b"5.10.")
}

#[test]
fn a_virtual_function_has_the_guid_of_the_network_until_del() {
    with_function(|node| {
        let_up(node);
        let conf = whole_link(node, "ib2").with("guid", json!(ASKED.to_string()));
        let pod = node.pod();
        if is_too_old() {
            pod.add(&conf, "net1").refused(7, &["use Linux 5.14 or newer"]);
            return;
        }
        let own = guids(Socket::open().unwrap(), &node.link("ib2"));
        let exclusive = Socket::<Rdma>::open().unwrap().netns_mode().unwrap().to_string() == "exclusive";
        unchanged(node, || {
            let target = address(&pod.attach(&conf, "net1"), false);
            assert_eq!(guids_in(&pod, exclusive), (ASKED, ASKED));
            let other = node.pod();
            let child = network(node, &json!({}));
            other.attach(&child, "net1");
            reaches(&other, &target);
            other.detach(&child, "net1");
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        });
        assert_eq!(guids(Socket::open().unwrap(), &node.link("ib2")), own);
    });
}

#[test]
fn a_function_that_its_physical_function_keeps_down_works_with_a_guid() {
    with_function(|node| {
        assert!(!node.link("ib2").carrier);
        let (conf, pod) = (whole_link(node, "ib2"), node.pod());
        let remedy = "ip link set PF vf 0 state auto";
        pod.add(&conf, "net1").refused(102, &[remedy]);
        if is_too_old() {
            return;
        }
        let conf = conf.with("guid", json!(ASKED.to_string()));
        let target = address(&pod.attach(&conf, "net1"), false);
        let (child, other) = (network(node, &json!({})), node.pod());
        other.attach(&child, "net1");
        reaches(&other, &target);
        other.detach(&child, "net1");
        pod.detach(&conf, "net1");
    });
}

/// As after a reset of the physical function, which gives its virtual functions other GUIDs, or none.
#[test]
fn del_ends_though_the_function_returned_with_other_guids() {
    with_function(|node| {
        let_up(node);
        let conf = whole_link(node, "ib2");
        let pod = node.pod();
        let leases = node.leases();
        pod.attach(&conf, "net1");
        // One command for each: the kernel sets only the first GUID of a request by `ip`.
        node.ip(&format!("link set ib0 vf 0 node_guid {}", octets(ASKED)));
        node.ip(&format!("link set ib0 vf 0 port_guid {}", octets(ASKED)));
        rebind(node);
        assert!(pod.links().is_empty(), "the link ended with the driver");
        pod.detach(&conf, "net1");
        assert_eq!(node.leases(), leases);
        assert_eq!(node.link("ib2").address.port_guid(), Some(ASKED));
    });
}

/// The spelling of `ip`.
fn octets(guid: Guid) -> String {
    let octets: Vec<String> = guid
        .0
        .to_be_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    octets.join(":")
}
