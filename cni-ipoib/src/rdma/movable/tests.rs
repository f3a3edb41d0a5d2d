// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::intent::{Identity, Sharing};
use crate::journal::{Intent, Journal, written};
use crate::model::{Fault, ModelKernel, Node, Pod, attachment, bond, ethernet, of_kind, warnings_of};
use crate::rdma::{find, observe};
use common::netlink::{Creator, NetnsMode};

/// `mlx5_1` with `eth1` and `mlx5_2` with `eth2`, in exclusive mode; `mlx5_0` with `ib0`.
struct Bench {
    node: Node,
    kernel: ModelKernel,
    state: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let node = Node::with_ib0();
        let kernel = ModelKernel::new(Vec::new());
        for number in [1, 2] {
            let (name, pci, link) = (
                format!("mlx5_{number}"),
                format!("0000:3b:00.{number}"),
                format!("eth{number}"),
            );
            node.device(&name, &pci)
                .port(&name, 1, "Ethernet", "4: ACTIVE")
                .netdev(&link, number + 5, &pci);
            let mut model = kernel.set();
            model.state.host.push(ethernet(number + 5, &link));
            model
                .state
                .rdma
                .device(number, &name, u64::from(number), Some((number + 5, &link)));
        }
        kernel.set().state.rdma.mode = NetnsMode::Exclusive;
        Self {
            node,
            kernel,
            state: tempfile::tempdir().unwrap(),
        }
    }

    /// Whether the device of the link `name` can be moved.
    fn judge(&self, name: &str) -> Result<(), String> {
        let mut kernel = self.kernel.clone();
        let link = kernel.link(Side::Host, name).unwrap().unwrap();
        let sysfs = self.node.sysfs();
        let facts = observe(&mut kernel, &sysfs, Side::Host, &link).unwrap();
        let found = find(&facts, None).unwrap();
        let around =
            Surroundings::read(&mut kernel, &sysfs, &written(self.state.path()).unwrap(), &found).unwrap();
        require_movable(&found, &around).map_err(|e| e.to_string())
    }

    fn change(&self, change: impl Fn(&mut Link)) {
        self.kernel.set().state.host.iter_mut().for_each(change);
    }
}

fn kept(device: &str, reason_and_remedy: &str) -> Result<(), String> {
    Err(format!(
        "RDMA device {device} is not moved into the pod: {reason_and_remedy}"
    ))
}

#[test]
fn an_unused_device_may_leave_the_host() {
    assert_eq!(Bench::new().judge("eth1"), Ok(()));
}

#[test]
fn the_last_active_port_of_its_kind_stays() {
    let bench = Bench::new();
    bench
        .node
        .write("class/infiniband/mlx5_2/ports/1/state", "1: DOWN");
    assert_eq!(
        bench.judge("eth1"),
        kept(
            "mlx5_1",
            "it has the last active Ethernet port of this node; leave one to the host, or use an RDMA subsystem in shared mode"
        ),
        "carrier on InfiniBand does not count"
    );
    assert_eq!(bench.judge("eth2"), Ok(()), "it carries nothing");
}

#[test]
fn the_device_of_a_bonds_port_stays() {
    let bench = Bench::new();
    bench
        .kernel
        .set()
        .state
        .host
        .push(of_kind("bond", ethernet(9, "bond0")));
    bench.change(|link| link.master = (link.name == "eth1").then_some(9));
    let expected = kept(
        "mlx5_1",
        "eth1 is a port of bond0, which would lose it; name another master, or take the port out of the bond",
    );
    assert_eq!(bench.judge("eth1"), expected);
    assert_eq!(bench.judge("bond0"), expected);
    assert_eq!(bench.judge("eth2"), Ok(()));
}

#[test]
fn the_device_of_a_port_of_a_vrf_may_leave_the_host() {
    let bench = Bench::new();
    let vrf = of_kind("vrf", ethernet(9, "vrf0"));
    bench.kernel.set().state.host.push(vrf);
    bench.change(|link| link.master = (link.name == "eth1").then_some(9));
    assert_eq!(bench.judge("eth1"), Ok(()));
}

#[test]
fn the_lag_device_of_a_bond_stays() {
    let bench = Bench::new();
    bench.kernel.set().state.host.push(bond(9, "bond0"));
    bench.change(|link| {
        if link.name == "bond0" {
            link.layer = common::netlink::LinkLayer::Ethernet;
        }
    });
    bench.kernel.set().state.rdma.ports[0].netdev = Some((9, "bond0".to_owned()));
    let expected = "mlx5_1 is a port of bond0, which would lose it";
    assert!(
        bench.judge("bond0").unwrap_err().contains(expected),
        "{:?}",
        bench.judge("bond0")
    );
}

#[test]
fn a_device_whose_other_link_is_a_bridge_port_stays() {
    let bench = Bench::new();
    bench.node.netdev("eth1np1", 12, "0000:3b:00.1");
    let port = Link {
        master: Some(13),
        ..ethernet(12, "eth1np1")
    };
    bench
        .kernel
        .set()
        .state
        .host
        .extend([port, of_kind("bridge", ethernet(13, "br0"))]);
    assert!(
        bench
            .judge("eth1")
            .unwrap_err()
            .contains("eth1np1 is a port of br0")
    );
}

#[test]
fn a_device_with_another_port_stays() {
    for layer in ["InfiniBand", "Ethernet"] {
        let bench = Bench::new();
        bench.node.port("mlx5_1", 2, layer, "4: ACTIVE");
        assert_eq!(
            bench.judge("eth1"),
            kept(
                "mlx5_1",
                "it would leave the host with port 2 too; use a device with one port, or an RDMA subsystem in shared mode"
            ),
            "{layer}"
        );
        assert_eq!(bench.judge("eth2"), Ok(()));
    }
}

#[test]
fn a_device_that_the_host_uses_by_a_queue_pair_stays() {
    let process = std::process::id();
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
    let program = format!("the program {} (process {process})", name.trim_end());
    for (creator, user, remedy) in [
        (
            Creator::Module("ib_srp".to_owned()),
            "the kernel module ib_srp",
            "end its connections first",
        ),
        // Linux 6.1 lists this module for NFS and NVMe over RDMA.
        (
            Creator::Module("rdma_cm".to_owned()),
            "the kernel module rdma_cm",
            "end its connections first",
        ),
        (Creator::Program(Some(process)), &program, "end it first"),
        (
            Creator::Program(None),
            "a program that the kernel does not name",
            "end it first",
        ),
    ] {
        let bench = Bench::new();
        bench.kernel.set().state.rdma.used(1, creator);
        let want = format!("{user} has a queue pair on it, and would lose it; {remedy}");
        assert_eq!(bench.judge("eth1"), kept("mlx5_1", &want));
        assert_eq!(bench.judge("eth2"), Ok(()), "{user} does not use it");
    }
}

#[test]
fn a_device_whose_queue_pairs_are_not_listed_may_leave_with_a_warning() {
    let bench = Bench::new();
    bench.kernel.fail(Fault::Every("list the queue pairs"));
    let (judged, warnings) = warnings_of(|| bench.judge("eth1"));
    assert_eq!(judged, Ok(()));
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}")
    };
    assert!(
        warning.contains("list of the queue pairs of an RDMA device failed")
            && warning.contains("mlx5_1")
            && warning.contains("EIO"),
        "{warning}"
    );
}

/// The intent of an ADD that gives `mlx5_1` to `pod`.
fn intent(pod: &Pod) -> Intent {
    let grant = crate::model::grant(Some("0000:3b:00.1"), Sharing::Exclusive { rename: None });
    let device = Identity {
        index: 1,
        node_guid: common::rdma::Guid(1),
        ..grant.device
    };
    Intent {
        rdma: Some(Grant { device, ..grant }),
        ..pod.intent("eth1")
    }
}

#[test]
fn a_device_of_a_living_pod_stays_and_one_of_a_dead_pod_may_leave() {
    let (bench, pod) = (Bench::new(), Pod::new());
    let _alone = crate::model::alone();
    let journal = Journal::new(bench.state.path(), "net-b");
    let mut entry = journal.open(&attachment("c2")).unwrap();
    entry.begin(intent(&pod)).unwrap();
    let want =
        "net1 of container c2 (network net-b) has it; wait until that pod is gone, or name another master";
    assert_eq!(bench.judge("eth1"), kept("mlx5_1", want));
    let dead = Intent {
        netns_id: (1, 1),
        ..intent(&pod)
    };
    entry.begin(dead).unwrap();
    assert_eq!(bench.judge("eth1"), Ok(()));
}

#[test]
fn two_concurrent_pods_do_not_get_the_last_two_ports() {
    let (bench, pod) = (Bench::new(), Pod::new());
    let _alone = crate::model::alone();
    let mut entry = Journal::new(bench.state.path(), "net-b")
        .open(&attachment("c2"))
        .unwrap();
    // The device is in the journal and has not moved yet.
    entry.begin(intent(&pod)).unwrap();
    assert!(
        bench
            .judge("eth2")
            .unwrap_err()
            .contains("it has the last active Ethernet port of this node")
    );
}
