// SPDX-License-Identifier: Apache-2.0
//! What the agent reports to the cluster when cables are pulled: the real `IPoIB` links and a bond of them.
//!
//! The API server runs on the host. `cargo test -p multus --test fabric` starts the API server and this suite, and
//! checks the Node and its Events afterwards.

use crate::bond::bonded;
use crate::fabric::{cable, run};
use std::process::Command;
use std::time::Duration;
use tests::{Daemon, Node, Value, daemon, within};

const LISTEN: &str = "127.0.0.1:9471";

/// If the first report of an agent times out, the agent waits up to half a minute before the next.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The agent of this machine, with a kubeconfig from the host.
struct Agent(Daemon);

impl Agent {
    fn start(node: &Node) -> Self {
        let agent = Daemon::new("the agent", &node.path("agent.log"));
        // `cargo test -p multus --test fabric` puts it into the VM.
        let mut command = Command::new("/opt/cni/bin/rdmanet-agent");
        command
            .env("KUBECONFIG", "/kube/agent")
            .args(["--node", "node-1", "--listen", LISTEN, "--report-interval", "1s"])
            .arg("--data-dir")
            .arg(node.path("rdma-ipam"))
            .arg("--socket")
            .arg(node.path("agent.sock"));
        agent.spawn(&mut command);
        Self(agent)
    }

    /// The status, reason and message of the last condition that the agent wrote to the Node, from its log.
    fn last_condition(&self) -> Option<[String; 3]> {
        let log = self.0.log();
        let lines = log.lines().rev();
        let mut lines = lines.filter_map(|line| line.parse::<Value>().ok());
        let last =
            lines.find(|line| line["condition"] == "rdmanet.io/LinksReady" && line["level"] == "INFO")?;
        Some(["status", "reason", "text"].map(|key| last[key].as_str().unwrap_or_default().to_owned()))
    }

    #[track_caller]
    fn expect_condition(&self, status: &str, reason: &str, message: &str) {
        let wanted = [status, reason, message].map(str::to_owned);
        within(TIMEOUT, &format!("{wanted:?}"), || {
            let last_condition = self.last_condition();
            last_condition.as_ref() == Some(&wanted)
        });
    }

    /// The metrics that the agent serves.
    fn metrics() -> String {
        daemon::get(LISTEN, "/metrics")
    }
}

#[test]
#[ignore = "started by the suite `fabric` of tests/multus"]
fn a_node_condition_reports_a_pulled_cable_and_a_bond_failover() {
    run(|node| {
        let agent = Agent::start(node);
        agent.expect_condition("True", "LinksUp", "carrier on ib0, ib1, ib2");
        cable(2, false);
        let lost = "ib2 has no carrier: softib2 port 1 is down: check cable and switch port";
        agent.expect_condition("False", "LinkDown", lost);
        assert!(Agent::metrics().contains("rdmanet_link_up{link=\"ib2\"} 0"));
        cable(2, true);
        agent.expect_condition("True", "LinksUp", "carrier on ib0, ib1, ib2");
        bonded(node, || {
            agent.expect_condition("True", "LinksUp", "carrier on ib2, bond0 over ib0");
            cable(0, false);
            let degraded =
                "bond bond0 over ib1 runs without ib0 (softib0 port 1 is down: check cable and switch port)";
            agent.expect_condition("True", "BondDegraded", degraded);
            cable(1, false);
            let dead = "bond0 has no carrier on any of its ports: ib0 (softib0 port 1 is down: check cable and switch port), ib1 (softib1 port 1 is down: check cable and switch port)";
            agent.expect_condition("False", "LinkDown", dead);
            cable(1, true);
            agent.expect_condition("True", "BondDegraded", degraded);
            cable(0, true);
            agent.expect_condition("True", "LinksUp", "carrier on ib2, bond0 over ib1");
        });
        agent.expect_condition("True", "LinksUp", "carrier on ib0, ib1, ib2");
        let expected = "rdmanet_link_expected{link=\"ib1\"}";
        assert!(Agent::metrics().contains(expected));
        node.ip("link set ib1 down");
        agent.expect_condition("True", "LinksUp", "carrier on ib0, ib2");
        assert!(!Agent::metrics().contains(expected));
        node.ip("link set ib1 up");
        agent.expect_condition("True", "LinksUp", "carrier on ib0, ib1, ib2");
    });
}
