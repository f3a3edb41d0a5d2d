// SPDX-License-Identifier: Apache-2.0
//! Pools are imported while pods run: no two pods get one address, no pod restarts, and no address is lost.

use crate::whereabouts::{self, reservations};
use crate::{Run, person, pod_with, rdmanet};
use agents::{Attachment, Member, Site};
use apiserver::install::{apply, documents, until};
use apiserver::{later, objects};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A cluster with the custom resources of other IPAM plugins.
pub(crate) async fn site() -> Site {
    let site = Site::new().await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/peers.yaml");
    for object in documents(&file) {
        apply(&site.admin, &object).await;
    }
    for (group, kind, plural) in [
        (
            "k8s.cni.cncf.io",
            "NetworkAttachmentDefinition",
            "network-attachment-definitions",
        ),
        ("whereabouts.cni.cncf.io", "IPPool", "ippools"),
        (
            "whereabouts.cni.cncf.io",
            "OverlappingRangeIPReservation",
            "overlappingrangeipreservations",
        ),
        ("nv-ipam.nvidia.com", "IPPool", "ippools"),
    ] {
        let one = ListParams::default().limit(1);
        until("the definition is served", async || {
            api(&site, group, kind, plural).list(&one).await.is_ok()
        })
        .await;
    }
    site
}

fn api(site: &Site, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let version = if group == "k8s.cni.cncf.io" {
        "v1"
    } else {
        "v1alpha1"
    };
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::default_namespaced_with(
        site.admin.clone(),
        &ApiResource::from_gvk_with_plural(&kind, plural),
    )
}

fn networks(site: &Site) -> Api<DynamicObject> {
    api(
        site,
        "k8s.cni.cncf.io",
        "NetworkAttachmentDefinition",
        "network-attachment-definitions",
    )
}

async fn create(api: &Api<DynamicObject>, name: &str, spec: &Value) {
    let resource = api.resource_url().to_owned();
    let version = if resource.contains("/v1alpha1/") {
        "v1alpha1"
    } else {
        "v1"
    };
    let group = resource.split('/').nth(2).unwrap();
    let kind = if resource.contains("network-attachment") {
        "NetworkAttachmentDefinition"
    } else {
        "IPPool"
    };
    let object = json!({
        "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": { "name": name }, "spec": spec,
    });
    objects::create(api, object).await;
}

/// A network of macvlan with this `ipam` section.
pub(crate) async fn network(site: &Site, name: &str, ipam: &Value) {
    let config =
        json!({ "cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "eth0", "ipam": ipam });
    create(&networks(site), name, &json!({ "config": config.to_string() })).await;
}

async fn ipam_of(site: &Site, name: &str) -> Value {
    let object = networks(site).get(name).await.unwrap();
    let config: Value = serde_json::from_str(object.data["spec"]["config"].as_str().unwrap()).unwrap();
    config["ipam"].clone()
}

pub(crate) fn import(file: &Path, args: &[&str]) -> Run {
    let mut all = vec!["-o", "json", "import"];
    all.extend(args);
    rdmanet(Some(file), &all)
}

/// The `ipam` section of the network `rail0` before the import.
fn rail0() -> Value {
    json!({
        "type": "whereabouts", "range": "10.5.0.0/24", "range_start": "10.5.0.10", "range_end": "10.5.0.59",
        "exclude": ["10.5.0.40/31"],
    })
}

/// Sets up range 10.5.0.0/24 of network `rail0`. whereabouts itself has allocated .10 to `one`, .11 to `two` and .12 to a
/// pod that is gone without its DEL. Pod `late` has .13, whose allocation is lost, so only the pod's own status and a
/// reservation show it.
async fn moved_from() -> (Site, Member) {
    let site = site().await;
    let node = Member::running(&site.server, "a", &[]).await;
    network(&site, "rail0", &rail0()).await;
    let names = ["one", "two", "gone", "late"];
    let given = names.map(|pod| whereabouts::add(&site, &rail0(), pod));
    assert_eq!(given, ["10.5.0.10", "10.5.0.11", "10.5.0.12", "10.5.0.13"]);
    let reserved = reservations(&site).get("10.5.0.13").await.unwrap();
    assert_eq!(reserved.data["spec"]["podref"], "default/late");
    change(&site, |allocations| assert!(allocations.remove("13").is_some())).await;
    pod_with(&site, "one", "a", "default/rail0", &given[..1]).await;
    site.pod("two", "a").await;
    pod_with(&site, "late", "a", "default/rail0", &given[3..]).await;
    (site, node)
}

/// Changes the allocations in whereabouts' object for the range of `rail0`.
async fn change(site: &Site, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    let pools = whereabouts::pools(site);
    let mut pool = pools.get("10.5.0.0-24").await.unwrap();
    change(pool.data["spec"]["allocations"].as_object_mut().unwrap());
    let plain = PostParams::default();
    pools.replace("10.5.0.0-24", &plain, &pool).await.unwrap();
}

/// The objects of whereabouts, with their versions.
async fn versions(site: &Site) -> Vec<(String, Option<String>)> {
    let all = ListParams::default();
    let mut objects = whereabouts::pools(site).list(&all).await.unwrap().items;
    objects.extend(reservations(site).list(&all).await.unwrap());
    let version = |object: &DynamicObject| (object.name_any(), object.resource_version());
    objects.iter().map(version).collect()
}

/// Allocates all addresses that the node can allocate.
fn all_of(node: &Member, pool: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for i in 0..100 {
        let answer = node.add_in_time(pool, &Attachment::of(&format!("p{i}")), |_| false);
        if !answer.status.success() {
            assert!(answer.stdout.contains("exhausted"), "{}", answer.stdout);
            return all;
        }
        let ip = answer.addresses().remove(0);
        assert!(all.insert(ip.clone()), "{ip} is allocated twice");
    }
    panic!("a range of 50 has 100 addresses");
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_whereabouts_are_imported_while_their_pods_run() {
    let (site, node) = moved_from().await;
    let before = versions(&site).await;
    let operator = person(&site, "operator", Some("rdmanet-operator")).await;
    let file = operator.path().join("config");

    // A dry run reports the step and changes nothing.
    let dry = import(&file, &["whereabouts", "--dry-run"]);
    assert_eq!(dry.status, 1, "{dry:?}");
    let step = dry.json()["pools"][0].clone();
    assert_eq!(
        (&step["pool"], &step["state"]),
        (&json!("rail0"), &json!("closed"))
    );
    let addresses = |step: &Value, key: &str| -> Vec<String> {
        let all = step[key].as_array().unwrap().iter();
        all.map(|one| one["address"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(addresses(&step, "inUse"), ["10.5.0.10", "10.5.0.11", "10.5.0.13"]);
    assert_eq!(addresses(&step, "ended"), ["10.5.0.12"]);
    assert!(site.has_no_pool().await);

    // The pool is created, and allocates nothing while whereabouts may still allocate.
    let made = import(&file, &["whereabouts"]);
    assert!(
        made.status == 1 && made.message().contains("--switch"),
        "{made:?}"
    );
    let pool = site.pools().get("rail0").await.unwrap();
    let range = &pool.spec.ranges[0];
    assert_eq!(
        range.exclude,
        ["10.5.0.40/31", "10.5.0.10-10.5.0.11", "10.5.0.13"]
    );
    assert_eq!(
        (
            range.start.as_deref(),
            range.end.as_deref(),
            range.gateway.as_deref()
        ),
        (Some("10.5.0.10"), Some("10.5.0.59"), Some("none"))
    );
    site.wait_condition("rail0", "Ready", "True").await;
    let closed = node.error("rail0", &Attachment::of("early"));
    assert!(closed["msg"].as_str().unwrap().contains("rail0"), "{closed}");
    assert_eq!(site.blocks("rail0").await.len(), 0);
    let again = import(&file, &["whereabouts"]);
    assert!(again.message().starts_with("nothing changes"), "{again:?}");

    // The network is switched. An ADD that began before may still allocate an address.
    let switched = import(&file, &["whereabouts", "--switch"]);
    assert_eq!(switched.status, 1, "{switched:?}");
    assert_eq!(
        ipam_of(&site, "rail0").await,
        json!({ "type": "rdma-ipam", "pool": "rail0" })
    );
    let waits = import(&file, &["whereabouts"]);
    assert!(waits.message().contains("may still run for"), "{waits:?}");
    assert_eq!(waits.json()["pools"][0]["state"], "closed");
    pod_with(&site, "last", "b", "default/rail0", &["10.5.0.14".to_owned()]).await;

    let opened = import(&file, &["whereabouts", "--grace", "0"]);
    assert_eq!(opened.status, 0, "{opened:?}");
    assert_eq!(opened.json()["pools"][0]["state"], "open");
    node.wait_active("rail0").await;
    let given = all_of(&node, "rail0");
    let old = [
        "10.5.0.10",
        "10.5.0.11",
        "10.5.0.13",
        "10.5.0.14",
        "10.5.0.40",
        "10.5.0.41",
    ];
    assert!(old.iter().all(|ip| !given.contains(*ip)), "{given:?}");
    assert_eq!(given.len(), 50 - old.len(), "and every other one: {given:?}");

    // The addresses of imported pods lie in blocks of node a now, also that of the pod on node b.
    let check = rdmanet(Some(&file), &["-o", "json", "check", "--pause", "0"]).json();
    let problems = check["problems"].as_array().unwrap().iter();
    let imported: Vec<(&str, &str)> = problems
        .map(|one| (one["subject"].as_str().unwrap(), one["kind"].as_str().unwrap()))
        .filter(|(subject, _)| old.contains(subject))
        .collect();
    let excluded = ["10.5.0.10", "10.5.0.13", "10.5.0.14"].map(|ip| (ip, "excluded"));
    assert_eq!(imported, excluded, "{check}");
    let last = rdmanet(Some(&file), &["addresses", "10.5.0.14"]);
    assert!(last.out.contains("default/last"), "{last:?}");

    assert_eq!(versions(&site).await, before, "nothing of whereabouts is changed");

    // Pods of whereabouts end one after the other. The runtime calls the plugin that attached them, and the pool gets
    // their addresses.
    site.remove_pod("one").await;
    whereabouts::call(&site, "DEL", &rail0(), "one").done();
    let back = import(&file, &["whereabouts"]);
    assert_eq!(
        addresses(&back.json()["pools"][0], "inUse"),
        ["10.5.0.11", "10.5.0.13", "10.5.0.14"]
    );
    until("10.5.0.10 is given", async || {
        node.call("ADD", "rail0", &Attachment::of("new"))
            .stdout
            .contains("10.5.0.10/24")
    })
    .await;
    // The same holds if this command runs before that call, which then removes nothing.
    for pod in ["two", "late", "last"] {
        site.remove_pod(pod).await;
    }
    let done = import(&file, &["whereabouts"]);
    assert!(
        done.status == 0 && done.message().contains("Nothing of whereabouts is left"),
        "{done:?}"
    );
    assert_eq!(
        site.pools().get("rail0").await.unwrap().spec.ranges[0].exclude,
        ["10.5.0.40/31"]
    );
    let newer = ["newer-1", "newer-2", "newer-3"].map(Attachment::of);
    let freed: BTreeSet<String> = ["10.5.0.11", "10.5.0.13", "10.5.0.14"].map(str::to_owned).into();
    let mut given = BTreeSet::new();
    for pod in &newer {
        given.insert(node.add_soon("rail0", pod).await);
    }
    assert_eq!(given, freed);
    whereabouts::call(&site, "DEL", &rail0(), "two").done();
    let still: BTreeSet<String> = newer.iter().flat_map(|pod| node.add("rail0", pod)).collect();
    assert_eq!(still, freed, "a repeated ADD has the same result");
    let left = whereabouts::pools(&site).get("10.5.0.0-24").await.unwrap();
    let left: Vec<&String> = left.data["spec"]["allocations"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(
        left,
        ["12"],
        "addresses that leaked before remain allocated in whereabouts"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_incomplete_import_is_reported_and_the_pool_stays_closed() {
    let (site, _node) = moved_from().await;
    let file = site.server.kubeconfig();
    let import = |args: &[&str]| import(&file, args);
    let refused = |run: &Run| run.json()["refused"].to_string();

    // An entry that cannot be parsed could be any address.
    let odd = json!({ "id": "c", "podref": "default/odd" });
    change(&site, |allocations| {
        allocations.insert("x".to_owned(), odd);
    })
    .await;
    let run = import(&["whereabouts"]);
    assert_eq!(run.status, 1);
    assert!(
        refused(&run).contains("default/odd") && refused(&run).contains("not an offset in 10.5.0.0/24"),
        "{run:?}"
    );
    assert!(site.has_no_pool().await);
    change(&site, |allocations| {
        allocations.remove("x");
    })
    .await;

    // An operator would undo the switch of its network.
    let own = |references: Value| async {
        let mut object = networks(&site).get("rail0").await.unwrap();
        object.metadata.owner_references = serde_json::from_value(references).unwrap();
        let plain = PostParams::default();
        networks(&site).replace("rail0", &plain, &object).await.unwrap();
    };
    own(json!([{
        "apiVersion": "mellanox.com/v1alpha1", "kind": "MacvlanNetwork", "name": "rail0", "uid": "u", "controller": true,
    }]))
    .await;
    let run = import(&["whereabouts", "--switch", "--dry-run"]);
    assert!(
        run.status == 1 && run.message().contains("belongs to MacvlanNetwork rail0"),
        "{run:?}"
    );
    let run = import(&["whereabouts", "--switch"]);
    assert!(
        run.status == 1 && run.message().contains("belongs to MacvlanNetwork rail0"),
        "{run:?}"
    );
    assert_eq!(ipam_of(&site, "rail0").await, rail0());
    own(json!([])).await;
    site.pools()
        .delete("rail0", &DeleteParams::default())
        .await
        .unwrap();
    until("the pool is gone", async || site.has_no_pool().await).await;

    // Of two networks on one range, only one is switched: the pool stays closed.
    let ipam = rail0();
    network(&site, "rail0-b", &ipam).await;
    let run = import(&["whereabouts", "--switch"]);
    assert_eq!(
        run.json()["pools"][0]["pool"],
        "whereabouts-10-5-0-0-24",
        "{run:?}"
    );
    for name in ["rail0", "rail0-b"] {
        assert_eq!(ipam_of(&site, name).await["pool"], "whereabouts-10-5-0-0-24");
    }
    let delete = DeleteParams::default();
    networks(&site).delete("rail0-b", &delete).await.unwrap();
    network(&site, "rail0-b", &ipam).await;
    let run = import(&["whereabouts", "--grace", "0"]);
    assert_eq!(
        (&run.json()["pools"][0]["state"], run.status),
        (&json!("closed"), 1),
        "{run:?}"
    );
    // A damaged network in the middle of the import keeps the pool closed as well.
    networks(&site).delete("rail0-b", &delete).await.unwrap();
    create(
        &networks(&site),
        "rail0-b",
        &json!({ "config": r#"{"ipam": {"type": "whereabouts""# }),
    )
    .await;
    let run = import(&["whereabouts", "--grace", "0"]);
    assert!(
        refused(&run).contains("default/rail0-b") && refused(&run).contains("not JSON"),
        "{run:?}"
    );
    assert!(refused(&run).contains("waits until"), "{run:?}");
    let pool = site.pools().get("whereabouts-10-5-0-0-24").await.unwrap();
    assert!(
        serde_json::to_string(&pool.spec.node_selector)
            .unwrap()
            .contains("closed")
    );
    networks(&site).delete("rail0-b", &delete).await.unwrap();
    // A network with a part of the range also keeps the pool closed, although it has another name for its range.
    let part = json!({ "type": "whereabouts", "range": "10.5.0.32/28" });
    network(&site, "part", &part).await;
    let run = import(&["whereabouts", "--grace", "0", "--switch"]);
    assert!(
        run.status == 1 && refused(&run).contains("default/part") && refused(&run).contains("10.5.0.32/28"),
        "{run:?}"
    );
    assert_eq!(ipam_of(&site, "part").await, part);
    let pool = site.pools().get("whereabouts-10-5-0-0-24").await.unwrap();
    assert!(
        serde_json::to_string(&pool.spec.node_selector)
            .unwrap()
            .contains("closed")
    );
    networks(&site).delete("part", &delete).await.unwrap();
    site.wait_condition("whereabouts-10-5-0-0-24", "Ready", "True")
        .await;
    let run = import(&["whereabouts", "--grace", "0"]);
    assert_eq!(
        (&run.json()["pools"][0]["state"], run.status),
        (&json!("open"), 0),
        "{run:?}"
    );

    // A network is switched back to whereabouts afterwards.
    network(&site, "rail0-b", &ipam).await;
    let run = import(&["whereabouts"]);
    assert_eq!(
        (&run.json()["pools"][0]["state"], run.status),
        (&json!("conflict"), 1),
        "{run:?}"
    );
    assert!(run.message().contains("both plugins allocate"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_nv_ipam_and_host_local_are_imported_too() {
    let site = site().await;
    let node = Member::running(&site.server, "a", &[]).await;
    let file = site.server.kubeconfig();
    let import = |args: &[&str]| import(&file, args);
    let nv = api(&site, "nv-ipam.nvidia.com", "IPPool", "ippools");
    let spec = json!({
        "subnet": "10.6.0.0/24", "perNodeBlockSize": 20, "gateway": "10.6.0.1", "routes": [{ "dst": "10.0.0.0/8" }],
        "exclusions": [{ "startIP": "10.6.0.100", "endIP": "10.6.0.109" }],
        "nodeSelector": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "rail", "operator": "DoesNotExist" }] }] },
    });
    create(&nv, "rail1", &spec).await;
    network(&site, "rail1", &json!({ "type": "nv-ipam", "poolName": "rail1" })).await;
    network(
        &site,
        "subnets",
        &json!({ "type": "nv-ipam", "poolName": "x", "poolType": "cidrpool" }),
    )
    .await;
    pod_with(&site, "one", "a", "default/rail1", &["10.6.0.2".to_owned()]).await;
    site.pod("two", "a").await;
    let store = tempfile::tempdir().unwrap();
    let entry = |pod: &str, ip: &str| json!({ "container_id": "c", "interface_name": "net1", "ip_address": ip, "metadata": { "pod_name": pod, "pod_namespace": "default" } });
    let content = json!({ "version": 1, "checksum": 1, "pools": { "rail1": { "name": "rail1", "entries": {
        "c_net1": entry("two", "10.6.0.3"), "d_net1": entry("gone", "10.6.0.4"),
    } } } });
    let path: PathBuf = store.path().join("store");
    std::fs::write(&path, content.to_string()).unwrap();

    let from = path.to_str().unwrap();
    let run = import(&["nv-ipam", "--switch", "--from", from]);
    assert!(run.json()["refused"].to_string().contains("CIDRPool"), "{run:?}");
    assert_eq!(
        run.json()["pools"][0]["inUse"].as_array().unwrap().len(),
        2,
        "{run:?}"
    );
    let pool = site.pools().get("rail1").await.unwrap();
    assert_eq!(
        pool.spec.ranges[0].exclude,
        ["10.6.0.100-10.6.0.109", "10.6.0.2-10.6.0.3"]
    );
    assert_eq!(
        (pool.spec.block_size.v4, pool.spec.routes[0].gw.as_deref()),
        (32, Some("10.6.0.1"))
    );
    networks(&site)
        .delete("subnets", &DeleteParams::default())
        .await
        .unwrap();
    std::fs::write(&path, &content.to_string()[..40]).unwrap();
    let damaged = import(&["nv-ipam", "--from", from]);
    assert!(
        damaged.status == 2 && damaged.err.contains(from) && damaged.err.contains("damaged"),
        "{damaged:?}"
    );
    site.wait_condition("rail1", "Ready", "True").await;
    later::install_later(&site.admin).await;
    let raw = later::raw(&site.admin, "IPPool", "ippools");
    let with_later = Patch::Merge(json!({ "spec": { later::LATER: "kept" } }));
    until("the later definition is in force", async || {
        let patched = raw.patch("rail1", &PatchParams::default(), &with_later).await;
        patched.unwrap().data["spec"][later::LATER] == "kept"
    })
    .await;
    until(
        "the controller has read the spec with the later field",
        async || {
            let pool = site.pools().get("rail1").await.unwrap();
            pool.status.and_then(|status| status.observed_generation) == pool.metadata.generation
        },
    )
    .await;
    let run = import(&["nv-ipam", "--grace", "0"]);
    assert_eq!(run.json()["pools"][0]["state"], "open", "{run:?}");
    let opened = raw.get("rail1").await.unwrap();
    assert_eq!(
        opened.data["spec"][later::LATER],
        "kept",
        "a field that the command does not know stays"
    );
    assert_eq!(
        site.pools()
            .get("rail1")
            .await
            .unwrap()
            .spec
            .node_selector
            .unwrap()
            .match_expressions
            .unwrap()[0]
            .key,
        "rail"
    );
    node.wait_active("rail1").await;

    let data = tempfile::tempdir().unwrap();
    let directory = data.path().join("rail2");
    std::fs::create_dir(&directory).unwrap();
    for (name, content) in [
        ("10.7.0.2", "c1\r\nnet1"),
        ("10.7.0.9", ""),
        ("last_reserved_ip.0", "10.7.0.9"),
        ("lock", ""),
    ] {
        std::fs::write(directory.join(name), content).unwrap();
    }
    network(
        &site,
        "rail2",
        &json!({ "type": "host-local", "ranges": [[{ "subnet": "10.7.0.0/24", "rangeStart": "10.7.0.2" }]] }),
    )
    .await;
    let run = import(&["host-local", "--switch", "--from", data.path().to_str().unwrap()]);
    assert_eq!(run.status, 1, "{run:?}");
    let pool = site.pools().get("rail2").await.unwrap();
    assert_eq!(
        pool.spec.ranges[0].exclude,
        ["10.7.0.2", "10.7.0.9"],
        "a file that a power loss emptied counts as well"
    );
    assert_eq!(ipam_of(&site, "rail2").await["pool"], "rail2");
}
