// SPDX-License-Identifier: Apache-2.0
//! Wrong networks and wrong annotations: the runtime gets a clear error, and nothing remains.

use crate::{explains, macvlan};
use multus::Setup;
use tests::{Value, json};

/// Asserts that Multus refuses a pod with this annotation and names every one of `pieces`, and that DEL restores the
/// node.
#[track_caller]
fn refused(setup: &Setup, wanted: &str, pieces: &[&str]) {
    refused_by(setup, &setup.thin(), wanted, pieces);
}

#[track_caller]
fn refused_by(setup: &Setup, multus: &tests::multus::Multus, wanted: &str, pieces: &[&str]) {
    let (sandbox, pod) = setup.pod("wrong", wanted);
    let before = setup.node.settled_snapshot(&[&sandbox]);
    multus.add(&sandbox, &pod).refused(999, pieces);
    assert!(
        sandbox.link_names().is_empty(),
        "before DEL: {:?}",
        sandbox.link_names()
    );
    multus.del(&sandbox, &pod);
    setup.node.assert_as_before(&before, &[&sandbox], wanted);
    setup.delete(&pod);
}

/// A network like `rail0` with one key set.
fn with(key: &str, value: Value) -> Value {
    let mut conf = macvlan("rail0", "10.30.0.0/24");
    conf[key] = value;
    conf
}

#[test]
fn a_broken_typeless_or_missing_network_is_refused() {
    Setup::run(|setup| {
        let own = |name: &str, config: &str| setup.network_of(&setup.namespace, name, config, None);
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        own("broken", "{ \"type\": \"cni-ipoib\", ");
        refused(setup, "rail0,broken", &["unexpected end of JSON input"]);
        own(
            "typeless",
            "{ \"cniVersion\": \"1.1.0\", \"name\": \"typeless\" }",
        );
        refused(setup, "rail0,typeless", &["type"]);
        refused(
            setup,
            "rail0,nowhere",
            &["cannot find a network-attachment-definition (nowhere)"],
        );
    });
}

/// DEL of such a network fails too, until the pod's object is gone. Multus deletes the other networks of the pod
/// nevertheless.
#[test]
fn a_network_of_a_plugin_that_is_not_installed_is_refused() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        setup.network("misspelt", &with("type", json!("cni-ipiob")));
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("wrong", "rail0,misspelt");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        let pieces = ["failed to find plugin", "cni-ipiob"];
        multus.add(&sandbox, &pod).refused(999, &pieces);
        multus.call("DEL", &sandbox, &pod).run().refused(999, &pieces);
        setup.node.assert_as_before(&before, &[&sandbox], "after DEL");
        setup.delete(&pod);
        multus.del(&sandbox, &pod);
    });
}

/// Multus forwards the plugin's message.
#[test]
fn multus_passes_on_the_reason_why_the_plugin_refuses_a_network() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        setup.network("misspelt", &with("macvlanmode", json!("bridge")));
        refused(setup, "rail0,misspelt", &["macvlanmode", "macvlanMode"]);
        setup.network("elsewhere", &with("master", json!("ens1f0np0")));
        refused(
            setup,
            "rail0,elsewhere",
            &["ens1f0np0", "does not exist on this node"],
        );
        setup.network("ethernet", &with("mode", json!("ipoib")));
        refused(setup, "rail0,ethernet", &["eth0", "Ethernet"]);
        setup.network("future", &with("cniVersion", json!("2.0.0")));
        refused(setup, "rail0,future", &["2.0.0"]);
        setup.network("nameless", &with("name", json!("rail 0")));
        refused(setup, "rail0,nameless", &["rail 0"]);
    });
}

#[test]
fn rdmanet_explain_finds_our_error_in_the_text_of_multus() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        setup.network("elsewhere", &with("master", json!("ens1f0np0")));
        let (sandbox, pod) = setup.pod("wrong", "rail0,elsewhere");
        let multus = setup.thin();
        let answer = multus.add(&sandbox, &pod);
        explains(&answer, 7, "master \"ens1f0np0\" does not exist on this node");
        multus.del(&sandbox, &pod);
        // Of the IPAM plugin, to which cni-ipoib delegates.
        let elsewhere = json!([{ "name": "rail0", "ips": ["10.99.0.7/24"] }]);
        let (sandbox, pod) = setup.pod("astray", &elsewhere.to_string());
        let answer = multus.add(&sandbox, &pod);
        explains(&answer, 112, "rdma-ipam: network rail0: address 10.99.0.7");
        multus.del(&sandbox, &pod);
    });
}

#[test]
fn an_invalid_network_annotation_is_refused() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        refused(
            setup,
            "[{\"name\": \"rail0\"",
            &["failed to parse pod Network Attachment Selection Annotation"],
        );
        refused(setup, "rail0,Rail_1", &["Rail_1"]);
        refused(
            setup,
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
        refused(setup, &wrong(json!({ "mac": "02:42" })), &["02:42"]);
        refused(
            setup,
            &wrong(json!({ "ips": ["10.30.0.300/24"] })),
            &["10.30.0.300/24"],
        );
        // Multus ignores these; the plugins report them.
        refused(setup, &wrong(json!({ "ips": ["10.99.0.7/24"] })), &["10.99.0.7"]);
        refused(
            setup,
            &wrong(json!({ "interface": "a/b" })),
            &["interface name contains /"],
        );
        refused(
            setup,
            &wrong(json!({ "interface": "name-of-16-bytes" })),
            &["interface name is too long"],
        );
    });
}

#[test]
fn two_networks_with_the_same_interface_name_are_refused() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        setup.network("rail1", &macvlan("rail1", "10.31.0.0/24"));
        refused(setup, "rail0@ib0,rail1@ib0", &["ib0 already exists"]);
        refused(setup, "rail0@eth0", &["eth0 already exists"]);
    });
}

#[test]
fn multus_namespace_isolation_refuses_a_network_of_another_namespace() {
    Setup::run(|setup| {
        let other = setup.another_namespace();
        setup.network_of(
            &other,
            "theirs",
            &macvlan("theirs", "10.30.0.0/24").to_string(),
            None,
        );
        let multus = setup.thin().set("namespaceIsolation", json!(true));
        let pieces = ["namespace isolation", other.as_str()];
        refused_by(setup, &multus, &format!("{other}/theirs"), &pieces);
    });
}

#[test]
fn add_fails_without_a_trace_while_the_api_server_is_unreachable() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let (sandbox, pod) = setup.pod("trainer", "rail0");
        let multus = setup.thin();
        let before = setup.node.settled_snapshot(&[&sandbox]);
        setup.relay.cut();
        multus
            .call("ADD", &sandbox, &pod)
            .run()
            .refused(999, &["error waiting for pod"]);
        setup
            .node
            .assert_as_before(&before, &[&sandbox], "after the refusal");
        setup.relay.mend();
        multus.add(&sandbox, &pod).result();
        assert_eq!(sandbox.link_names(), ["eth0", "net1"]);
    });
}
