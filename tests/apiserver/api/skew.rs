// SPDX-License-Identifier: Apache-2.0
//! Objects with fields of a later version of the definitions: writes of this version keep them.

use crate::block;
use api::deadline::Deadline;
use api::requests::{Requests, WriteResult};
use api::{AddressSpace, BlockState, IpAddress, IpBlock, IpPool, IpPoolSpec};
use apiserver::Server;
use apiserver::install::until;
use apiserver::later::{LATER, install_later, raw};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// Creates `object` with the later field in `spec` and `status`.
async fn make(api: &Api<DynamicObject>, mut object: Value, status: Option<Value>) {
    object["spec"][LATER] = json!("kept");
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    until("the later definition is in force", async || {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let made = api.create(&dry, &object).await.unwrap();
        made.data["spec"][LATER] == "kept"
    })
    .await;
    api.create(&PostParams::default(), &object).await.unwrap();
    if let Some(mut status) = status {
        status[LATER] = json!("kept");
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

async fn kept(api: &Api<DynamicObject>, name: &str, pointers: &[&str]) -> Value {
    let there = api.get(name).await.unwrap().data;
    for pointer in pointers {
        assert_eq!(
            there.pointer(pointer),
            Some(&json!("kept")),
            "{pointer} of {there}"
        );
    }
    there
}

#[tokio::test]
async fn updates_keep_fields_that_a_later_version_added() {
    let server = Server::installed().await;
    let admin = server.admin().await;
    install_later(&admin).await;
    a_block_keeps_them(&admin).await;
    an_address_keeps_them(&admin).await;
    a_pool_keeps_them(&admin).await;
    an_address_space_keeps_them(&admin).await;
}

fn requests(client: &Client) -> Requests {
    Requests::new(client.clone(), Deadline::background())
}

async fn a_block_keeps_them(admin: &Client) {
    let (api, requests) = (raw(admin, "IPBlock", "ipblocks"), requests(admin));
    let name = "skew-4-0a000000-26";
    let status = json!({ "used": 1, "free": 2, "oldest": "2026-01-01T00:00:00Z" });
    make(&api, block(name, "10.0.0.0/26", "n"), Some(status)).await;
    let read: IpBlock = requests.get(name).await.unwrap().unwrap();
    let mut wanted = read.clone();
    wanted.spec.state = BlockState::Draining;
    assert!(matches!(
        requests.replace(&wanted).await.unwrap(),
        WriteResult::Applied(_)
    ));
    let there = kept(&api, name, &["/spec/later", "/status/later"]).await;
    assert_eq!(there["spec"]["state"], "Draining");
    // Two clients have read the same version; the second write conflicts.
    wanted.spec.state = BlockState::Orphaned;
    assert!(matches!(
        requests.replace(&wanted).await.unwrap(),
        WriteResult::Conflict
    ));
    let status = read.status.unwrap();
    requests.patch_status::<IpBlock>(name, &status).await.unwrap();
    kept(&api, name, &["/spec/later", "/status/later"]).await;
    api.delete(name, &kube::api::DeleteParams::default())
        .await
        .unwrap();
    assert!(matches!(
        requests.replace(&wanted).await.unwrap(),
        WriteResult::Conflict
    ));
}

async fn an_address_keeps_them(admin: &Client) {
    let (api, requests) = (raw(admin, "IPAddress", "ipaddresses"), requests(admin));
    let name = "skew-0a000001";
    let address = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress", "metadata": { "name": name },
        "spec": {
            "pool": "p", "address": "10.0.0.1", "block": "10.0.0.1/32", "state": "Bound",
            "node": { "node": "n", "nodeUID": "u" },
            "attachment": { "containerID": "c", "ifname": "net1", "network": "net" },
            "holder": { "namespace": "a", "statefulSet": "s", "pod": "s-0", "network": "net", "ifname": "net1" },
        },
    });
    make(&api, address, None).await;
    let mut wanted: IpAddress = requests.get(name).await.unwrap().unwrap();
    wanted.spec.state = api::AddressState::Kept;
    wanted.spec.attachment = None;
    assert!(matches!(
        requests.replace(&wanted).await.unwrap(),
        WriteResult::Applied(_)
    ));
    let there = kept(&api, name, &["/spec/later"]).await;
    assert_eq!(there["spec"].get("attachment"), None, "{there}");
}

/// Writes `accepted` as the accepted spec of `pool`, which becomes the version that the API server returns.
async fn accept(requests: &Requests, pool: &mut IpPool, accepted: &IpPoolSpec) {
    let before = pool.clone();
    pool.status.get_or_insert_default().accepted = Some(accepted.clone());
    let WriteResult::Applied(after) = requests.replace_status(&before, pool).await.unwrap() else {
        panic!("no other client writes the object");
    };
    *pool = after;
}

async fn a_pool_keeps_them(admin: &Client) {
    let (api, requests) = (raw(admin, "IPPool", "ippools"), requests(admin));
    let pool = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "skew" },
        "spec": {
            "ranges": [{ "subnet": "10.0.0.0/24" }], "nodeSelector": { "matchLabels": { "a": "b" } },
        },
    });
    make(&api, pool, Some(json!({ "observedGeneration": 1 }))).await;
    let mut pool: IpPool = requests.get("skew").await.unwrap().unwrap();
    let mut accepted = pool.spec.clone();
    accept(&requests, &mut pool, &accepted).await;
    // A label with another key. A merge patch keeps each key that it does not name.
    let selector = json!({ "matchLabels": { "c": "d" } });
    accepted.node_selector = Some(serde_json::from_value(selector.clone()).unwrap());
    accept(&requests, &mut pool, &accepted).await;
    let there = kept(&api, "skew", &["/spec/later", "/status/later"]).await;
    assert_eq!(there["status"]["accepted"]["nodeSelector"], selector, "{there}");
    // The next accepted spec selects all nodes.
    accepted.node_selector = None;
    accept(&requests, &mut pool, &accepted).await;
    let there = kept(&api, "skew", &["/spec/later", "/status/later"]).await;
    assert_eq!(there["status"]["accepted"].get("nodeSelector"), None, "{there}");
    pool.finalizers_mut()
        .push("rdmanet.io/addresses-in-use".to_owned());
    assert!(matches!(
        requests.replace_metadata(&pool).await.unwrap(),
        WriteResult::Applied(_)
    ));
    let there = kept(&api, "skew", &["/spec/later", "/status/later"]).await;
    assert_eq!(there["spec"]["nodeSelector"]["matchLabels"]["a"], "b");
}

async fn an_address_space_keeps_them(admin: &Client) {
    let (api, requests) = (raw(admin, "AddressSpace", "addressspaces"), requests(admin));
    let listed = |name: &str| json!({ "name": name, "uid": "u", "generation": 1, "shiftV4": 6, "shiftV6": 10, "later": "kept" });
    let space = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "AddressSpace", "metadata": { "name": "skew" },
        "spec": { "pools": [listed("a"), listed("b")] },
    });
    make(&api, space, None).await;
    let mut wanted: AddressSpace = requests.get("skew").await.unwrap().unwrap();
    wanted.spec.pools.remove(0);
    assert!(matches!(
        requests.replace(&wanted).await.unwrap(),
        WriteResult::Applied(_)
    ));
    let there = kept(&api, "skew", &["/spec/later", "/spec/pools/0/later"]).await;
    assert_eq!(there["spec"]["pools"].as_array().unwrap().len(), 1);
}
