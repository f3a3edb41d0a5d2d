// SPDX-License-Identifier: Apache-2.0
//! Requests in the JSON form of a pod's annotation.

use crate::macvlan;
use multus::Setup;
use tests::{Value, json};

/// The annotation for one network with these keys.
fn asking(keys: &Value) -> String {
    let mut element = json!({ "name": "rail0", "interface": "ib0" });
    element
        .as_object_mut()
        .unwrap()
        .extend(keys.as_object().unwrap().clone());
    json!([element]).to_string()
}

#[test]
fn a_pod_gets_the_addresses_that_it_requests() {
    Setup::run(|setup| {
        let mut conf = macvlan("rail0", "10.30.0.0/24");
        conf["ipam"]["ranges"] = json!([[{ "subnet": "10.30.0.0/24" }], [{ "subnet": "fd00:30::/64" }]]);
        setup.network("rail0", &conf);
        let wanted = asking(&json!({ "ips": ["10.30.0.77/24", "fd00:30::77/64"] }));
        let (sandbox, pod) = setup.pod("trainer", &wanted);
        setup.thin().add(&sandbox, &pod).result();
        assert_eq!(sandbox.global("ib0"), ["10.30.0.77/24", "fd00:30::77/64"]);
        assert_eq!(setup.status(&pod)[1]["ips"], json!(["10.30.0.77", "fd00:30::77"]));
    });
}

/// Multus passes them in `CNI_ARGS` to every network (`DelegateAdd` of its `pkg/multus/multus.go`).
#[test]
fn a_pod_gets_the_addresses_that_it_requests_without_a_capability_too() {
    Setup::run(|setup| {
        let mut conf = macvlan("rail0", "10.30.0.0/24");
        conf.as_object_mut().unwrap().remove("capabilities");
        setup.network("rail0", &conf);
        let (sandbox, pod) = setup.pod("trainer", &asking(&json!({ "ips": ["10.30.0.77/24"] })));
        setup.thin().add(&sandbox, &pod).result();
        assert_eq!(sandbox.global("ib0"), ["10.30.0.77/24"]);
    });
}

#[test]
fn a_requested_address_in_use_is_refused_with_the_name_of_its_owner() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let multus = setup.thin();
        let wanted = asking(&json!({ "ips": ["10.30.0.77/24"] }));
        let (first, owner) = setup.pod("first", &wanted);
        multus.add(&first, &owner).result();
        let (second, pod) = setup.pod("second", &wanted);
        let before = setup.node.settled_snapshot(&[&second]);
        // Multus returns its own code for every error of a delegate.
        let pieces = ["10.30.0.77", "in use", &first.id];
        multus.add(&second, &pod).refused(999, &pieces);
        multus.del(&second, &pod);
        setup
            .node
            .assert_as_before(&before, &[&second], "after the refusal");
        assert_eq!(first.global("ib0"), ["10.30.0.77/24"]);
    });
}

#[test]
fn a_pod_gets_the_mac_address_that_it_requests() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let wanted = asking(&json!({ "mac": "02:42:ac:11:00:07" }));
        let (sandbox, pod) = setup.pod("trainer", &wanted);
        setup.thin().add(&sandbox, &pod).result();
        assert_eq!(sandbox.link("ib0").address.to_string(), "02:42:ac:11:00:07");
        assert_eq!(setup.status(&pod)[1]["mac"], "02:42:ac:11:00:07");
    });
}

#[test]
fn cni_args_reach_the_plugins() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let wanted = asking(&json!({ "cni-args": { "mac": "02:42:ac:11:00:08", "ips": ["10.30.0.88"] } }));
        let (sandbox, pod) = setup.pod("trainer", &wanted);
        setup.thin().add(&sandbox, &pod).result();
        assert_eq!(sandbox.link("ib0").address.to_string(), "02:42:ac:11:00:08");
        assert_eq!(sandbox.global("ib0"), ["10.30.0.88/24"]);
    });
}

#[test]
fn a_guid_for_an_ethernet_interface_is_refused() {
    Setup::run(|setup| {
        let mut conf = macvlan("rail0", "10.30.0.0/24");
        conf["capabilities"]["infinibandGUID"] = json!(true);
        setup.network("rail0", &conf);
        let multus = setup.thin();
        let wanted = asking(&json!({ "infiniband-guid": "02:00:00:00:00:00:00:21" }));
        let (sandbox, pod) = setup.pod("trainer", &wanted);
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus
            .add(&sandbox, &pod)
            .refused(999, &["infinibandGUID is for mode ipoib"]);
        multus.del(&sandbox, &pod);
        setup
            .node
            .assert_as_before(&before, &[&sandbox], "after the refusal");
    });
}
