// SPDX-License-Identifier: Apache-2.0
//! The driver of the HCAs is reloaded while pods are attached, as an upgrade of `MLNX_OFED` does (`docs/ofed.md`). The
//! kernel then deletes the children in every namespace.

use crate::fabric::{network, reload_driver, run_accelerated};
use tests::json;

#[test]
fn after_a_driver_reload_check_reports_the_loss_and_del_releases_the_address() {
    for hcas in ["", "all"] {
        run_accelerated(hcas, |node| {
            let before = node.leases();
            let (old, collected, new) = (node.pod(), node.pod(), node.pod());
            let conf = network(node, &json!({}));
            old.attach(&conf, "net1");
            let files = node.leases().len() - before.len();
            collected.attach(&conf, "net1");
            reload_driver(node, hcas);
            for pod in [&old, &collected] {
                assert!(pod.links().is_empty(), "the kernel deletes the child");
            }
            old.check(&conf, "net1")
                .refused(104, &["net1 is not as ADD left it", "it is gone"]);
            new.attach(&conf, "net1");
            new.check(&conf, "net1").done();
            assert_eq!(node.leases().len(), before.len() + 3 * files, "three addresses");
            let valid = [&old, &new].map(|pod| (pod.id.as_str(), "net1"));
            node.gc(&conf, &valid).done();
            assert_eq!(node.leases().len(), before.len() + 2 * files, "GC releases one");
            old.detach(&conf, "net1");
            new.check(&conf, "net1").done();
            new.detach(&conf, "net1");
            assert_eq!(node.leases(), before);
        });
    }
}
