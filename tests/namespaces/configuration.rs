// SPDX-License-Identifier: Apache-2.0
//! Network configurations that are not JSON, violate the CNI specification or contain wrong keys: both plugins refuse
//! them before they change anything, and name the place.

use tests::{Node, json, traces::assert_same};

/// Asserts that both plugins refuse ADD with these bytes on standard input.
fn refused(bytes: &[u8], code: u64, pieces: &[&str]) {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        for plugin in ["cni-ipoib", "rdma-ipam"] {
            let conf = node.conf(json!({"type": plugin}));
            for command in ["ADD", "DEL", "CHECK", "GC", "STATUS"] {
                let call = pod.call(command, &conf, "net1").stdin(bytes);
                call.run().refused(code, pieces);
            }
        }
        assert_same(&before, &node.traces(&[&pod]), "after refused configurations");
    });
}

#[test]
fn empty_input_is_refused() {
    refused(b"", 6, &["stdin is empty"]);
    refused(b" \n", 6, &["stdin is empty"]);
}

#[test]
fn ten_mebibytes_of_input_are_refused_without_reading_them_all() {
    refused(&vec![b' '; 10 << 20], 6, &["larger than 4 MiB"]);
    refused(&vec![b'['; 10 << 20], 6, &["larger than 4 MiB"]);
}

#[test]
fn input_that_is_not_json_is_refused_with_line_and_column() {
    refused(
        b"{\"cniVersion\": \"1.1.0\",\n \"name\": }",
        6,
        &["not JSON", "line 2 column 10"],
    );
    refused(b"\xff\xfe\x00", 6, &["not JSON"]);
}

#[test]
fn deeply_nested_json_is_refused_without_a_crash() {
    refused(&vec![b'['; 1 << 20], 6, &["not JSON", "recursion"]);
}

#[test]
fn json_of_the_wrong_shape_is_refused() {
    refused(b"[]", 6, &["a list", "want a JSON object"]);
    refused(b"null", 6, &["null"]);
}

/// DEL accepts what ADD refuses: there is nothing to delete, and a pod whose DEL fails is never removed.
#[test]
fn a_network_with_an_invalid_name_is_refused_except_by_del() {
    Node::run(|node| {
        let pod = node.pod();
        for (bytes, code, piece) in [
            (r#"{"cniVersion": "1.1.0"}"#, 7, "network name"),
            (r#"{"cniVersion": "1.1.0", "name": "../x"}"#, 7, "../x"),
            (r#"{"cniVersion": "1.1.0", "name": ["x"]}"#, 6, "want a text"),
            (r#"{"cniVersion": 1.1}"#, 6, "cniVersion is 1.1"),
        ] {
            for plugin in ["cni-ipoib", "rdma-ipam"] {
                let conf = node.conf(json!({"type": plugin}));
                for command in ["ADD", "CHECK", "GC", "STATUS"] {
                    let call = pod.call(command, &conf, "net1").stdin(bytes);
                    call.run().refused(code, &[piece]);
                }
                pod.call("DEL", &conf, "net1").stdin(bytes).run().done();
            }
        }
    });
}

#[test]
fn a_value_of_a_wrong_type_is_refused_with_its_path() {
    Node::run(|node| {
        let pod = node.pod();
        for (keys, path) in [
            (json!({"mtu": "large"}), "mtu"),
            (json!({"rdma": "exclusive"}), "rdma"),
            (json!({"ipam": "rdma-ipam"}), "ipam"),
            (json!({"runtimeConfig": {"mac": 1}}), "runtimeConfig.mac"),
            (json!({"dns": {"nameservers": "10.0.0.1"}}), "dns.nameservers"),
            (json!({"linkInContainer": "yes"}), "linkInContainer"),
        ] {
            pod.add(&node.conf(keys), "net1").refused(6, &[path]);
        }
        // The type of the value does not decide whether `master` is a text, a list or an object.
        pod.add(&node.conf(json!({"master": 7})), "net1")
            .refused(7, &["master is 7, want a name"]);
        assert!(pod.links().is_empty());
    });
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_key() {
    Node::run(|node| {
        let pod = node.pod();
        for (key, nearest) in [
            ("mastr", "master"),
            ("pkye", "pkey"),
            ("macvlanmode", "macvlanMode"),
        ] {
            let conf = node.conf(json!({})).with(key, "x");
            pod.add(&conf, "net1").refused(7, &[key, nearest]);
        }
        let ipam = json!({"type": "rdma-ipam", "dataDir": node.path("rdma-ipam"), "rnges": []});
        pod.add(&node.conf(json!({"ipam": ipam})), "net1")
            .refused(7, &["ipam.rnges", "ranges"]);
    });
}

#[test]
fn keys_of_cni_and_of_multus_are_accepted() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = node.conf(json!({
            "cniVersions": ["1.0.0", "1.1.0"], "disableCheck": true, "disableGC": true,
            "loadOnlyInlinedPlugins": true, "capabilities": {"mac": true}, "args": {"cni": {"labels": []}},
            "cni.dev/attachments": [], "deviceID": "17", "pciBusID": "17",
        }));
        pod.attach(&conf, "net1");
    });
}

#[test]
fn invalid_values_are_refused_with_the_key_and_a_suggestion() {
    Node::run(|node| {
        let pod = node.pod();
        for (keys, code, pieces) in [
            (json!({"ipMasq": true}), 2, ["ipMasq", "true"]),
            (json!({"mode": "ipoib", "pkey": "8001"}), 7, ["pkey", "0x8001"]),
            (json!({"mode": "ipoib", "pkey": 0}), 7, ["pkey", "0x8000"]),
            (
                json!({"mode": "ipoib", "ipoibMode": "fast"}),
                7,
                ["ipoibMode", "datagram"],
            ),
        ] {
            pod.add(&node.conf(keys), "net1").refused(code, &pieces);
        }
    });
}
