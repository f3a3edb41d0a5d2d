// SPDX-License-Identifier: Apache-2.0
//! IPAM plugins that are missing, fail, print garbage or hang: the error names the plugin, and nothing remains.

use tests::{Node, json, traces::assert_same};

/// Asserts that ADD with the IPAM plugin `script` is refused with `code` and `pieces`, and leaves nothing.
fn refused(script: &str, code: u64, pieces: &[&str]) {
    Node::run(|node| {
        node.install_script("scripted", script);
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"ipam": {"type": "scripted"}}));
        pod.add(&conf, "net1")
            .refused(code, &[&["scripted"], pieces].concat());
        assert_same(&before, &node.traces(&[&pod]), "after a failed ADD");
    });
}

#[test]
fn a_missing_ipam_plugin_is_named_with_the_searched_path() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"ipam": {"type": "absent-ipam"}}));
        let directory = node.path("bin").display().to_string();
        pod.add(&conf, "net1")
            .refused(103, &["absent-ipam", &directory, "install it"]);
        assert_same(&before, &node.traces(&[&pod]), "after a failed ADD");
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[&pod]), "after DEL of what ADD refused");
    });
}

#[test]
fn del_fails_and_keeps_the_attachment_while_the_ipam_plugin_is_missing() {
    Node::run(|node| {
        let answer = r#"{"cniVersion":"1.1.0","ips":[{"address":"10.7.0.5/24"}]}"#;
        let script = format!("[ $CNI_COMMAND = DEL ] || echo '{answer}'");
        node.install_script("scripted", &script);
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"ipam": {"type": "scripted"}}));
        pod.attach(&conf, "net1");
        let del = pod.call("DEL", &conf, "net1");
        std::fs::remove_file(node.path("bin/scripted")).unwrap();
        del.run().refused(103, &["scripted", "install it"]);
        assert_eq!(
            node.traces(&[&pod]).attachments.len(),
            1,
            "the attachment stays recorded"
        );
        node.install_script("scripted", &script);
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[&pod]), "after DEL");
    });
}

#[test]
fn an_ipam_type_that_is_a_path_is_refused() {
    Node::run(|node| {
        for plugin in ["../bin/sh", "/bin/sh", ".."] {
            let conf = node.conf(json!({"ipam": {"type": plugin}}));
            node.pod().add(&conf, "net1").refused(7, &["ipam.type", plugin]);
        }
    });
}

#[test]
fn the_ipam_plugins_code_and_message_reach_the_runtime() {
    refused(
        r#"[ $CNI_COMMAND = DEL ] || { echo '{"code":133,"msg":"no address left","details":"pool 7"}'; exit 1; }"#,
        103,
        &[
            "no address left (code 133 of scripted)",
            "pool 7",
            "rdmanet error 103",
        ],
    );
}

/// The dhcp plugin looks for the interface during its ADD. Its DEL fails without its daemon.
#[test]
fn dhcp_is_refused_before_any_change_and_del_succeeds() {
    Node::run(|node| {
        node.install_script("dhcp", "touch \"$RDMANET_STATE.dhcp-was-called\"; exit 1");
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"ipam": {"type": "dhcp"}}));
        pod.add(&conf, "net1")
            .refused(2, &["ipam.type dhcp", "before the interface exists"]);
        pod.detach(&conf, "net1");
        assert!(!node.path("state.dhcp-was-called").exists());
        assert_same(&before, &node.traces(&[&pod]), "after DEL of what ADD refused");
    });
}

#[test]
fn a_silently_failing_ipam_plugin_is_reported_with_its_exit_status() {
    refused(
        "[ $CNI_COMMAND = DEL ] || exit 3",
        103,
        &["ADD", "exit status: 3", "without a CNI error"],
    );
}

#[test]
fn an_ipam_plugin_killed_by_a_signal_is_reported_with_the_signal() {
    refused("[ $CNI_COMMAND = DEL ] || kill -9 $$", 103, &["ADD", "signal: 9"]);
}

#[test]
fn garbage_from_an_ipam_plugin_is_refused_and_shown() {
    refused(
        "[ $CNI_COMMAND = DEL ] || echo 'panic: runtime error'",
        103,
        &["no CNI result", "panic: runtime error"],
    );
    refused(
        "[ $CNI_COMMAND = DEL ] || echo '[1,2]'",
        103,
        &["no CNI result", "[1,2]"],
    );
}

#[test]
fn an_ipam_result_without_an_address_is_refused() {
    refused(
        "[ $CNI_COMMAND = DEL ] || echo '{\"cniVersion\":\"1.1.0\"}'",
        103,
        &["without an address"],
    );
}

#[test]
fn endless_output_of_an_ipam_plugin_is_cut_off() {
    refused(
        "[ $CNI_COMMAND = DEL ] || while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done",
        103,
        &["ADD"],
    );
}

#[test]
fn a_hanging_ipam_plugin_is_killed_with_its_children_at_the_time_limit() {
    Node::run(|node| {
        let over = node.path("over").display().to_string();
        let script =
            format!("[ $CNI_COMMAND = DEL ] || {{ {{ sleep 600; : >{over}; }} & sleep 600; : >{over}; }}");
        node.install_script("scripted", &script);
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"ipam": {"type": "scripted"}, "delegateTimeout": 10}));
        let why = ["scripted", "did not end within 10s", "killed"];
        pod.add(&conf, "net1").refused(103, &why);
        assert!(!std::fs::exists(over).unwrap(), "ADD waited for the plugin");
        assert_same(&before, &node.traces(&[&pod]), "after a failed ADD");
    });
}

#[test]
fn an_ipam_plugin_that_times_out_in_add_gets_a_del() {
    Node::run(|node| {
        let calls = node.path("told");
        let script = format!(
            "echo $CNI_COMMAND >>{}; [ $CNI_COMMAND = DEL ] || sleep 600",
            calls.display()
        );
        node.install_script("scripted", &script);
        let conf = node.conf(json!({"ipam": {"type": "scripted"}, "delegateTimeout": 10}));
        node.pod().add(&conf, "net1").refused(103, &["did not end"]);
        assert_eq!(std::fs::read_to_string(calls).unwrap(), "ADD\nDEL\n");
    });
}

#[test]
fn del_keeps_the_attachment_record_until_the_ipam_plugin_can_release() {
    Node::run(|node| {
        let answer = r#"{"cniVersion":"1.1.0","ips":[{"address":"10.7.0.5/24"}]}"#;
        let broken = format!(
            "[ $CNI_COMMAND = ADD ] && echo '{answer}' || {{ echo '{{\"code\":11,\"msg\":\"database away\"}}'; exit 1; }}"
        );
        node.install_script("scripted", &broken);
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"ipam": {"type": "scripted"}}));
        pod.attach(&conf, "net1");
        let del = pod.call("DEL", &conf, "net1");
        del.run().refused(11, &["scripted", "database away"]);
        assert!(
            pod.links().is_empty(),
            "no living link has the address that is to be released"
        );
        assert_eq!(node.traces(&[&pod]).attachments.len(), 1);
        node.install_script("scripted", "exit 0");
        del.run().done();
        assert_same(&before, &node.traces(&[&pod]), "after the second DEL");
    });
}

#[test]
fn the_ipam_plugin_gets_the_same_environment_and_one_added_config_key() {
    Node::run(|node| {
        let seen = node.path("seen");
        let script = format!(
            "[ $CNI_COMMAND = ADD ] || exit 0\n{{ env | grep ^CNI_ | sort; cat; }} >{}\necho '{{\"cniVersion\":\"1.1.0\",\"ips\":[{{\"address\":\"10.7.0.5/24\"}}]}}'",
            seen.display()
        );
        node.install_script("scripted", &script);
        let conf = node.conf(json!({
            "ipam": {"type": "scripted", "own": [1, 2]}, "runtimeConfig": {"ips": ["10.7.0.5"]},
        }));
        let pod = node.pod();
        pod.call("ADD", &conf, "net1")
            .env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=p")
            .run()
            .result();
        let text = std::fs::read_to_string(seen).unwrap();
        let (env, stdin) = text.split_at(text.find('{').unwrap());
        for line in [
            "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=p",
            &format!("CNI_CONTAINERID={}", pod.id),
            "CNI_IFNAME=net1",
            &format!("CNI_NETNS={}", pod.netns.display()),
        ] {
            assert!(env.lines().any(|l| l == line), "{line} is not in {env}");
        }
        let stdin: tests::Value = serde_json::from_str(stdin).unwrap();
        let mut wanted = conf.to_value();
        wanted["rdmanet.io/probes"] = json!(true);
        assert_eq!(stdin, wanted);
    });
}
