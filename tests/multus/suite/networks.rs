// SPDX-License-Identifier: Apache-2.0
//! The networks of a pod, and their network status.

use crate::{default_routes, macvlan};
use multus::Setup;
use tests::json;

#[test]
fn a_pod_gets_every_network_of_its_annotation_under_the_requested_names() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        setup.network("rail1", &macvlan("rail1", "10.31.0.0/24"));
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("trainer", "rail0,rail1@ib1,rail0");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        let result = multus.add(&sandbox, &pod).result();
        assert_eq!(
            result["ips"][0]["address"], "10.244.0.2/24",
            "the result contains the cluster's own network"
        );
        assert_eq!(sandbox.link_names(), ["eth0", "ib1", "net1", "net3"]);
        assert_eq!(sandbox.global("net1"), ["10.30.0.2/24"]);
        assert_eq!(sandbox.global("ib1"), ["10.31.0.2/24"]);
        assert_eq!(sandbox.global("net3"), ["10.30.0.3/24"]);
        multus.del(&sandbox, &pod);
        setup.node.assert_as_before(&before, &[&sandbox], "after DEL");
    });
}

#[test]
fn the_network_status_lists_name_interface_addresses_mac_and_mtu() {
    Setup::run(|setup| {
        setup.node.ip("link set eth0 mtu 9000");
        let mut large = macvlan("rail0", "10.30.0.0/24");
        large["mtu"] = json!(4200);
        setup.network("rail0", &large);
        let (sandbox, pod) = setup.pod("trainer", "rail0@ib0");
        setup.thin().add(&sandbox, &pod).result();
        let status = setup.status(&pod);
        assert_eq!(status.len(), 2, "{status:?}");
        assert_eq!(
            (&status[0]["name"], &status[0]["default"]),
            (&json!("cluster"), &json!(true))
        );
        let expected = json!({
            "name": format!("{}/rail0", setup.namespace), "interface": "ib0", "ips": ["10.30.0.2"],
            "mac": sandbox.link("ib0").address.to_string(), "mtu": 4200, "dns": {},
        });
        assert_eq!(status[1], expected);
        assert_eq!(sandbox.link("ib0").mtu, 4200);
    });
}

#[test]
fn the_json_annotation_can_name_a_network_of_another_namespace() {
    Setup::run(|setup| {
        let other = setup.another_namespace();
        let conf = macvlan("shared", "10.30.0.0/24").to_string();
        setup.network_of(&other, "shared", &conf, None);
        let wanted = json!([{ "name": "shared", "namespace": other, "interface": "ib0" }]);
        let (sandbox, pod) = setup.pod("trainer", &wanted.to_string());
        setup.thin().add(&sandbox, &pod).result();
        assert_eq!(sandbox.global("ib0"), ["10.30.0.2/24"]);
        assert_eq!(setup.status(&pod)[1]["name"], format!("{other}/shared"));
    });
}

#[test]
fn a_chain_of_plugins_works_like_a_single_plugin() {
    Setup::run(|setup| {
        let mut first = macvlan("rail0", "10.30.0.0/24");
        first
            .as_object_mut()
            .unwrap()
            .retain(|key, _| key != "name" && key != "cniVersion");
        let tuning = json!({ "type": "tuning", "sysctl": { "net.ipv4.conf.IFNAME.arp_filter": "1" } });
        let list = json!({ "cniVersion": "1.1.0", "name": "rail0", "plugins": [first, tuning] });
        setup.network("rail0", &list);
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("trainer", "rail0");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &pod).result();
        assert_eq!(sandbox.global("net1"), ["10.30.0.2/24"]);
        assert_eq!(sandbox.sysctl("ipv4/conf/net1/arp_filter"), "1");
        assert_eq!(setup.status(&pod)[1]["ips"], json!(["10.30.0.2"]));
        multus.del(&sandbox, &pod);
        setup.node.assert_as_before(&before, &[&sandbox], "after DEL");
    });
}

#[test]
fn a_network_with_a_gateway_leaves_the_pods_default_route_alone() {
    Setup::run(|setup| {
        let mut conf = macvlan("rail0", "10.30.0.0/24");
        conf["ipam"]["ranges"][0][0]["gateway"] = json!("10.30.0.1");
        setup.network("rail0", &conf);
        let (sandbox, pod) = setup.pod("trainer", "rail0");
        setup.thin().add(&sandbox, &pod).result();
        assert_eq!(default_routes(&sandbox), ["default via 10.244.0.1 dev eth0"]);
        assert_eq!(setup.status(&pod)[1].get("gateway"), None);
    });
}

#[test]
fn the_plugin_supports_every_cni_version_that_multus_is_configured_with() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        for (number, version) in ["0.3.1", "0.4.0", "1.0.0"].into_iter().enumerate() {
            let mut old = macvlan("old", "10.31.0.0/24");
            old["cniVersion"] = json!(version);
            let name = format!("old-{number}");
            setup.network(&name, &old);
            let multus = setup.thin().set("cniVersion", json!(version));
            let (sandbox, pod) = setup.pod(&format!("pod-{number}"), &format!("rail0,{name}"));
            let before = setup.node.settled_snapshot(&[&sandbox]);
            multus.add(&sandbox, &pod).result();
            assert_eq!(
                setup.status(&pod)[2]["ips"],
                json!([format!("10.31.0.{}", number + 2)]),
                "{version}"
            );
            multus.del(&sandbox, &pod);
            setup.node.assert_as_before(&before, &[&sandbox], version);
        }
    });
}
