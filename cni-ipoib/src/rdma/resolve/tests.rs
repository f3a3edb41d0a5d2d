// SPDX-License-Identifier: Apache-2.0
#![expect(
    clippy::needless_pass_by_value,
    reason = "a call reads better without a reference before its keys"
)]

use crate::intent::Sharing;
use crate::journal::tests::reads_of;
use crate::kernel::{RdmaSubsystem, Side};
use crate::model::{Fault, Fixture, Ipam, ModelKernel, Node, ethernet, ipoib};
use common::cni::CniResult;
use common::cni::dispatch::Plugin as _;
use common::netlink::{Creator, Link, NetnsMode};
use serde_json::{Value, json};
use std::fs;

/// `ib0` with `mlx5_0`; `eth1` with `mlx5_1` and `eth2` with `mlx5_2`, in exclusive mode.
fn fixture() -> Fixture {
    with_devices(&[1, 2])
}

/// `ib0` with `mlx5_0`; of each number `ethN` with `mlx5_N`, in exclusive mode.
pub(crate) fn with_devices(numbers: &[u32]) -> Fixture {
    let fixture = Fixture {
        kernel: ModelKernel::new(vec![ipoib(4, "ib0", 0xffff)]),
        node: Node::with_ib0(),
        ..Fixture::with(Ipam::dual_stack())
    };
    {
        let mut model = fixture.kernel.set();
        model.state.rdma.mode = NetnsMode::Exclusive;
        model.state.rdma.device(10, "mlx5_0", 0x248a_0703_00b4_0c5e, None);
    }
    for &number in numbers {
        let (name, pci, link) = (
            format!("mlx5_{number}"),
            format!("0000:3b:00.{number}"),
            format!("eth{number}"),
        );
        fixture
            .node
            .device(&name, &pci)
            .write(
                &format!("class/infiniband/{name}/node_guid"),
                &format!("0000:0000:0000:000{number}"),
            )
            .port(&name, 1, "Ethernet", "4: ACTIVE")
            .netdev(&link, number + 5, &pci);
        let mut model = fixture.kernel.set();
        model.state.host.push(Link {
            perm_address: format!("b8:3f:d2:00:00:0{number}").parse().ok(),
            ..ethernet(number + 5, &link)
        });
        let rdma = &mut model.state.rdma;
        rdma.device(number, &name, u64::from(number), Some((number + 5, &link)));
    }
    fixture
}

fn add(fixture: &Fixture, container: &str, keys: Value) -> Result<CniResult, (u32, String)> {
    fixture
        .add_with(container, &keys)
        .map_err(|error| (error.code.0, error.msg))
}

fn exclusive(master: &str) -> Value {
    json!({"master": master, "rdma": {"netns": "exclusive"}})
}

fn renaming(master: &str, name: &str) -> Value {
    json!({"master": master, "rdma": {"rename": name}})
}

fn record(fixture: &Fixture, container: &str) -> Value {
    let file = fixture.state.path().join(format!("rdma/{container}@net1.json"));
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn an_ethernet_child_gets_its_device_and_del_returns_it() {
    let fixture = fixture();
    let before = fixture.kernel.state();
    add(&fixture, "c1", exclusive("eth1")).unwrap();
    assert_eq!(fixture.rdma_names(Side::Pod), ["mlx5_1"]);
    assert_eq!(record(&fixture, "c1")["ncclIbHca"], "=mlx5_1:1");
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state(), before);
    assert!(!fixture.state.path().join("rdma/c1@net1.json").exists());
}

#[test]
fn add_and_del_read_no_files_of_attachments_without_a_moved_device() {
    let fixture = fixture();
    let reads = || {
        reads_of(|| {
            add(&fixture, "c1", exclusive("eth1")).unwrap();
            fixture.del("c1").unwrap();
        })
        .1
    };
    // The first ADD of a node marks attachments of earlier releases.
    reads();
    let alone = reads();
    for number in 0..40 {
        let mut entry = fixture.entry(&format!("other{number}"));
        entry.begin(fixture.intent()).unwrap();
        entry.finish().unwrap();
    }
    assert_eq!(reads(), alone);
    let mut grant = crate::model::grant(None, Sharing::Exclusive { rename: None });
    grant.device.name = "mlx5_9".to_owned();
    fixture.amend_intent("other0", |intent| intent.rdma = Some(grant));
    assert!(reads() > alone);
}

#[test]
fn the_device_info_file_names_the_device_as_the_pod_sees_it() {
    let fixture = fixture();
    let keys = json!({
        "master": "eth1", "rdma": {"rename": "rdma0"},
        "runtimeConfig": {"CNIDeviceInfoFile": fixture.info_file()},
    });
    let result = add(&fixture, "c1", keys).unwrap();
    assert_eq!(result.interfaces[0].pci_id, "", "the function is the parent's");
    assert_eq!(fixture.rdma_names(Side::Pod), ["rdma0"]);
    let info: Value = serde_json::from_slice(&fs::read(fixture.info_file()).unwrap()).unwrap();
    assert_eq!(info["pci"]["rdma-device"], "rdma0");
}

#[test]
fn a_failure_at_any_step_leaves_the_device_on_the_host() {
    for number in 0.. {
        let fixture = fixture();
        let before = fixture.kernel.state();
        fixture.kernel.fail(Fault::Refused(number));
        let outcome = add(&fixture, "c1", renaming("eth1", "rdma0"));
        if fixture.kernel.get().log.len() <= number {
            outcome.unwrap();
            return;
        }
        let request = fixture.kernel.get().log[number].clone();
        if request.starts_with("list the queue pairs") {
            outcome.expect("a list that the kernel refuses is a warning");
            continue;
        }
        outcome.expect_err(&request);
        assert_eq!(fixture.kernel.state(), before, "{request}");
        assert!(fixture.written_down().is_empty(), "{request}");
        assert!(
            !fixture.state.path().join("rdma/c1@net1.json").exists(),
            "{request}"
        );
    }
}

#[test]
fn after_a_kill_at_any_step_del_and_gc_return_the_device() {
    for number in 0.. {
        for dies in [false, true] {
            let fixture = fixture();
            let before = fixture.kernel.state();
            fixture.kernel.fail(Fault::From(number));
            let outcome = add(&fixture, "c1", renaming("eth1", "rdma0"));
            let over = fixture.kernel.get().log.len() <= number;
            fixture.kernel.fail(Fault::None);
            if dies {
                fixture.kernel.set().state.pod_dies();
                fixture.gc(&[]).unwrap();
            } else {
                fixture.del("c1").unwrap();
            }
            assert_eq!(fixture.kernel.state(), before, "{number}");
            if over {
                outcome.unwrap();
                if dies {
                    return;
                }
            }
        }
    }
}

#[test]
fn the_error_of_a_second_pod_names_the_owner_of_the_device() {
    let fixture = fixture();
    add(&fixture, "c1", exclusive("eth1")).unwrap();
    fixture.kernel.set().state.pod.clear();
    // The host's sysfs does not show devices of another namespace.
    fs::remove_dir_all(fixture.node.path().join("class/infiniband/mlx5_1")).unwrap();
    let (code, text) = add(&fixture, "c2", exclusive("eth1")).unwrap_err();
    let expected = "RDMA device mlx5_1 is not moved into the pod: net1 of container c1 (network fabric) has it; wait until that pod is gone, or name another master";
    assert_eq!((code, text.as_str()), (11, expected));
    add(&fixture, "c2", json!({"master": "eth1", "rdma": {}})).unwrap();
}

#[test]
fn the_last_active_port_stays_and_an_optional_device_is_omitted() {
    let fixture = fixture();
    fixture
        .node
        .write("class/infiniband/mlx5_2/ports/1/state", "1: DOWN");
    let (_, text) = add(&fixture, "c1", exclusive("eth1")).unwrap_err();
    assert!(text.contains("last active Ethernet port"), "{text}");
    assert!(fixture.written_down().is_empty());
    add(&fixture, "c1", json!({"master": "eth1", "rdma": {}})).unwrap();
    assert_eq!(fixture.rdma_names(Side::Pod), Vec::<String>::new());
    assert!(!fixture.state.path().join("rdma/c1@net1.json").exists());
}

#[test]
fn an_ipoib_child_never_moves_the_device_of_its_parent() {
    let fixture = fixture();
    let before = fixture.kernel.state();
    let (_, text) = add(&fixture, "c1", exclusive("ib0")).unwrap_err();
    let expected = "RDMA device mlx5_0 is not moved into the pod: moving it would destroy ib0, and with it the children of every pod on ib0; ";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(
        fixture.ipam.verbs(),
        Vec::<String>::new(),
        "refused before anything is allocated"
    );
}

#[test]
fn a_device_that_the_host_uses_stays_until_its_user_ends() {
    let fixture = fixture();
    let program = Creator::Program(None);
    fixture.kernel.set().state.rdma.used(1, program);
    let before = fixture.kernel.state();
    let whole = json!({"master": "eth1", "mode": "device"});
    for keys in [exclusive("eth1"), whole] {
        let (code, text) = add(&fixture, "c1", keys).unwrap_err();
        assert_eq!(code, 7);
        let want = "RDMA device mlx5_1 is not moved into the pod: a program that the kernel does not name has a queue pair on it";
        assert!(text.starts_with(want), "{text}");
        assert_eq!(fixture.kernel.state(), before);
        assert_eq!(
            fixture.ipam.verbs(),
            [""; 0],
            "refused before anything is allocated"
        );
    }
    // A pod that does not require the device starts without it.
    add(&fixture, "c1", json!({"master": "eth1", "rdma": {}})).unwrap();
    assert_eq!(fixture.rdma_names(Side::Pod), [""; 0]);
    fixture.del("c1").unwrap();
    fixture.kernel.set().state.rdma.queue_pairs.clear();
    add(&fixture, "c1", exclusive("eth1")).unwrap();
    assert_eq!(fixture.rdma_names(Side::Pod), ["mlx5_1"]);
}

#[test]
fn an_add_lists_queue_pairs_only_if_a_device_is_about_to_move() {
    for (mode, keys, lists) in [
        (NetnsMode::Shared, json!({"master": "eth1", "rdma": {}}), 0),
        (NetnsMode::Exclusive, json!({"master": "eth1"}), 0),
        (NetnsMode::Exclusive, json!({"master": "ib0", "rdma": {}}), 0),
        (NetnsMode::Exclusive, exclusive("eth1"), 1),
    ] {
        let fixture = fixture();
        fixture.kernel.set().state.rdma.mode = mode;
        add(&fixture, "c1", keys.clone()).unwrap();
        let log = &fixture.kernel.get().log;
        let listed = log.iter().filter(|request| request.contains("queue pairs"));
        assert_eq!(listed.count(), lists, "{mode} {keys}");
    }
}

#[test]
fn in_shared_mode_the_device_is_reported_without_a_request() {
    let fixture = fixture();
    fixture.kernel.set().state.rdma.mode = NetnsMode::Shared;
    let rdma = fixture.kernel.state().rdma;
    add(&fixture, "c1", json!({"master": "ib0"})).unwrap();
    let record = record(&fixture, "c1");
    assert_eq!(
        (&record["device"], &record["netns"], &record["linkLayer"]),
        (&json!("mlx5_0"), &json!("shared"), &json!("InfiniBand"))
    );
    assert_eq!(fixture.kernel.state().rdma, rdma);
    let intent = fixture.entry("c1").intent.clone().unwrap();
    assert_eq!(intent.rdma.unwrap().name_in_pod(), "mlx5_0");
    fixture.kernel.set().state.pod.clear();
    let (code, text) = add(&fixture, "c2", exclusive("eth1")).unwrap_err();
    assert_eq!(code, 7);
    assert!(
        text.starts_with("rdma.netns is exclusive, but this node's RDMA subsystem is in shared mode"),
        "{text}"
    );
}

#[test]
fn a_dead_pods_renamed_device_is_granted_again() {
    let fixture = after_the_death_of_rdma0();
    add(&fixture, "c2", exclusive("eth1")).unwrap();
    assert_eq!(fixture.rdma_names(Side::Pod), ["mlx5_1"]);
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(
        fixture.rdma_names(Side::Pod),
        ["mlx5_1"],
        "the dead pod's DEL does not take it from the next one"
    );
    fixture.del("c2").unwrap();
    assert_eq!(fixture.rdma_names(Side::Pod), Vec::<String>::new());
}

/// A node on which the pod of `c1` died with `mlx5_1`, which the kernel returned under its name in the pod.
fn after_the_death_of_rdma0() -> Fixture {
    let fixture = fixture();
    add(&fixture, "c1", renaming("eth1", "rdma0")).unwrap();
    fixture.kill_pod("c1");
    fixture
}

#[test]
fn an_add_renames_no_device_of_another_dead_pod() {
    let fixture = after_the_death_of_rdma0();
    add(&fixture, "c2", exclusive("eth2")).unwrap();
    assert!(
        fixture.rdma_names(Side::Host).contains(&"rdma0".to_owned()),
        "{:?}",
        fixture.rdma_names(Side::Host)
    );
    assert_eq!(fixture.rdma_names(Side::Pod), ["mlx5_2"]);
    fixture.del_without_netns("c1").unwrap();
    fixture.del("c2").unwrap();
    assert_eq!(fixture.rdma_names(Side::Host), ["mlx5_0", "mlx5_1", "mlx5_2"]);
}

#[test]
fn an_add_succeeds_though_the_device_of_another_dead_pod_cannot_be_renamed() {
    let fixture = after_the_death_of_rdma0();
    fixture.kernel.fail(Fault::Every("rename RDMA device 1 "));
    add(&fixture, "c2", exclusive("eth2")).unwrap();
    assert_eq!(fixture.rdma_names(Side::Pod), ["mlx5_2"]);
}

#[test]
fn a_driver_that_cannot_release_its_users_changes_nothing() {
    let fixture = fixture();
    fixture.kernel.set().state.rdma.clings = true;
    let before = fixture.kernel.state();
    let (_, text) = add(&fixture, "c1", exclusive("eth1")).unwrap_err();
    assert!(
        text.contains("its driver cannot disassociate it from its users"),
        "{text}"
    );
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn a_parent_in_the_pod_keeps_its_device() {
    let fixture = fixture();
    fixture.kernel.set().state.pod.push(ethernet(7, "eth1"));
    let keys = |rdma: Value| json!({"master": "eth1", "linkInContainer": true, "rdma": rdma});
    let (_, text) = add(&fixture, "c1", keys(json!({"required": true}))).unwrap_err();
    assert!(text.contains("it is in the pod (linkInContainer)"), "{text}");
    let (_, text) = add(&fixture, "c1", keys(json!({"netns": "shared"}))).unwrap_err();
    assert!(text.starts_with("rdma.netns is shared"), "{text}");
    add(&fixture, "c1", keys(json!({}))).unwrap();
}

#[test]
fn check_reports_a_missing_or_renamed_device() {
    let fixture = fixture();
    let keys = json!({"master": "eth1", "rdma": {"rename": "rdma0"}, "ipam": {"type": "ranges"}});
    let prev = fixture
        .add_with("c1", &keys)
        .unwrap()
        .to_json(common::cni::Version::V1_1_0);
    let check = || {
        let mut all = keys.clone();
        all["prevResult"] = prev.clone();
        let (call, netns) = (fixture.call(&all), fixture.pod.path());
        fixture
            .plugin()
            .check(&call, &crate::model::attachment("c1"), &netns)
            .map_err(|error| error.msg)
    };
    check().unwrap();
    fixture
        .kernel
        .clone()
        .rename_rdma_device(Side::Pod, 1, "mine")
        .unwrap();
    let renamed = "net1 is not as ADD left it: its RDMA device is called mine, was rdma0";
    assert_eq!(check().unwrap_err(), renamed);
    fixture.kernel.set().locked = None;
    fixture.kernel.clone().move_rdma_device(1, Side::Pod).unwrap();
    let gone =
        "net1 is not as ADD left it: its RDMA device rdma0 (mlx5_1 on the host) is not in the pod any more";
    assert_eq!(check().unwrap_err(), gone);
}

#[test]
fn check_reports_a_shared_device_that_the_node_lost() {
    let fixture = Fixture::new();
    fixture
        .kernel
        .set()
        .state
        .rdma
        .device(10, "mlx5_0", 0x248a_0703_00b4_0c5e, None);
    let prev = fixture.add("c1").unwrap();
    fixture.check("c1", &prev).unwrap();
    fixture.kernel.set().state.rdma.devices.clear();
    let error = fixture.check("c1", &prev).unwrap_err();
    assert_eq!(
        error.msg,
        "net1 is not as ADD left it: its RDMA device mlx5_0 is gone from the node"
    );
}

#[test]
fn status_reports_refusals_except_a_device_in_a_pod() {
    let fixture = fixture();
    let status = |keys: &Value| fixture.status(keys).map_err(|error| (error.code.0, error.msg));
    status(&exclusive("eth1")).unwrap();
    let (code, text) = status(&json!({"master": "eth1", "rdma": {"netns": "shared"}})).unwrap_err();
    assert_eq!(code, 50);
    assert!(text.starts_with("rdma.netns is shared, but"), "{text}");
    let (code, text) = status(&exclusive("ib0")).unwrap_err();
    assert!(
        code == 50 && text.contains("moving it would destroy ib0"),
        "{text}"
    );
    add(&fixture, "c1", exclusive("eth1")).unwrap();
    status(&exclusive("eth1")).unwrap();
    assert_eq!(fixture.rdma_names(Side::Pod), ["mlx5_1"]);
}

/// ADD with these keys is refused before any change, because `rdma.rename` is `mlx5_2`. Returns the fixture.
fn refused_for_the_name_mlx5_2(keys: Value) -> Fixture {
    let fixture = fixture();
    fixture
        .node
        .device("mlx5_3", "0000:3b:00.3")
        .port("mlx5_3", 1, "Ethernet", "4: ACTIVE");
    let before = fixture.kernel.state();
    let (code, text) = add(&fixture, "c1", keys).unwrap_err();
    assert_eq!(code, 7);
    assert!(
        text.contains("rdma.rename is mlx5_2, and the host has a device of that name"),
        "{text}"
    );
    assert_eq!(fixture.kernel.state(), before);
    fixture
}

#[test]
fn a_device_name_in_use_is_refused_before_any_change() {
    let fixture = refused_for_the_name_mlx5_2(renaming("eth1", "mlx5_2"));
    add(&fixture, "c1", renaming("eth1", "rdma0")).unwrap();
    fixture.kernel.set().state.pod.clear();
    let (_, text) = add(&fixture, "c2", renaming("eth2", "rdma0")).unwrap_err();
    let want = "rdma.rename is rdma0, and net1 of container c1 (network fabric) has a device of that name";
    assert!(text.contains(want), "{text}");
    // DEL of c1 needs this name.
    let (_, text) = add(&fixture, "c2", renaming("eth2", "mlx5_1")).unwrap_err();
    let want = "rdma.rename is mlx5_1, and net1 of container c1 (network fabric) has a device of that name";
    assert!(text.contains(want), "{text}");
    assert_eq!(fixture.rdma_names(Side::Pod), ["rdma0"]);
}

#[test]
fn a_whole_device_with_a_name_in_use_is_refused_before_any_change() {
    let keys = json!({"master": "eth1", "mode": "device", "rdma": {"rename": "mlx5_2"}});
    let fixture = refused_for_the_name_mlx5_2(keys);
    let log = &fixture.kernel.get().log;
    assert!(!log.iter().any(|request| request.starts_with("move")), "{log:?}");
}
