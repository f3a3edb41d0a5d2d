// SPDX-License-Identifier: Apache-2.0
//! Wrong networks and wrong annotations: a clear error, and nothing is left.

use crate::macvlan;
use multus::Site;
use tests::{Value, json};

/// A pod with this annotation is refused with every one of `pieces`, and DEL leaves the node as it was.
#[track_caller]
fn refused(site: &Site, wanted: &str, pieces: &[&str]) {
    refused_by(site, &site.thin(), wanted, pieces);
}

#[track_caller]
fn refused_by(site: &Site, multus: &tests::multus::Multus, wanted: &str, pieces: &[&str]) {
    let (sandbox, pod) = site.pod("wrong", wanted);
    let before = site.node.settled_snapshot(&[&sandbox]);
    multus.add(&sandbox, &pod).refused(999, pieces);
    assert!(
        sandbox.link_names().is_empty(),
        "before DEL: {:?}",
        sandbox.link_names()
    );
    multus.del(&sandbox, &pod);
    site.node.assert_as_before(&before, &[&sandbox], wanted);
    site.delete(&pod);
}

/// A network like `rail0` with one key set.
fn with(key: &str, value: Value) -> Value {
    let mut conf = macvlan("rail0", "10.30.0.0/24");
    conf[key] = value;
    conf
}

#[test]
fn a_broken_typeless_or_missing_network_is_refused() {
    Site::run(|site| {
        let own = |name: &str, config: &str| site.network_of(&site.namespace, name, config, None);
        site.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        own("broken", "{ \"type\": \"cni-ipoib\", ");
        refused(site, "rail0,broken", &["unexpected end of JSON input"]);
        own(
            "typeless",
            "{ \"cniVersion\": \"1.1.0\", \"name\": \"typeless\" }",
        );
        refused(site, "rail0,typeless", &["type"]);
        refused(
            site,
            "rail0,nowhere",
            &["cannot find a network-attachment-definition (nowhere)"],
        );
    });
}

/// DEL of such a network fails too, each time until the pod's object is gone; what the other networks have goes all the same.
#[test]
fn a_network_of_a_plugin_that_is_not_installed_is_refused() {
    Site::run(|site| {
        site.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        site.network("misspelt", &with("type", json!("cni-ipiob")));
        let multus = site.thin();
        let (sandbox, pod) = site.pod("wrong", "rail0,misspelt");
        let before = site.node.settled_snapshot(&[&sandbox]);
        let said = ["failed to find plugin", "cni-ipiob"];
        multus.add(&sandbox, &pod).refused(999, &said);
        multus.call("DEL", &sandbox, &pod).run().refused(999, &said);
        site.node.assert_as_before(&before, &[&sandbox], "after DEL");
        site.delete(&pod);
        multus.del(&sandbox, &pod);
    });
}

/// Multus forwards the plugin's message.
#[test]
fn multus_passes_on_the_reason_why_the_plugin_refuses_a_network() {
    Site::run(|site| {
        site.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        site.network("misspelt", &with("macvlanmode", json!("bridge")));
        refused(site, "rail0,misspelt", &["macvlanmode", "macvlanMode"]);
        site.network("elsewhere", &with("master", json!("ens1f0np0")));
        refused(
            site,
            "rail0,elsewhere",
            &["ens1f0np0", "does not exist on this node"],
        );
        site.network("ethernet", &with("mode", json!("ipoib")));
        refused(site, "rail0,ethernet", &["eth0", "Ethernet"]);
        site.network("future", &with("cniVersion", json!("2.0.0")));
        refused(site, "rail0,future", &["2.0.0"]);
        site.network("nameless", &with("name", json!("rail 0")));
        refused(site, "rail0,nameless", &["rail 0"]);
    });
}

#[test]
fn an_invalid_network_annotation_is_refused() {
    Site::run(|site| {
        site.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        refused(
            site,
            "[{\"name\": \"rail0\"",
            &["failed to parse pod Network Attachment Selection Annotation"],
        );
        refused(site, "rail0,Rail_1", &["Rail_1"]);
        refused(
            site,
            "rail0@a-name-that-is-too-long",
            &["a-name-that-is-too-long"],
        );
        let wrong = |keys: Value| {
            let mut element = json!({ "name": "rail0" });
            element
                .as_object_mut()
                .unwrap()
                .extend(keys.as_object().unwrap().clone());
            json!([element]).to_string()
        };
        refused(site, &wrong(json!({ "mac": "02:42" })), &["02:42"]);
        refused(
            site,
            &wrong(json!({ "ips": ["10.30.0.300/24"] })),
            &["10.30.0.300/24"],
        );
        // Multus ignores these; the plugins report them.
        refused(site, &wrong(json!({ "ips": ["10.99.0.7/24"] })), &["10.99.0.7"]);
        refused(
            site,
            &wrong(json!({ "interface": "a/b" })),
            &["interface name contains /"],
        );
        refused(
            site,
            &wrong(json!({ "interface": "name-of-16-bytes" })),
            &["interface name is too long"],
        );
    });
}

#[test]
fn two_networks_with_the_same_interface_name_are_refused() {
    Site::run(|site| {
        site.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        site.network("rail1", &macvlan("rail1", "10.31.0.0/24"));
        refused(site, "rail0@ib0,rail1@ib0", &["ib0 already exists"]);
        refused(site, "rail0@eth0", &["eth0 already exists"]);
    });
}

#[test]
fn multus_namespace_isolation_refuses_a_network_of_another_namespace() {
    Site::run(|site| {
        let other = site.another_namespace();
        site.network_of(
            &other,
            "theirs",
            &macvlan("theirs", "10.30.0.0/24").to_string(),
            None,
        );
        let multus = site.thin().set("namespaceIsolation", json!(true));
        let pieces = ["namespace isolation", other.as_str()];
        refused_by(site, &multus, &format!("{other}/theirs"), &pieces);
    });
}

#[test]
fn add_fails_without_a_trace_while_the_api_server_is_unreachable() {
    Site::run(|site| {
        site.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let (sandbox, pod) = site.pod("trainer", "rail0");
        let multus = site.thin();
        let before = site.node.settled_snapshot(&[&sandbox]);
        site.relay.cut();
        multus
            .call("ADD", &sandbox, &pod)
            .run()
            .refused(999, &["error waiting for pod"]);
        site.node
            .assert_as_before(&before, &[&sandbox], "after the refusal");
        site.relay.mend();
        multus.add(&sandbox, &pod).result();
        assert_eq!(sandbox.link_names(), ["eth0", "net1"]);
    });
}
