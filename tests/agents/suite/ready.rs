// SPDX-License-Identifier: Apache-2.0
//! The probes of an agent, on which a rolling update depends.

use agents::{Member, Site};
use apiserver::install::until;
use apiserver::{Fault, Proxy};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tests::programs::program;

/// Refuses requests for `resource` from now on, as if the agent lacked the right, until the flag is cleared.
fn refuse(proxy: &Proxy, resource: &'static str) -> Arc<AtomicBool> {
    let refused = Arc::new(AtomicBool::new(true));
    let flag = refused.clone();
    proxy.decide(move |_, path| {
        if path.ends_with(resource) && flag.load(Ordering::SeqCst) {
            Fault::Status(403)
        } else {
            Fault::None
        }
    });
    refused
}

/// The number of times that the agent has started to listen.
fn listened(node: &Member) -> usize {
    node.log().matches("the agent listens").count()
}

fn is_ready(node: &Member) -> bool {
    node.listens().is_some() && node.get("/readyz").starts_with("HTTP/1.1 200")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_ready_only_while_it_receives_pools_and_blocks() {
    let site = Site::new().await;
    let proxy = Proxy::start(&site.server).await;
    let node = Member::new(&site.server, "a", &[]).await;
    node.go_through(&proxy, &site.server);
    for (resource, sentence) in [
        ("/ippools", "ippools.rdmanet.io"),
        ("/ipblocks", "ipblocks.rdmanet.io"),
    ] {
        let refused = refuse(&proxy, resource);
        let starts = listened(&node) + 1;
        node.start();
        until("the agent answers probes", async || listened(&node) == starts).await;
        // The agent knows of the refusal by then, and has read its Node.
        until("the probe names what is missing", async || {
            let answer = node.get("/readyz");
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            answer.contains(sentence) && answer.contains("403")
        })
        .await;
        assert!(node.get("/healthz").starts_with("HTTP/1.1 200"));
        refused.store(false, Ordering::SeqCst);
        until("the agent is ready", async || is_ready(&node)).await;
        node.stop();
    }
    let starts = listened(&node) + 1;
    node.start();
    until("the agent answers probes", async || listened(&node) == starts).await;
    until("the agent is ready again", async || is_ready(&node)).await;
    site.server.kill();
    until("an agent without API server is not ready", async || {
        !is_ready(&node)
    })
    .await;
    let answer = node.get("/readyz");
    assert!(answer.contains("has failed to read"), "{answer}");
    site.server.start_again();
}

#[test]
fn a_pause_of_zero_between_rounds_is_refused() {
    for flag in ["--reconcile-interval", "--report-interval"] {
        let output = Command::new(program("rdmanet-agent"))
            .args(["--node", "a", flag, "0s"])
            .output()
            .unwrap();
        let sentence = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && sentence.contains("the shortest is 10ms"),
            "{sentence}"
        );
    }
}
