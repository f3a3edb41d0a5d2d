// SPDX-License-Identifier: Apache-2.0
//! The probes of agent and controller, on which a rolling update depends.

use agents::{Member, Site};
use api::{AddressSpace, BlockState, NodeRef};
use apiserver::install::until;
use apiserver::{Fault, Proxy};
use kube::Api;
use serde_json::json;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tests::programs::program;

/// Refuses requests for `resource` from now on, as if the client lacked the right, until the flag is cleared.
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

/// Gives the controller two blocks of gone nodes to free, and an edit to accept.
async fn give_work(site: &Site) {
    let first = Ipv4Addr::new(10, 1, 128, 0);
    let owner = |number| NodeRef {
        node: format!("gone-{number}"),
        node_uid: format!("uid-{number}"),
    };
    site.crowd("rail0", first, 2, owner).await;
    let exclude = json!({ "spec": { "ranges": [{ "subnet": "10.1.0.0/16", "gateway": "none", "exclude": ["10.1.0.7"] }] } });
    site.edit("rail0", exclude).await;
}

/// A block that becomes free while the address space does not request probes could be claimed without a probe, although the lost
/// node may still use its addresses.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_read_the_address_spaces_frees_nothing_and_is_not_ready() {
    let site = Site::new().await;
    let node = Member::running(&site.server, "a", &[]).await;
    site.simple("rail0", "10.1.0.0/16").await;
    node.wait_active("rail0").await;
    assert!(site.controller.stop());
    give_work(&site).await;
    let lost = async || {
        let mut blocks = site.blocks("rail0").await;
        blocks.retain(|block| block.spec.owner.node.starts_with("gone-"));
        blocks
    };
    let observed = async || {
        let pool = site.pools().get("rail0").await.unwrap();
        pool.status.unwrap().observed_generation
    };
    let proxy = Proxy::start(&site.server).await;
    let refused = refuse(&proxy, "/addressspaces");
    let flags = ["--quarantine", "4s", "--quarantine-in-use", "4s"];
    site.controller.start_behind(&proxy, &site.server, &flags);
    until("the probe names what the leader cannot read", async || {
        let answer = site.controller.get("/readyz");
        answer.starts_with("HTTP/1.1 503")
            && answer.contains("addressspaces.rdmanet.io")
            && answer.contains("403")
    })
    .await;
    // An unguarded leader works with what it has after ten seconds: it accepts the edit, and frees a block after the quarantine of
    // four.
    until("the leader has waited for thirty rounds", async || {
        let waits = "the leader waits until it has read its inputs";
        site.controller.log().matches(waits).count() >= 30
    })
    .await;
    let metric = "rdmanet_controller_watch_errors_total{source=\"addressspaces\"}";
    assert!(site.controller.get("/metrics").contains(metric));
    assert!(site.controller.get("/healthz").starts_with("HTTP/1.1 200"));
    let blocks = lost().await;
    assert!(
        blocks.len() == 2 && blocks.iter().all(|block| block.spec.state == BlockState::Active),
        "{blocks:?}"
    );
    assert_eq!(observed().await, Some(1));
    refused.store(false, Ordering::SeqCst);
    until("the edit is accepted", async || observed().await == Some(2)).await;
    until("the controller is ready", async || {
        site.controller.get("/readyz").starts_with("HTTP/1.1 200")
    })
    .await;
    until("the blocks are free", async || lost().await.is_empty()).await;
    let spaces: Api<AddressSpace> = Api::all(site.admin.clone());
    let space = spaces.get("default").await.unwrap();
    assert!(space.spec.pools[0].probe, "{space:?}");
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
