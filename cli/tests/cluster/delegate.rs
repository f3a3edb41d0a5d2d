// SPDX-License-Identifier: Apache-2.0
//! `cni-ipoib` with the real whereabouts as its IPAM plugin.

use crate::import;
use crate::whereabouts::{allocations, reservations, settings};
use apiserver::Relay;
use kube::api::ListParams;
use serde_json::json;
use std::os::unix::fs::symlink;
use tests::{Node, programs};
use tokio::runtime::Runtime;

#[test]
fn whereabouts_allocates_and_releases_the_address_of_an_interface_of_cni_ipoib() {
    let runtime = Runtime::new().unwrap();
    let site = runtime.block_on(import::site());
    Node::run(|node| {
        // The API server listens outside of the node's network namespace.
        let _relay = Relay::start(runtime.handle(), site.server.port());
        symlink(programs::whereabouts(), node.path("bin/whereabouts")).unwrap();
        let ipam = json!({
            "type": "whereabouts", "range": "10.5.0.0/24", "range_start": "10.5.0.10",
            "configuration_path": settings(&site),
        });
        let conf = node.conf(json!({ "mode": "macvlan", "ipam": ipam }));
        let pod = node.pod();
        let call = |verb: &str| {
            let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=one";
            pod.call(verb, &conf, "net1").env("CNI_ARGS", args).run()
        };
        let allocated = || runtime.block_on(allocations(&site, "10.5.0.0-24"));
        let result = call("ADD").result();
        pod.keep(&conf, "net1", &result);
        assert_eq!(result["ips"][0]["address"], "10.5.0.10/24", "{result}");
        assert_eq!(pod.global("net1"), ["10.5.0.10/24"]);
        assert_eq!(allocated(), [("default/one".to_owned(), "10".to_owned())]);
        // whereabouts has no CHECK.
        call("CHECK").refused(103, &["whereabouts: CNI CHECK method is not implemented"]);
        call("DEL").done();
        assert!(pod.links().is_empty());
        assert_eq!(allocated(), []);
        let reserved = runtime.block_on(async { reservations(&site).list(&ListParams::default()).await });
        assert!(reserved.unwrap().items.is_empty());
    });
}
