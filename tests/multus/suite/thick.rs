// SPDX-License-Identifier: Apache-2.0
//! The thick plugin: a daemon watches pods and networks, and starts rdmanet's plugins below its own root. The runtime
//! calls a shim.

use crate::{explains, macvlan};
use multus::{Daemon, Setup};
use tests::json;

#[test]
fn the_thick_daemon_attaches_pods_like_the_thin_plugin() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        setup.network("rail1", &macvlan("rail1", "10.31.0.0/24"));
        let daemon = Daemon::start(setup);
        let multus = daemon.multus();
        let wanted = json!([
            { "name": "rail0", "interface": "ib0", "ips": ["10.30.0.77/24"], "mac": "02:42:ac:11:00:07" },
            { "name": "rail1" },
        ]);
        let (sandbox, pod) = setup.pod("trainer", &wanted.to_string());
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &pod).result();
        assert_eq!(sandbox.link_names(), ["eth0", "ib0", "net2"]);
        assert_eq!(sandbox.global("ib0"), ["10.30.0.77/24"]);
        assert_eq!(sandbox.link("ib0").address.to_string(), "02:42:ac:11:00:07");
        let status = setup.status(&pod);
        assert_eq!(
            (&status[1]["interface"], &status[2]["interface"]),
            (&json!("ib0"), &json!("net2"))
        );
        multus.del(&sandbox, &pod);
        setup.node.assert_as_before(&before, &[&sandbox], "after DEL");
    });
}

#[test]
fn the_thick_daemon_passes_on_plugin_errors_and_leaves_nothing() {
    Setup::run(|setup| {
        let mut wrong = macvlan("rail0", "10.30.0.0/24");
        wrong["macvlanmode"] = json!("bridge");
        setup.network("wrong", &wrong);
        setup.network("rail1", &macvlan("rail1", "10.31.0.0/24"));
        let daemon = Daemon::start(setup);
        let multus = daemon.multus();
        let (sandbox, pod) = setup.pod("trainer", "rail1,wrong");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus
            .add(&sandbox, &pod)
            .refused(999, &["macvlanmode", "macvlanMode"]);
        assert!(sandbox.link_names().is_empty());
        multus.del(&sandbox, &pod);
        setup
            .node
            .assert_as_before(&before, &[&sandbox], "after the refusal");
    });
}

#[test]
fn rdmanet_explain_finds_our_error_in_the_text_of_the_shim() {
    Setup::run(|setup| {
        let mut elsewhere = macvlan("rail0", "10.30.0.0/24");
        elsewhere["master"] = json!("ens1f0np0");
        setup.network("elsewhere", &elsewhere);
        let daemon = Daemon::start(setup);
        let multus = daemon.multus();
        let (sandbox, pod) = setup.pod("trainer", "elsewhere");
        let answer = multus.add(&sandbox, &pod);
        explains(&answer, 7, "master \"ens1f0np0\" does not exist on this node");
        multus.del(&sandbox, &pod);
    });
}

/// The runtime does not see that a DEL failed, so it does not repeat it. The thin plugin reports the error (`refused.rs`).
#[test]
fn the_shim_reports_a_failed_del_as_success() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let mut misspelt = macvlan("rail1", "10.31.0.0/24");
        misspelt["type"] = json!("cni-ipiob");
        setup.network("misspelt", &misspelt);
        let daemon = Daemon::start(setup);
        let multus = daemon.multus();
        let (sandbox, pod) = setup.pod("wrong", "rail0,misspelt");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        let missing = "failed to find plugin \"cni-ipiob\"";
        multus.add(&sandbox, &pod).refused(999, &["cni-ipiob"]);
        let mark = daemon.log().len();
        multus.del(&sandbox, &pod);
        let said = daemon.log().split_off(mark);
        let failed = |line: &str| line.contains("DEL finished") && line.contains(missing);
        assert!(said.lines().any(failed), "{said}");
        setup.node.assert_as_before(&before, &[&sandbox], "after DEL");
    });
}

#[test]
fn the_thick_daemon_detaches_a_pod_while_the_api_server_is_unreachable() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let daemon = Daemon::start(setup);
        let multus = daemon.multus();
        let (sandbox, pod) = setup.pod("trainer", "rail0");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &pod).result();
        setup.relay.cut();
        multus.del(&sandbox, &pod);
        setup
            .node
            .assert_as_before(&before, &[&sandbox], "without an API server");
    });
}
