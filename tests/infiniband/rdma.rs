// SPDX-License-Identifier: Apache-2.0
//! The RDMA device of a pod's interface on a node that shares its devices: the plugin names it, the pod uses it, and it
//! does not move.

use crate::fabric::{address, network, run, soon};
use crate::verbs::write_bandwidth;
use std::fs;
use tests::{Node, Pod, Value, json, traces::assert_same};

/// The recorded RDMA device of a pod's `net1`.
pub(crate) fn record(node: &Node, pod: &Pod<'_>) -> Value {
    let file = node.path(&format!("state/rdma/{}@net1.json", pod.id));
    serde_json::from_slice(&fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))).unwrap()
}

#[test]
fn rdma_writes_work_over_the_devices_in_the_rdma_records_of_the_pods() {
    run(|node| {
        let (client, server) = (node.pod(), node.pod());
        let confs = ["ib0", "ib2"]
            .map(|master| network(node, &json!({"master": master, "rdma": {"required": true}})));
        client.attach(&confs[0], "net1");
        let target = address(&server.attach(&confs[1], "net1"), false);
        let records = [record(node, &client), record(node, &server)];
        let expected = json!({
            "version": 1, "network": "net-a", "containerID": server.id, "ifname": "net1",
            "device": "softib2", "port": 1, "linkLayer": "InfiniBand", "netns": "shared",
            "hostDevice": "softib2", "nodeGUID": "5254:00ff:fe00:0003", "pciAddress": null, "ncclIbHca": "=softib2:1",
        });
        assert_eq!(records[1], expected);
        let devices = records
            .each_ref()
            .map(|record| record["device"].as_str().unwrap());
        assert_eq!(devices, ["softib0", "softib2"]);
        write_bandwidth((&client, devices[0]), (&server, devices[1]), &target);
        for (pod, conf) in [(&client, &confs[0]), (&server, &confs[1])] {
            pod.check(conf, "net1").done();
            pod.detach(conf, "net1");
        }
        assert!(!node.path(&format!("state/rdma/{}@net1.json", client.id)).exists());
    });
}

#[test]
fn children_of_a_roce_link_and_of_its_vlan_record_the_rdma_device() {
    run(|node| {
        node.cable("eth9");
        node.ip("addr add 10.9.0.1/24 dev eth9");
        node.ip("link add link eth9 name eth9.5 type vlan id 5");
        node.ip("link set eth9.5 up");
        assert!(
            node.exec("rdma", "link add rxe9 type rxe netdev eth9")
                .status
                .success()
        );
        for master in ["eth9", "eth9.5"] {
            let pod = node.pod();
            let conf = network(node, &json!({"master": master, "rdma": {"required": true}}));
            pod.attach(&conf, "net1");
            let record = record(node, &pod);
            assert_eq!(
                (&record["device"], &record["linkLayer"]),
                (&json!("rxe9"), &json!("Ethernet")),
                "{master}"
            );
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        }
        assert!(node.exec("rdma", "link del rxe9").status.success());
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = network(node, &json!({"master": "eth9", "rdma": {"required": true}}));
        pod.add(&conf, "net1")
            .refused(7, &["cannot choose the RDMA device of eth9", "rdma.required"]);
        assert_same(&before, &node.traces(&[&pod]), "after the refusal");
        node.ip("link del eth9");
    });
}

#[test]
fn rdma_device_patterns_select_only_devices_of_the_parent_link() {
    run(|node| {
        let pod = node.pod();
        let conf = |device: &str| network(node, &json!({"master": "ib1", "rdma": {"device": device}}));
        for other in ["softib0", "mlx5_*"] {
            let pieces = [
                &format!("rdma.device is \\\"{other}\\\""),
                "the devices of the link are softib1",
            ];
            pod.add(&conf(other), "net1").refused(7, &pieces);
        }
        for own in ["softib1", "softib*", "soft??[1-3]"] {
            pod.attach(&conf(own), "net1");
            assert_eq!(record(node, &pod)["device"], "softib1", "{own}");
            pod.detach(&conf(own), "net1");
        }
    });
}

#[test]
fn exclusive_rdma_settings_are_refused_while_devices_are_shared() {
    run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let exclusive = network(node, &json!({"rdma": {"netns": "exclusive"}}));
        let pieces = ["rdma.netns is exclusive", "in shared mode", "netns_mode=0"];
        pod.add(&exclusive, "net1").refused(7, &pieces);
        node.status(&exclusive).refused(50, &pieces);
        let rename = network(node, &json!({"rdma": {"rename": "rdma0"}}));
        pod.add(&rename, "net1")
            .refused(2, &["rdma.rename rdma0", "shares its RDMA devices"]);
        assert_same(&before, &node.traces(&[&pod]), "after the refusals");
    });
}

#[test]
fn check_reports_that_the_rdma_device_is_gone_from_the_node() {
    run(|node| {
        node.cable("eth9");
        assert!(
            node.exec("rdma", "link add rxe9 type rxe netdev eth9")
                .status
                .success()
        );
        let pod = node.pod();
        let conf = network(node, &json!({"master": "eth9", "rdma": {"required": true}}));
        pod.attach(&conf, "net1");
        pod.check(&conf, "net1").done();
        assert!(node.exec("rdma", "link del rxe9").status.success());
        soon("rxe9 is gone", || {
            !node.exec("rdma", "dev show rxe9").status.success()
        });
        pod.check(&conf, "net1")
            .refused(104, &["its RDMA device rxe9 is gone from the node"]);
        pod.detach(&conf, "net1");
        node.ip("link del eth9");
    });
}
