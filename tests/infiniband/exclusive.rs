// SPDX-License-Identifier: Apache-2.0
//! RDMA devices that move into pods, on a node whose RDMA subsystem is in exclusive mode. The tests are the same on
//! every kernel: they search for the returned `IPoIB` link of a moved HCA in every namespace.

use crate::fabric::{network, run_exclusive, soon};
use crate::verbs::write_bandwidth;
use cni_ipoib::intent::{Grant, Identity, Sharing};
use cni_ipoib::journal::{Intent, Journal};
use cni_ipoib::kernel::{Kernel, Namespaces, Side};
use cni_ipoib::rdma::{find, observe, transfer};
use common::cni::Attachment;
use common::netlink::{Creator, Rdma, Socket};
use common::rdma::Sysfs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tests::{Conf, Node, Pod, json, traces::assert_same};

/// The names of the RDMA devices that are visible in the pod.
fn devices_of(pod: &Pod<'_>) -> Vec<String> {
    names(Socket::open_in(&pod.open()).unwrap())
}

/// The names of the RDMA devices that are visible on the node.
fn devices_of_node() -> Vec<String> {
    names(Socket::open().unwrap())
}

fn names(mut socket: Socket<Rdma>) -> Vec<String> {
    let mut names: Vec<_> = socket
        .devices()
        .unwrap()
        .into_iter()
        .map(|device| device.name)
        .collect();
    names.sort();
    names
}

/// The RDMA device of the link `name`, as a grant for a move.
fn grant_of(name: &str, rename: Option<&str>) -> (Grant, common::rdma::Guid) {
    let mut kernel = Namespaces::open(None).unwrap();
    let link = kernel.link(Side::Host, name).unwrap().unwrap();
    let facts = observe(&mut kernel, &Sysfs::host(), Side::Host, &link).unwrap();
    let found = find(&facts, None).unwrap();
    let grant = Grant {
        device: Identity {
            name: found.seen.device.name.clone(),
            index: found.seen.index.unwrap(),
            node_guid: found.seen.device.node_guid,
            pci: found.seen.device.pci,
            path: found.seen.device.path.clone(),
        },
        port: found.port.number,
        link_layer: found.port.layer.to_string(),
        netns: Sharing::Exclusive {
            rename: rename.map(str::to_owned),
        },
    };
    (grant, found.port.guid().unwrap())
}

/// Records and moves the RDMA device of the link `name`, and stops there: the state after a kill of ADD.
fn move_device(node: &Node, pod: &Pod<'_>, name: &str, rename: Option<&str>) {
    let (grant, _) = grant_of(name, rename);
    let netns = pod.open();
    let intent: Intent = serde_json::from_value(json!({
        "netns": pod.netns, "netns_id": netns.id(), "master": name, "rdma": grant,
    }))
    .unwrap();
    let attachment = Attachment {
        container_id: pod.id.parse().unwrap(),
        ifname: "net1".parse().unwrap(),
    };
    let journal = Journal::new(&node.path("state"), "net-a");
    journal.open(&attachment).unwrap().begin(intent).unwrap();
    let mut kernel = Namespaces::open(Some(&netns)).unwrap();
    transfer::hand_over(&mut kernel, &node.path("state"), &grant).unwrap();
}

fn conf(node: &Node) -> Conf {
    node.conf(json!({"master": "ib0"}))
}

#[test]
fn rdma_writes_work_between_pods_that_see_only_their_own_devices() {
    run_exclusive(|node| {
        let pods = [node.pod(), node.pod()];
        // The programs exchange their parameters over a cable; the data goes over InfiniBand.
        node.ip(&format!(
            "link add v0 netns {} type veth peer name v1 netns {}",
            pods[0].netns.display(),
            pods[1].netns.display()
        ));
        for (pod, (link, address)) in pods.iter().zip([("v0", "10.8.0.1/24"), ("v1", "10.8.0.2/24")]) {
            pod.ip(&format!("addr add {address} dev {link}"));
            pod.ip(&format!("link set {link} up"));
        }
        move_device(node, &pods[0], "ib0", None);
        move_device(node, &pods[1], "ib1", Some("rdma0"));
        assert_eq!(devices_of(&pods[0]), ["softib0"]);
        assert_eq!(devices_of(&pods[1]), ["rdma0"]);
        assert_eq!(devices_of_node(), ["softib2"]);
        write_bandwidth((&pods[0], "softib0"), (&pods[1], "rdma0"), "10.8.0.2");
        for pod in &pods {
            pod.detach(&conf(node), "net1");
            assert_eq!(devices_of(pod), Vec::<String>::new());
        }
        assert_eq!(devices_of_node(), ["softib0", "softib1", "softib2"]);
    });
}

#[test]
fn the_ipoib_link_of_a_moved_device_is_found_in_the_pod_or_on_the_node() {
    run_exclusive(|node| {
        let pod = node.pod();
        let (grant, guid) = grant_of("ib1", None);
        let netns = pod.open();
        let mut kernel = Namespaces::open(Some(&netns)).unwrap();
        transfer::hand_over(&mut kernel, &node.path("state"), &grant).unwrap();
        let (side, link) = transfer::reappeared(&mut kernel, guid)
            .unwrap()
            .expect("its link is in no namespace");
        let sees = kernel
            .links(side)
            .unwrap()
            .iter()
            .any(|seen| seen.index == link.index);
        assert!(sees, "{} is not in the namespace of the {side:?}", link.name);
        assert!(transfer::bring_back(&mut kernel, &node.path("state"), &grant.device).unwrap());
        let (side, _) = transfer::reappeared(&mut kernel, guid)
            .unwrap()
            .expect("its link did not come back");
        assert_eq!(side, Side::Host);
    });
}

#[test]
fn a_moved_device_keeps_the_number_of_its_file() {
    run_exclusive(|node| {
        let pod = node.pod();
        let file = Sysfs::host().verbs_file("softib1");
        assert!(file.is_some());
        move_device(node, &pod, "ib1", None);
        assert_eq!(Sysfs::host().verbs_file("softib1"), file);
        pod.detach(&conf(node), "net1");
        assert_eq!(Sysfs::host().verbs_file("softib1"), file);
    });
}

#[test]
fn del_restores_the_name_of_a_dead_pods_rdma_device() {
    run_exclusive(|node| {
        let pod = node.pod();
        move_device(node, &pod, "ib1", Some("rdma0"));
        assert_eq!(devices_of_node(), ["softib0", "softib2"]);
        pod.die();
        // Without a delay: DEL waits until the kernel has cleaned the namespace up. If it waits in vain, a runtime
        // repeats it.
        let conf = conf(node);
        soon("DEL has returned the device", || {
            let del = pod.call("DEL", &conf, "net1").run();
            let waited = del.took >= Duration::from_secs(5);
            assert!(del.status.success() || waited, "DEL did not wait: {del}");
            del.status.success()
        });
        assert_eq!(devices_of_node(), ["softib0", "softib1", "softib2"]);
        assert!(node.traces(&[]).attachments.is_empty());
    });
}

#[test]
fn gc_returns_the_rdma_device_of_a_running_and_of_a_dead_pod() {
    run_exclusive(|node| {
        for dies in [false, true] {
            let pod = node.pod();
            move_device(node, &pod, "ib1", Some("rdma0"));
            // root in the pod can rename the device as well.
            if !dies {
                let output = pod.exec("rdma", "dev set rdma0 name mine");
                assert!(output.status.success(), "{output:?}");
                assert_eq!(devices_of(&pod), ["mine"]);
            }
            if dies {
                pod.die();
                soon("the kernel has put the device back", || {
                    devices_of_node().len() == 3
                });
            }
            node.gc(&conf(node), &[]).done();
            assert_eq!(
                devices_of_node(),
                ["softib0", "softib1", "softib2"],
                "dies: {dies}"
            );
            assert!(node.traces(&[]).attachments.is_empty());
        }
    });
}

/// Starts a program on the node that has a queue pair on `device`, and waits for a client.
fn program_on(node: &Node, device: &str) -> Child {
    let program = Command::new("ibv_rc_pingpong")
        .args(["-d", device])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    soon("the program waits for a client", || {
        !node.exec("ss", "-Hltn sport = :18515").stdout.is_empty()
    });
    program
}

/// Whether the node's device `name` has a queue pair of `program`. A move of the device would end the queue pair.
fn has_queue_pair(name: &str, program: &Child) -> bool {
    let mut socket = Socket::<Rdma>::open().unwrap();
    let devices = socket.devices().unwrap();
    let Some(device) = devices.iter().find(|device| device.name == name) else {
        return false;
    };
    let pairs = socket.queue_pairs(device.index).unwrap();
    let creator = Creator::Program(Some(program.id()));
    pairs.iter().any(|pair| pair.creator == creator)
}

#[test]
fn a_device_that_a_program_of_the_host_uses_stays_until_it_ends() {
    run_exclusive(|node| {
        let conf = network(node, &json!({"master": "ib1", "mode": "device"}));
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let mut program = program_on(node, "softib1");
        let refused = pod.add(&conf, "net1");
        let goes_on = has_queue_pair("softib1", &program);
        let traces = node.traces(&[&pod]);
        // A program that uses the device keeps the next test from loading the module again.
        program.kill().unwrap();
        program.wait().unwrap();
        let user = format!("the program ibv_rc_pingpong (process {})", program.id());
        refused.refused(
            7,
            &[
                "RDMA device softib1 is not moved into the pod",
                &user,
                "end it first",
            ],
        );
        assert!(goes_on, "the program lost its queue pair");
        assert_same(&before, &traces, "after the refusal");
        pod.attach(&conf, "net1");
        assert_eq!(devices_of(&pod), ["softib1"]);
        pod.detach(&conf, "net1");
        assert_eq!(devices_of_node(), ["softib0", "softib1", "softib2"]);
    });
}

#[test]
fn an_ipoib_child_leaves_its_parents_device_on_the_host() {
    run_exclusive(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let keys = |rdma| network(node, &json!({"master": "ib0", "rdma": rdma}));
        let exclusive = keys(json!({"netns": "exclusive"}));
        let pieces = [
            "softib0 is not moved",
            "would destroy ib0",
            "children of every pod",
        ];
        pod.add(&exclusive, "net1").refused(7, &pieces);
        node.status(&exclusive).refused(50, &pieces);
        pod.add(&keys(json!({"netns": "shared"})), "net1")
            .refused(7, &["rdma.netns is shared", "in exclusive mode"]);
        assert_same(&before, &node.traces(&[&pod]), "after the refusals");
        // If RDMA is not required, the pod gets its interface without a device.
        let conf = keys(json!({}));
        pod.attach(&conf, "net1");
        assert_eq!(devices_of(&pod), Vec::<String>::new());
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert_eq!(devices_of_node(), ["softib0", "softib1", "softib2"]);
    });
}

#[test]
fn a_driver_that_cannot_move_its_device_is_reported_and_add_is_undone() {
    run_exclusive(|node| {
        for name in ["eth8", "eth9"] {
            node.cable(name);
            let output = node.exec("rdma", &format!("link add rxe{name} type rxe netdev {name}"));
            assert!(output.status.success(), "{output:?}");
            soon(&format!("rxe{name} is active"), || {
                let state = std::fs::read_to_string(format!("/sys/class/infiniband/rxe{name}/ports/1/state"));
                state.unwrap().contains("ACTIVE")
            });
        }
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = network(node, &json!({"master": "eth9", "rdma": {"netns": "exclusive"}}));
        // rxe has no disassociate_ucontext: the kernel returns EOPNOTSUPP, after the plugin has created the interface.
        pod.add(&conf, "net1").refused(
            7,
            &[
                "RDMA device rxeeth9 is not moved",
                "its driver cannot disassociate it from its users",
            ],
        );
        assert_same(&before, &node.traces(&[&pod]), "after the refusal");
        for name in ["eth8", "eth9"] {
            node.exec("rdma", &format!("link del rxe{name}"));
            node.ip(&format!("link del {name}"));
        }
    });
}
