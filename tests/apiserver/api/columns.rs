// SPDX-License-Identifier: Apache-2.0
//! The columns of `kubectl get`.

use crate::{address, block, pool};
use apiserver::Server;
use apiserver::objects::create;
use kube::api::{Api, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The column titles and the row of an object, requested as kubectl requests them.
async fn shown(plural: &str, name: &str) -> Vec<(String, Value)> {
    let admin = Server::shared().admin().await;
    let request = http::Request::get(format!("/apis/rdmanet.io/v1alpha1/{plural}/{name}"))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = admin.request(request).await.unwrap();
    let titles = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap().to_owned());
    titles
        .zip(table["rows"][0]["cells"].as_array().unwrap().iter().cloned())
        .collect()
}

async fn made<K>(object: Value) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + serde::Serialize,
{
    let api: Api<K> = Api::all(Server::shared().admin().await);
    create(&api, object).await;
    api
}

async fn status<K>(api: &Api<K>, name: &str, status: Value)
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let patch = Patch::Merge(json!({ "status": status }));
    api.patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

fn assert_shows(row: &[(String, Value)], wanted: &[(&str, Value)]) {
    for (title, value) in wanted {
        let cell = row
            .iter()
            .find(|(t, _)| t == title)
            .unwrap_or_else(|| panic!("no column {title} in {row:?}"));
        assert_eq!(&cell.1, value, "column {title}");
    }
}

#[tokio::test]
async fn kubectl_shows_the_counters_and_the_readiness_of_a_pool() {
    let api = made::<api::IpPool>(pool("shown", &json!([{ "subnet": "10.0.0.0/16" }]))).await;
    let ready = json!({ "type": "Ready", "status": "False", "reason": "RangeEmpty", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let counters = json!({ "size": 65_533, "used": 40, "free": 65_000, "blocks": 3 });
    status(
        &api,
        "shown",
        json!({ "conditions": [ready], "counters": counters }),
    )
    .await;
    assert_shows(
        &shown("ippools", "shown").await,
        &[
            ("Name", json!("shown")),
            ("Size", json!(65_533)),
            ("Used", json!(40)),
            ("Free", json!(65_000)),
            ("Blocks", json!(3)),
            ("Ready", json!("False")),
            ("Reason", json!("RangeEmpty")),
            ("Space", json!("default")),
        ],
    );
}

#[tokio::test]
async fn kubectl_shows_the_node_and_the_usage_of_a_block() {
    let name = "shown-4-0a000000-26";
    let api = made::<api::IpBlock>(block(name, "10.0.0.0/26", "gpu-17")).await;
    status(
        &api,
        name,
        json!({ "used": 7, "free": 55, "oldest": "2026-01-01T00:00:00Z" }),
    )
    .await;
    let row = shown("ipblocks", name).await;
    assert_shows(
        &row,
        &[
            ("Pool", json!("pool")),
            ("CIDR", json!("10.0.0.0/26")),
            ("Node", json!("gpu-17")),
            ("State", json!("Active")),
            ("Used", json!(7)),
            ("Free", json!(55)),
        ],
    );
    assert!(
        row.iter()
            .any(|(title, cell)| title == "Oldest" && cell.is_string()),
        "{row:?}"
    );
}

#[tokio::test]
async fn kubectl_shows_the_pod_of_an_address() {
    let mut object = address("shown-0a000005", "10.0.0.5", "gpu-17");
    object["spec"]["pod"] = json!({ "namespace": "train", "name": "job-0" });
    made::<api::IpAddress>(object).await;
    assert_shows(
        &shown("ipaddresses", "shown-0a000005").await,
        &[
            ("Address", json!("10.0.0.5")),
            ("State", json!("Bound")),
            ("Namespace", json!("train")),
            ("Pod", json!("job-0")),
            ("Node", json!("gpu-17")),
            ("Interface", json!("net1")),
        ],
    );
}
