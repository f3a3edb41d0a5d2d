// SPDX-License-Identifier: Apache-2.0
//! Every verb in every version of the specification, and the format of its result.

use common::cni::Version;
use tests::{Node, Value, json};

fn every_version(test: impl Fn(&Node, Version) + Send + Sync) {
    Node::run(|node| Version::ALL.into_iter().for_each(|version| test(node, version)));
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn add_returns_the_result_format_of_the_requested_version() {
    every_version(|node, version| {
        let pod = node.pod();
        let conf = node
            .conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24"), "dns": {"nameservers": ["10.7.0.53"]}}))
            .version(version.as_str());
        let result = pod.attach(&conf, "net1");
        assert_eq!(result["cniVersion"], version.as_str());
        assert_eq!(result["dns"]["nameservers"], json!(["10.7.0.53"]));
        let address = pod.global("net1").remove(0);
        if version <= Version::V0_2_0 {
            assert_eq!(keys(&result), ["cniVersion", "dns", "ip4"], "{version}");
            assert_eq!(result["ip4"]["ip"], json!(address));
        } else {
            assert_eq!(
                keys(&result),
                ["cniVersion", "dns", "interfaces", "ips"],
                "{version}"
            );
            modern_shape(&result, version, &address);
            let link = pod.link("net1");
            let interface = &result["interfaces"][0];
            assert_eq!(interface["name"], "net1");
            assert_eq!(interface["mac"], link.address.to_string());
            assert_eq!(interface["sandbox"], pod.netns.display().to_string());
        }
        pod.detach(&conf, "net1");
    });
}

fn modern_shape(result: &Value, version: Version, address: &str) {
    let interface = &result["interfaces"][0];
    let ip = &result["ips"][0];
    assert_eq!(ip["address"], address);
    assert_eq!(ip["interface"], 0);
    let family = (version <= Version::V0_4_0).then(|| json!("4"));
    assert_eq!(ip.get("version"), family.as_ref(), "{version}");
    let mtu = (version == Version::V1_1_0).then(|| json!(1500));
    assert_eq!(interface.get("mtu"), mtu.as_ref(), "{version}");
}

#[test]
fn check_exists_since_0_4_0() {
    every_version(|node, version| {
        let pod = node.pod();
        let conf = node
            .conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}))
            .version(version.as_str());
        pod.attach(&conf, "net1");
        let answer = pod.check(&conf, "net1");
        if version >= Version::V0_4_0 {
            answer.done();
        } else {
            answer.refused(1, &["CHECK", version.as_str(), "0.4.0"]);
        }
    });
}

#[test]
fn gc_and_status_exist_since_1_1_0() {
    every_version(|node, version| {
        let conf = node.conf(json!({})).version(version.as_str());
        let (gc, status) = (node.gc(&conf, &[]), node.status(&conf));
        if version >= Version::V1_1_0 {
            gc.done();
            status.done();
        } else {
            gc.refused(1, &["GC", "1.1.0"]);
            status.refused(1, &["STATUS", "1.1.0"]);
        }
    });
}

#[test]
fn del_succeeds_in_every_version() {
    every_version(|node, version| {
        let pod = node.pod();
        let conf = node
            .conf(json!({"ipam": node.host_local("10.7.0.0/24")}))
            .version(version.as_str());
        pod.attach(&conf, "net1");
        pod.detach(&conf, "net1");
        assert!(pod.links().is_empty());
        assert!(node.leases().is_empty());
    });
}

#[test]
fn version_needs_no_input_and_lists_all_versions() {
    Node::run(|node| {
        for plugin in ["cni-ipoib", "rdma-ipam"] {
            let call = tests::Call::new(&node.plugin(plugin)).env("CNI_COMMAND", "VERSION");
            let answer = call.clone().stdin(r#"{"cniVersion":"0.4.0"}"#).run().result();
            assert_eq!(answer["cniVersion"], "0.4.0");
            assert_eq!(answer["supportedVersions"], json!(Version::all_str()));
            assert_eq!(call.run().result()["cniVersion"], "1.1.0", "without input");
        }
    });
}

#[test]
fn an_unknown_version_is_refused_by_every_verb_but_version_and_del() {
    Node::run(|node| {
        let pod = node.pod();
        for version in ["1.2.0", "1.0", "latest"] {
            let conf = node.conf(json!({})).version(version);
            for command in ["ADD", "CHECK"] {
                pod.call(command, &conf, "net1")
                    .run()
                    .refused(1, &[version, "0.4.0", "1.1.0"]);
            }
            pod.call("DEL", &conf, "net1").run().done();
            for command in ["GC", "STATUS"] {
                node.call(command, &conf).run().refused(1, &[version]);
            }
        }
    });
}
