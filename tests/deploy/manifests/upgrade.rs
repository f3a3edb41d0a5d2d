// SPDX-License-Identifier: Apache-2.0
//! Upgrades from the manifests of 4c1f4ba, in which an elected agent had the role of the controller, and downgrades.

use agents::{Attachment, Controller, Member};
use api::accepted_pool::AcceptedPool;
use api::{AddressSpace, AddressSpaceSpec, IpPool, listing};
use apiserver::{Server, install};
use deploy::api::{Send, apply};
use deploy::manifests::{kind, kustomized, objects};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Sorts the objects so that namespaces and definitions precede the objects that need them.
fn in_order(mut all: Vec<Value>) -> Vec<Value> {
    all.sort_by_key(|object| match kind(object) {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        _ => 2,
    });
    all
}

async fn install_old(admin: &Client) {
    let old = in_order(objects(include_str!("before/base.yaml")));
    apply(admin, &old, Send::ForGood).await;
}

async fn install_new(server: &Server, admin: &Client) {
    apply(admin, &in_order(kustomized("base")), Send::ForGood).await;
    install::enforced(server, admin, deploy::manifests::NAMESPACE).await;
}

/// Creates a pool in the state of an earlier release, with a request in the old format.
pub(crate) async fn pool_as_it_was(admin: &Client) {
    let spec = json!({ "ranges": [{ "subnet": "10.20.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 }, "cooldownSeconds": 0 });
    let pool = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "rail0" }, "spec": spec,
    });
    apply(admin, &[pool], Send::ForGood).await;
    let pools: Api<IpPool> = Api::all(admin.clone());
    let status = json!({ "status": {
        "observedGeneration": 1, "accepted": spec, "wanted": { "v4": "2026-01-01T00:00:00Z" },
    } });
    let read = pools
        .patch_status("rail0", &PatchParams::default(), &Patch::Merge(status))
        .await;
    let accepted = AcceptedPool::of(&read.unwrap()).unwrap().unwrap();
    let pools = vec![listing::entry(&accepted)];
    let space = AddressSpace::new("default", AddressSpaceSpec { pools, probe: false });
    let spaces: Api<AddressSpace> = Api::all(admin.clone());
    spaces.create(&PostParams::default(), &space).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_without_controller_is_upgraded_and_rolled_back_with_its_pool() {
    let server = Server::start();
    let admin = server.admin().await;
    install_old(&admin).await;
    let pools: Api<IpPool> = Api::all(admin.clone());
    install::until("pools are served", async || {
        pools.list(&kube::api::ListParams::default()).await.is_ok()
    })
    .await;
    pool_as_it_was(&admin).await;
    install_new(&server, &admin).await;
    // The controller of this release does not run yet: the earlier release accepted the pool.
    let node = Member::running(&server, "a", &[]).await;
    node.wait_active("rail0").await;
    let ip = node.add("rail0", &Attachment::of("one"));
    let controller = Controller::new(&server, "a").await;
    controller.start(&server, &[]);
    install::until("the controller keeps the pool", async || {
        let pool = pools.get("rail0").await.unwrap();
        let status = pool.status.unwrap_or_default();
        let ready = status
            .conditions
            .iter()
            .any(|one| one.type_ == "Ready" && one.status == "True");
        ready && status.open_requests().next().is_none()
    })
    .await;
    controller.kill();
    install_old(&admin).await;
    let pool = pools.get("rail0").await.unwrap();
    assert!(pool.status.unwrap().accepted.is_some());
    assert_eq!(node.add("rail0", &Attachment::of("one")), ip);
    install_new(&server, &admin).await;
    controller.start(&server, &[]);
    node.del("rail0", &Attachment::of("one"));
}
