// SPDX-License-Identifier: Apache-2.0
//! Networks with a resource of a device plugin. The fabric's VM tests devices with a PCI address.

use crate::macvlan;
use multus::{Daemon, Setup};
use tests::json;
use tests::kubelet::{Allocation, Kubelet, allocated};
use tests::multus::PodIdentity;

const RESOURCE: &str = "rdma/hca_shared";

/// A network whose device plugin shares one adapter among all pods.
fn shared_network(setup: &Setup) {
    let conf = macvlan("rail0", "10.30.0.0/24");
    setup.network_of(&setup.namespace, "rail0", &conf.to_string(), Some(RESOURCE));
}

/// The allocation of devices of [`RESOURCE`] to a pod.
fn given<'a>(pod: &'a PodIdentity, device: &'a [&'a str]) -> Allocation<'a> {
    Allocation::new(pod, RESOURCE, device)
}

/// The device IDs of the RDMA shared device plugin are slot numbers.
#[test]
fn a_shared_device_slot_number_is_ignored_in_favour_of_the_master() {
    Setup::run(|setup| {
        shared_network(setup);
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("trainer", "rail0");
        allocated(&[given(&pod, &["17"])]);
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &pod).result();
        assert_eq!(sandbox.global("net1"), ["10.30.0.2/24"]);
        multus.del(&sandbox, &pod);
        setup.node.assert_as_before(&before, &[&sandbox], "after DEL");
    });
}

/// The checkpoint names a device that the node does not have; the plugin would reject it.
#[test]
fn the_kubelet_socket_takes_precedence_over_its_checkpoint_file() {
    Setup::run(|setup| {
        shared_network(setup);
        let daemon = Daemon::start(setup);
        for (name, multus) in [("thin", setup.thin()), ("thick", daemon.multus())] {
            let (sandbox, pod) = setup.pod(name, "rail0");
            let (_, neighbour) = setup.pod(&format!("{name}-neighbour"), "rail0");
            allocated(&[given(&pod, &["0000:ff:1f.7"])]);
            let before = setup.node.settled_snapshot(&[&sandbox]);
            multus.add(&sandbox, &pod).refused(999, &["0000:ff:1f.7"]);
            multus.del(&sandbox, &pod);
            let kubelet = Kubelet::start(&[given(&neighbour, &["0000:ff:1f.7"]), given(&pod, &["17"])]);
            multus.add(&sandbox, &pod).result();
            assert!(kubelet.asked() > 0, "{name}");
            assert_eq!(
                sandbox.link("net1").parent,
                Some(setup.node.link("eth0").index),
                "{name}"
            );
            multus.del(&sandbox, &pod);
            setup.node.assert_as_before(&before, &[&sandbox], name);
        }
    });
}

/// Multus offers the device of the annotation if the kubelet gave none (`LoadDelegateNetConf` of its `pkg/types/conf.go`).
#[test]
fn a_pod_cannot_choose_a_device_unless_the_network_allows_it() {
    Setup::run(|setup| {
        let chosen = |network: &str| json!([{ "name": network, "deviceID": "0000:ff:1f.7" }]).to_string();
        shared_network(setup);
        let mut conf = macvlan("open", "10.31.0.0/24");
        conf["capabilities"]["deviceID"] = json!(true);
        setup.network_of(&setup.namespace, "open", &conf.to_string(), Some(RESOURCE));
        let multus = setup.thin();
        allocated(&[]);
        let (sandbox, pod) = setup.pod("trainer", &chosen("rail0"));
        multus.add(&sandbox, &pod).result();
        let parent = sandbox.link("net1").parent;
        assert_eq!(parent, Some(setup.node.link("eth0").index));
        let (sandbox, pod) = setup.pod("chooser", &chosen("open"));
        multus.add(&sandbox, &pod).refused(999, &["0000:ff:1f.7"]);
    });
}

#[test]
fn without_the_kubelet_add_is_refused_and_del_succeeds() {
    Setup::run(|setup| {
        shared_network(setup);
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("trainer", "rail0");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        let mut kubelet = Kubelet::start(&[given(&pod, &["17"])]);
        multus.add(&sandbox, &pod).result();
        kubelet.kill();
        multus.del(&sandbox, &pod);
        setup.node.assert_as_before(&before, &[&sandbox], "after DEL");
        multus.add(&sandbox, &pod).refused(999, &["kubelet.sock"]);
        multus.del(&sandbox, &pod);
        setup
            .node
            .assert_as_before(&before, &[&sandbox], "after the refusal");
    });
}

#[test]
fn an_error_names_the_device_plugin_when_the_pod_requests_no_device() {
    Setup::run(|setup| {
        let mut conf = macvlan("rail0", "10.30.0.0/24");
        conf.as_object_mut().unwrap().remove("master");
        setup.network_of(&setup.namespace, "rail0", &conf.to_string(), Some(RESOURCE));
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("trainer", "rail0");
        allocated(&[]);
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus
            .add(&sandbox, &pod)
            .refused(999, &["master", "device plugin", "rdmanet error 7"]);
        multus.del(&sandbox, &pod);
        setup
            .node
            .assert_as_before(&before, &[&sandbox], "after the refusal");
    });
}
