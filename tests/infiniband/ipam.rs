// SPDX-License-Identifier: Apache-2.0
//! The reference IPAM plugins on InfiniBand.

use crate::fabric::{network, run};
use tests::{json, traces::assert_same};

#[test]
fn host_local_and_static_work_on_infiniband() {
    run(|node| {
        let fixed = json!({"type": "static", "addresses": [{"address": "10.9.0.7/24"}]});
        for (ipam, address) in [
            (node.host_local("10.8.0.0/24"), "10.8.0.2/24"),
            (fixed, "10.9.0.7/24"),
        ] {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let conf = network(node, &json!({"ipam": ipam}));
            pod.attach(&conf, "net1");
            assert_eq!(pod.global("net1"), [address]);
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
            assert_same(&before, &node.traces(&[&pod]), "after DEL");
        }
    });
}
