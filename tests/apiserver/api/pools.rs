// SPDX-License-Identifier: Apache-2.0
use crate::{changed, pool, refusal};
use api::IpPool;
use apiserver::Server;
use apiserver::objects;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn strict() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

async fn create(api: &Api<IpPool>, pool: &Value) -> Result<IpPool, kube::Error> {
    let pool: IpPool = serde_json::from_value(pool.clone()).unwrap();
    api.create(&strict(), &pool).await
}

/// Creates a pool from JSON that the type `IpPool` may not represent.
async fn post(pool: &Value) -> Result<Value, kube::Error> {
    let admin = Server::shared().admin().await;
    let request = http::Request::post("/apis/rdmanet.io/v1alpha1/ippools?dryRun=All&fieldValidation=Strict")
        .header("content-type", "application/json")
        .body(serde_json::to_vec(pool).unwrap())
        .unwrap();
    admin.request(request).await
}

/// A change of a valid pool, the field that the error names, and part of its message.
type Case = (&'static str, Value, &'static str, &'static str);

#[allow(clippy::too_many_lines, reason = "a table")]
fn of_ranges() -> Vec<Case> {
    let range = "/spec/ranges/0";
    [
        ("subnet", json!("10.0.0.0"), "is not a network such as"),
        ("subnet", json!("10.0.0.256/24"), "is not a network such as"),
        ("subnet", json!("::ffff:10.0.0.0/120"), "is not a network such as"),
        ("subnet", json!("10.0.0.7/16"), "has host bits"),
        ("subnet", json!("0.0.0.0/0"), "no addresses that a pod could have"),
        (
            "subnet",
            json!("127.0.0.0/16"),
            "no addresses that a pod could have",
        ),
        (
            "subnet",
            json!("239.1.0.0/16"),
            "no addresses that a pod could have",
        ),
        ("subnet", json!("ff02::/64"), "no addresses that a pod could have"),
        (
            "start",
            json!("10.1.0.5"),
            "start 10.1.0.5 is not an address in subnet 10.0.0.0/16",
        ),
        ("start", json!("10.0.0"), "start 10.0.0 is not an address"),
        ("start", json!("fd00::1"), "is not an address in subnet"),
        (
            "end",
            json!("11.0.0.0"),
            "end 11.0.0.0 is not an address in subnet",
        ),
        (
            "gateway",
            json!("10.9.0.1"),
            "neither \"none\" nor an address in subnet",
        ),
        (
            "gateway",
            json!("None"),
            "neither \"none\" nor an address in subnet",
        ),
        (
            "exclude",
            json!(["10.0.0.5", "ten"]),
            "not an address, a network without host bits, or first-last",
        ),
        ("exclude", json!(["10.0.0.9-10.0.0.5"]), "first-last in order"),
        ("exclude", json!(["10.0.0.5-"]), "first-last in order"),
        ("exclude", json!(["10.0.0.5-fd00::1"]), "first-last in order"),
        ("exclude", json!(["10.0.0.5/24"]), "a network without host bits"),
        ("exclude", json!(["10.1.0.5"]), "exclude reaches outside subnet"),
        (
            "exclude",
            json!(["10.0.255.0-10.1.0.3"]),
            "exclude reaches outside subnet",
        ),
        ("exclude", json!(["10.0.0.0/8"]), "exclude reaches outside subnet"),
        (
            "exclude",
            json!(vec!["10.0.0.5"; 33]),
            "must have at most 32 items",
        ),
        ("subnet", json!(7), "must be of type string"),
    ]
    .map(|(member, value, sentence)| {
        let path: &'static str = format!("{range}/{member}").leak();
        (path, value, member, sentence)
    })
    .to_vec()
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn of_the_rest() -> Vec<Case> {
    let name = "pool-with-a-name-that-is-longer-than-the-sixty-three-characters-of-a-label";
    vec![
        ("/metadata/name", json!(name), "metadata.name", "than 63"),
        (
            "/spec/ranges",
            json!([]),
            "ranges",
            "should have at least 1 items",
        ),
        (
            "/spec/ranges",
            json!([{ "start": "10.0.0.1" }]),
            "subnet",
            "Required value",
        ),
        (
            "/spec/ranges",
            json!([{ "subnet": "10.0.0.0/16" }, { "subnet": "10.0.0.0/16" }]),
            "ranges",
            "addresses in common",
        ),
        (
            "/spec/ranges",
            json!([{ "subnet": "10.0.0.0/16" }, { "subnet": "10.0.4.0/24" }]),
            "ranges",
            "addresses in common",
        ),
        (
            "/spec/ranges",
            json!([{ "subnet": "fd00::/64", "start": "fd00::1", "end": "fd00::ff" }, { "subnet": "fd00::/64", "start": "fd00::00f0", "end": "fd00::1:0" }]),
            "ranges",
            "addresses in common",
        ),
        (
            "/spec/ranges",
            json!([{ "subnet": "10.0.0.0/16", "start": "10.0.0.10", "end": "10.0.0.9" }]),
            "end",
            "end 10.0.0.9 comes before start 10.0.0.10",
        ),
        (
            "/spec/ranges",
            json!([{ "subnet": "fd00::/48", "start": "fd00:0:0:10::", "end": "fd00::9:ffff:ffff:ffff:ffff" }]),
            "end",
            "comes before start",
        ),
        (
            "/spec/routes",
            json!([{ "dst": "10.0.0.1/8" }]),
            "dst",
            "is not a network without host bits",
        ),
        (
            "/spec/routes",
            json!([{ "dst": "10.0.0.0/8", "gw": "fd00::1" }]),
            "gw",
            "is not an address of the family",
        ),
        (
            "/spec/blockSize",
            json!({ "v4": 48, "v6": 1024 }),
            "v4",
            "blockSize.v4 must be a power of two",
        ),
        (
            "/spec/blockSize",
            json!({ "v4": 131_072 }),
            "v4",
            "should be less than or equal to 65536",
        ),
        (
            "/spec/blockSize",
            json!({ "v6": 0 }),
            "v6",
            "should be greater than or equal to 1",
        ),
        (
            "/spec/blockSize",
            json!({ "v6": 1000 }),
            "v6",
            "blockSize.v6 must be a power of two",
        ),
        (
            "/spec/addressSpace",
            json!("My Space"),
            "addressSpace",
            "is made of lower-case letters",
        ),
        (
            "/spec/addressSpace",
            json!(""),
            "addressSpace",
            "should be at least 1 chars long",
        ),
        ("/spec/allocation", json!("Pod"), "allocation", "supported values"),
        ("/spec/sticky", json!("Always"), "sticky", "supported values"),
        (
            "/spec/sticky",
            json!("StatefulSet"),
            "sticky",
            "are taken from reserved: list some there",
        ),
        (
            "/spec/cooldownSeconds",
            json!(-1),
            "cooldownSeconds",
            "should be greater than or equal to 0",
        ),
        (
            "/spec/cooldownSeconds",
            json!("30s"),
            "cooldownSeconds",
            "must be of type integer",
        ),
        (
            "/spec/warmBlocks",
            json!(17),
            "warmBlocks",
            "should be less than or equal to 16",
        ),
        (
            "/spec",
            json!({ "ranges": [{ "subnet": "10.0.0.0/16" }], "warmBlocks": 3, "maxBlocksPerNode": 2 }),
            "warmBlocks",
            "warmBlocks must be at most maxBlocksPerNode",
        ),
        (
            "/spec/maxBlocksPerNode",
            json!(-2),
            "maxBlocksPerNode",
            "should be greater than or equal to 0",
        ),
        ("/spec/fallback", json!(["good"]), "fallback", "names other pools"),
        ("/spec/fallback", json!(["a", "a"]), "fallback", "each once"),
        (
            "/spec/reserved",
            json!(["10.0.0.5", "x"]),
            "reserved",
            "not an address, a network",
        ),
        (
            "/spec/reserved",
            json!(["10.2.0.5"]),
            "reserved",
            "outside the subnets of the ranges",
        ),
        (
            "/spec/nodeSelector",
            json!({ "matchExpressions": [{ "key": "a", "operator": "Is" }] }),
            "operator",
            "supported values",
        ),
        (
            "/spec/nodeSelector",
            json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] }),
            "nodeSelector",
            "need values",
        ),
        (
            "/spec/namespaceSelector",
            json!({ "matchExpressions": [{ "key": "a", "operator": "Exists", "values": ["b"] }] }),
            "namespaceSelector",
            "Exists and DoesNotExist take none",
        ),
        (
            "/spec/nodeSelector",
            json!({ "matchLabels": { "rail!": "0" } }),
            "nodeSelector",
            "matchLabels: a key is a name such as rail",
        ),
        (
            "/spec/namespaceSelector",
            json!({ "matchLabels": { "example.com/team": "machine learning" } }),
            "namespaceSelector",
            "key and value are made of letters",
        ),
        (
            "/spec/namespaceSelector",
            json!({ "matchExpressions": [{ "key": "team", "operator": "In", "values": ["ml", "-x"] }] }),
            "namespaceSelector",
            "matchExpressions: a key is a name",
        ),
        (
            "/spec/nodeSelector",
            json!({ "matchExpressions": [{ "key": "Example.com/rail", "operator": "Exists" }] }),
            "nodeSelector",
            "matchExpressions: a key is a name",
        ),
        (
            "/spec/namespaceSelector",
            json!({ "matchLabels": { "a": 1 } }),
            "namespaceSelector",
            "must be of type string",
        ),
        ("/spec/range", json!("10.0.0.0/8"), "spec.range", "unknown field"),
    ]
}

#[tokio::test]
async fn an_invalid_pool_is_refused_with_an_error_that_names_the_field() {
    let good = pool("good", &json!([{ "subnet": "10.0.0.0/16" }]));
    post(&good).await.unwrap();
    let cases = [of_ranges(), of_the_rest()].concat();
    let mut wrong = Vec::new();
    for (path, value, field, sentence) in &cases {
        let message = match post(&changed(good.clone(), &[(path, value.clone())])).await {
            Ok(_) => "nothing: it was accepted".to_owned(),
            Err(kube::Error::Api(status)) => status.message,
            Err(other) => other.to_string(),
        };
        if !message.contains(field) || !message.contains(sentence) {
            wrong.push(format!(
                "{path} = {value}: wanted {field:?} and {sentence:?}, got: {message}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

#[tokio::test]
async fn a_malformed_subnet_is_the_only_error_of_its_range() {
    let range = json!([{ "subnet": "ten/sixteen", "start": "10.0.0.1", "end": "10.0.0.9", "gateway": "10.0.0.1", "exclude": ["10.0.0.5"] }]);
    let status = refusal(post(&pool("one", &range)).await);
    let causes = status.details.unwrap().causes;
    assert_eq!(causes.len(), 1, "{causes:?}");
}

#[tokio::test]
async fn a_large_pool_with_many_ranges_and_exclusions_is_accepted() {
    let ranges: Vec<Value> = (0..16)
        .map(|i| {
            let exclude: Vec<String> = (0..32).map(|j| format!("fd00:{i}::{j}:0-fd00:{i}::{j}:ff")).collect();
            json!({
                "subnet": format!("fd00:{i}::/64"), "start": format!("fd00:{i}::10"), "end": format!("fd00:{i}::ffff:ffff"),
                "gateway": format!("fd00:{i}::1"), "exclude": exclude,
            })
        })
        .collect();
    let reserved: Vec<String> = (0..32).map(|j| format!("fd00:{}::5:{j}", j % 16)).collect();
    let all = changed(
        pool("wide", &json!(ranges)),
        &[
            ("/spec/reserved", json!(reserved)),
            (
                "/spec/nodeSelector",
                json!({ "matchLabels": { "rail": "0", "k8s.io/A_b.c": "" }, "matchExpressions": [{ "key": "nvidia.com/gpu.product", "operator": "In", "values": ["A100-SXM4-80GB", ""] }] }),
            ),
            ("/spec/fallback", json!(["other", "third"])),
        ],
    );
    post(&all).await.unwrap();
}

#[tokio::test]
async fn disjoint_ranges_of_one_subnet_are_accepted() {
    let ranges = json!([
        { "subnet": "10.0.0.0/16", "start": "10.0.9.0", "end": "10.0.9.255" },
        { "subnet": "10.0.0.0/16", "start": "10.0.10.0", "end": "10.0.10.255" },
        { "subnet": "10.0.0.0/16", "end": "10.0.8.255" },
        { "subnet": "10.0.0.0/16", "start": "10.0.100.0", "gateway": "none" },
        { "subnet": "fd00::/64" },
    ]);
    post(&pool("apart", &ranges)).await.unwrap();
}

#[tokio::test]
async fn address_space_block_size_and_allocation_of_a_pool_are_immutable() {
    let api: Api<IpPool> = Api::all(Server::shared().admin().await);
    let made = pool("unchanging", &json!([{ "subnet": "10.0.0.0/16" }]));
    objects::create(&api, made).await;
    for (member, value) in [
        ("addressSpace", json!("other")),
        ("blockSize", json!({ "v4": 128 })),
        ("allocation", json!("PerAddress")),
    ] {
        let patch = Patch::Merge(json!({ "spec": { member: value } }));
        let status = refusal(api.patch("unchanging", &PatchParams::default(), &patch).await);
        assert!(
            status.message.contains(&format!("{member} cannot be changed")),
            "{}",
            status.message
        );
    }
    let patch = Patch::Merge(json!({ "spec": { "warmBlocks": 2 } }));
    api.patch("unchanging", &PatchParams::default(), &patch)
        .await
        .unwrap();
    api.delete("unchanging", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn an_absent_pool_field_is_stored_with_its_default() {
    let api: Api<IpPool> = Api::all(Server::shared().admin().await);
    let stored = create(&api, &pool("defaults", &json!([{ "subnet": "10.0.0.0/16" }])))
        .await
        .unwrap();
    let made = post(&pool("defaults", &json!([{ "subnet": "10.0.0.0/16" }])))
        .await
        .unwrap();
    assert_eq!(made["spec"]["blockSize"], json!({ "v4": 64, "v6": 1024 }));
    assert_eq!(made["spec"]["warmBlocks"], json!(1));
    let read: IpPool = serde_json::from_value(made).unwrap();
    assert_eq!(read.spec, stored.spec);
}
