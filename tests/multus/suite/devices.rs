// SPDX-License-Identifier: Apache-2.0
//! Networks with the resource of a device plugin. Devices with a PCI address are in the fabric's VM.

use crate::macvlan;
use multus::Site;
use tests::json;
use tests::kubelet::{Allocation, allocated};

const RESOURCE: &str = "rdma/hca_shared";

/// The RDMA shared device plugin counts its slots.
#[test]
fn the_number_of_a_shared_device_names_none_and_the_master_decides() {
    Site::run(|site| {
        let mut conf = macvlan("rail0", "10.30.0.0/24");
        conf["capabilities"]["deviceID"] = json!(true);
        site.network_of(&site.namespace, "rail0", &conf.to_string(), Some(RESOURCE));
        let multus = site.thin();
        let (sandbox, pod) = site.pod("trainer", "rail0");
        allocated(&[Allocation {
            pod: &pod,
            resource: RESOURCE,
            devices: &["17"],
        }]);
        let before = site.node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &pod).result();
        assert_eq!(sandbox.global("net1"), ["10.30.0.2/24"]);
        multus.del(&sandbox, &pod);
        site.node.assert_as_before(&before, &[&sandbox], "after DEL");
    });
}

#[test]
fn a_pod_that_did_not_ask_for_the_resource_is_told_what_is_missing() {
    Site::run(|site| {
        let mut conf = macvlan("rail0", "10.30.0.0/24");
        conf.as_object_mut().unwrap().remove("master");
        conf["capabilities"]["deviceID"] = json!(true);
        site.network_of(&site.namespace, "rail0", &conf.to_string(), Some(RESOURCE));
        let multus = site.thin();
        let (sandbox, pod) = site.pod("trainer", "rail0");
        allocated(&[]);
        let before = site.node.settled_snapshot(&[&sandbox]);
        multus
            .add(&sandbox, &pod)
            .refused(999, &["master", "device plugin"]);
        multus.del(&sandbox, &pod);
        site.node
            .assert_as_before(&before, &[&sandbox], "after the refusal");
    });
}
