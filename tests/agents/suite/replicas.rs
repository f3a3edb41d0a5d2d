// SPDX-License-Identifier: Apache-2.0
//! Two replicas of the controller, one, and none.

use agents::{Attachment, Controller, Site};
use apiserver::identity::NAMESPACE;
use apiserver::install::{until, until_within};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// The time limit for a change of the leader. A Lease of a replica that does not release it lasts 15 s or longer.
const FAILOVER: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_leads_when_the_leader_stops_crashes_or_hangs() {
    let site = Site::new().await;
    let other = Controller::new(&site.server, "b").await;
    until("the first replica leads", async || {
        site.controller.log().contains("\"is_leader\":true")
    })
    .await;
    other.start(&site.server, &[]);
    assert!(site.controller.stop());
    until_within(FAILOVER, "the second replica leads", async || {
        site.leader().await == other.identity()
    })
    .await;
    site.simple("ended", "10.1.0.0/24").await;
    site.wait_condition("ended", "Ready", "True").await;

    site.controller.start(&site.server, &[]);
    other.kill();
    until_within(FAILOVER, "the first replica leads again", async || {
        site.leader().await == site.controller.identity()
    })
    .await;
    site.simple("died", "10.2.0.0/24").await;
    site.wait_condition("died", "Ready", "True").await;

    other.start(&site.server, &[]);
    site.controller.freeze();
    until_within(FAILOVER, "the second replica leads again", async || {
        site.leader().await == other.identity()
    })
    .await;
    // It continues its work, and finds that another replica leads.
    site.controller.thaw();
    site.simple("hung", "10.3.0.0/24").await;
    site.wait_condition("hung", "Ready", "True").await;
}

/// The clock of the leader was an hour ahead when the leader died. A clock that steps back has the same effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_leads_soon_after_a_leader_whose_clock_was_ahead() {
    let site = Site::new().await;
    until("the replica leads", async || {
        site.leader().await == site.controller.identity()
    })
    .await;
    site.controller.kill();
    let leases: Api<Lease> = Api::namespaced(site.admin.clone(), NAMESPACE);
    let ahead = MicroTime(Timestamp::now() + SignedDuration::from_hours(1));
    let patch = json!({ "spec": { "holderIdentity": "gone", "renewTime": ahead } });
    let (name, params) = ("rdmanet-controller", PatchParams::default());
    leases.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    site.controller.start(&site.server, &[]);
    // It takes about 45 s on an idle machine.
    until_within(FAILOVER, "the replica leads again", async || {
        site.leader().await == site.controller.identity()
    })
    .await;
    site.simple("rail0", "10.1.0.0/24").await;
    site.wait_condition("rail0", "Ready", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_allocate_addresses_and_claim_and_return_blocks_without_controller() {
    let site = Site::new().await;
    site.simple("rail0", "10.1.0.0/24").await;
    site.wait_condition("rail0", "Ready", "True").await;
    site.controller.kill();
    let nodes = site.two_nodes().await;
    let mut given = BTreeSet::new();
    for node in &nodes {
        node.wait_active("rail0").await;
        for i in 0..20 {
            let ip = node.add_soon("rail0", &Attachment::of(&format!("p{i}"))).await;
            assert!(given.insert(ip.clone()), "{ip} is allocated twice");
        }
    }
    nodes[0].kill();
    nodes[0].start();
    for node in &nodes {
        for i in 0..20 {
            node.del("rail0", &Attachment::of(&format!("p{i}")));
        }
    }
    until("blocks that are not needed are returned", async || {
        site.blocks("rail0").await.len() <= 2
    })
    .await;
    // An edit has no effect until a controller runs.
    site.edit("rail0", json!({ "spec": { "reserved": ["10.1.0.250"] } }))
        .await;
    nodes[1].add_soon("rail0", &Attachment::of("late")).await;
    site.controller.start(&site.server, &[]);
    until("the edit is in force", async || {
        let status = site.pools().get("rail0").await.unwrap().status.unwrap();
        status.observed_generation == Some(2)
    })
    .await;
}
