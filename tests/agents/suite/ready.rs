// SPDX-License-Identifier: Apache-2.0
//! The probes of an agent, on which a rolling update depends.

use agents::Site;
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

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_ready_only_while_it_receives_pools_and_blocks() {
    let site = Site::new().await;
    let (node, proxy) = site.behind_proxy("a", &[]).await;
    for (resource, sentence) in [
        ("/ippools", "ippools.rdmanet.io"),
        ("/ipblocks", "ipblocks.rdmanet.io"),
    ] {
        let refused = refuse(&proxy, resource);
        node.start();
        until("the agent answers probes", async || node.listens().is_some()).await;
        // The agent knows of the refusal by then, and has read its Node.
        until("the probe names what is missing", async || {
            let answer = node.get("/readyz");
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            answer.contains(sentence) && answer.contains("403")
        })
        .await;
        assert!(node.get("/healthz").starts_with("HTTP/1.1 200"));
        refused.store(false, Ordering::SeqCst);
        until("the agent is ready", async || node.is_ready()).await;
        node.stop();
    }
    node.start();
    until("the agent is ready again", async || node.is_ready()).await;
    site.server.kill();
    until("an agent without API server is not ready", async || {
        !node.is_ready()
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
