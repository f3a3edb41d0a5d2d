// SPDX-License-Identifier: Apache-2.0
//! Missing or wrong environment variables: the plugin fails with code 4 (3 for a namespace that is gone) and changes
//! nothing.

use tests::{Node, json, traces::assert_same};

#[test]
fn all_missing_variables_are_named_in_one_error() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = node.conf(json!({}));
        let add = pod.call("ADD", &conf, "net1");
        let none = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"];
        for name in none {
            add.clone().env_remove(name).run().refused(4, &[name]);
            add.clone().env(name, "").run().refused(4, &[name]);
        }
        let bare = none.iter().fold(add, |call, name| call.env_remove(name));
        bare.run().refused(4, &none);
        assert!(pod.links().is_empty());
    });
}

#[test]
fn a_missing_or_unknown_command_is_refused_with_the_known_commands() {
    Node::run(|node| {
        for plugin in ["cni-ipoib", "rdma-ipam"] {
            let call = tests::Call::new(&node.plugin(plugin));
            let answer = call.run();
            answer.refused(4, &["CNI_COMMAND", "not set"]);
            assert!(
                answer.stderr.contains(plugin) && answer.stderr.contains("1.1.0"),
                "says what it is: {answer}"
            );
            call.env("CNI_COMMAND", "RESTART")
                .run()
                .refused(4, &["RESTART", "ADD", "STATUS"]);
        }
    });
}

#[test]
fn an_interface_name_that_the_kernel_would_refuse_is_refused_early() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        for (name, piece) in [
            ("sixteen-letters-", "16 bytes"),
            ("net/1", "'/'"),
            ("net:1", "':'"),
            ("net 1", "' '"),
            ("..", "directory"),
            ("net%d", "'%'"),
            ("all", "/proc/sys/net/ipv4/conf/all"),
            ("default", "keeps that name"),
        ] {
            for command in ["ADD", "CHECK"] {
                pod.call(command, &conf, name)
                    .run()
                    .refused(4, &["CNI_IFNAME", name, piece]);
            }
            // No interface with this name can exist, and a pod whose DEL fails is never removed.
            pod.call("DEL", &conf, name).run().done();
        }
        pod.attach(&conf, "fifteen-letters");
        pod.detach(&conf, "fifteen-letters");
        assert_same(&before, &node.traces(&[&pod]), "after refused names");
    });
}

#[test]
fn an_invalid_container_id_is_refused() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = node.conf(json!({}));
        for id in ["../../etc", "a b", "-x", "a@b", &"x".repeat(201)] {
            pod.call("ADD", &conf, "net1")
                .env("CNI_CONTAINERID", id)
                .run()
                .refused(4, &["CNI_CONTAINERID", id]);
        }
    });
}

#[test]
fn an_existing_interface_is_refused_by_name() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = node.conf(json!({}));
        pod.add(&conf, "lo")
            .refused(101, &["the pod already has an interface lo"]);
    });
}

#[test]
fn a_missing_netns_a_plain_file_and_the_host_netns_get_distinct_errors() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let file = node.path("plain");
        std::fs::write(&file, "not a namespace").unwrap();
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        let add = |path: &str| pod.call("ADD", &conf, "net1").env("CNI_NETNS", path).run();
        add("/run/netns/gone").refused(3, &["CNI_NETNS", "/run/netns/gone", "does not exist"]);
        let file = file.to_str().unwrap();
        add(file).refused(4, &["CNI_NETNS", file, "no network namespace"]);
        add("/proc/self/ns/mnt").refused(4, &["/proc/self/ns/mnt", "no network namespace"]);
        add("/proc/self/ns/net").refused(4, &["/proc/self/ns/net", "the host's"]);
        assert_same(&before, &node.traces(&[&pod]), "after refused namespaces");
    });
}

#[test]
fn cni_netns_override_allows_the_netns_of_the_node() {
    Node::run(|node| {
        let pod = node.pod();
        let add = pod
            .call("ADD", &node.conf(json!({})), "net1")
            .env("CNI_NETNS", "/proc/self/ns/net");
        add.env("CNI_NETNS_OVERRIDE", "1").run().result();
        assert!(node.link_names().contains(&"net1".to_owned()));
    });
}

#[test]
fn unknown_cni_args_are_refused_unless_ignore_unknown_is_set() {
    Node::run(|node| {
        let pod = node.pod();
        let add = pod.call("ADD", &node.conf(json!({})), "net1");
        let with = |args: &str| add.clone().env("CNI_ARGS", args).run();
        with("COLOUR=red").refused(4, &["COLOUR", "IgnoreUnknown=1"]);
        with("nonsense").refused(4, &["CNI_ARGS", "nonsense"]);
        with("IgnoreUnknown=1;COLOUR=red;K8S_POD_NAME=p;K8S_POD_NAMESPACE=n").result();
    });
}
