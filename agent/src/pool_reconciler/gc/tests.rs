// SPDX-License-Identifier: Apache-2.0
//! The leases and objects that have ended, and what a round of the collector finds.

use super::super::testing::{
    address_object, commit_lease, commit_lease_of, damage_lease, file_of_earlier_boot, node_with,
    observing_node, refusal, registered_node, replace_file,
};
use super::*;
use crate::config::Config;
use api::deadline::Deadline;
use api::http::Health;
use api::testing::accepted_pool;
use clap::Parser as _;
use common::cni::{Args, Attachment, CniResult, ContainerId, IfName};
use ipam::store::{Lease, RequestId, Sandbox, Store};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A lease of `pod`'s interface, created `since` seconds after the boot.
fn lease(pod: Option<&str>, container: &str, ifname: &str, since: u64) -> StoredLease {
    StoredLease {
        lease: Lease {
            owner: Attachment {
                container_id: ContainerId::try_from(container.to_owned()).unwrap(),
                ifname: IfName::try_from(ifname.to_owned()).unwrap(),
            },
            network: "rail0".to_owned(),
            sandbox: Sandbox {
                pod: pod.map(str::to_owned),
                ..Sandbox::default()
            },
            api: Vec::new(),
            space: ipam::config::Space::default(),
            since: String::new(),
            since_boot: Duration::from_secs(since),
            result: CniResult::default(),
        },
        inode: 1,
    }
}

#[test]
fn only_an_older_sandbox_of_the_same_pod_and_interface_is_replaced() {
    let all = [
        lease(Some("default/a"), "c1", "net1", 10),
        lease(Some("default/a"), "c2", "net1", 20),
        lease(Some("default/a"), "c1", "net2", 11),
        lease(Some("default/b"), "c3", "net1", 5),
        lease(None, "c4", "net1", 1),
        lease(None, "c5", "net1", 2),
    ];
    let sandboxes = Sandboxes::of(&all);
    let newer: Vec<_> = all.iter().map(|stored| sandboxes.newer_than(stored)).collect();
    // Leases of another interface or pod, and leases without a pod name, replace nothing.
    assert_eq!(newer, [Some(Newer::Sandbox), None, None, None, None, None]);
}

/// A lease of the interface `net1` of the pod `default/a` with this UID, created `since` seconds after the boot.
fn lease_of(uid: &str, container: &str, since: u64) -> StoredLease {
    let mut stored = lease(Some("default/a"), container, "net1", since);
    stored.lease.sandbox.uid = Some(uid.to_owned());
    stored
}

#[test]
fn a_later_pod_of_the_name_is_no_newer_sandbox_of_the_pod() {
    let unnamed = lease(Some("default/a"), "c4", "net1", 40);
    let all = [
        lease_of("uid-1", "c1", 10),
        lease_of("uid-2", "c2", 20),
        lease_of("uid-2", "c3", 30),
    ];
    let newer = |all: &[StoredLease]| {
        let sandboxes = Sandboxes::of(all);
        let newer = all.iter().map(|stored| sandboxes.newer_than(stored));
        newer.collect::<Vec<_>>()
    };
    assert_eq!(newer(&all), [Some(Newer::Pod), Some(Newer::Sandbox), None]);
    let with_unnamed = [all.to_vec(), vec![unnamed]].concat();
    // A lease without a UID may be of any pod of the name.
    assert_eq!(newer(&with_unnamed)[0], Some(Newer::Sandbox));
}

/// The number of lost sandboxes while the namespaces of two leases exist. The second lease is of the pod `uid`.
async fn lost_sandboxes(uid: &str) -> String {
    const INTERVAL: Duration = Duration::from_millis(50);
    let (context, target, dir) = observing_node(INTERVAL).await;
    for (uid, container) in [("uid-1", "c1"), (uid, "c2")] {
        let netns = dir.path().join(container);
        symlink("/proc/self/ns/net", &netns).unwrap();
        let args = format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_UID={uid}");
        let sandbox = Sandbox::of(&Args::parse(&args).unwrap(), &netns);
        let made = context.agent.stores.with(&context.pool, move |store| {
            let locked = store.enter()?;
            let owner = lease(None, container, "net1", 1).lease.owner;
            locked.commit(&locked.draft(&owner, sandbox, CniResult::default())?)
        });
        made.await.unwrap();
        // The time of a lease counts milliseconds.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut collector = GarbageCollector::new(context.clone());
    for _ in 0..2 {
        collector.collect_leases(&target.api).await.unwrap();
        tokio::time::sleep(INTERVAL).await;
    }
    let metrics = context.agent.metrics();
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix("rdmanet_lost_sandboxes{pool=\"rail0\"} "));
    count.unwrap().to_owned()
}

/// Whether a lease whose namespace is gone is left after a few rounds of the collector, with requests that have this deadline.
async fn lease_is_left(deadline: Deadline) -> bool {
    const INTERVAL: Duration = Duration::from_millis(50);
    let (context, _, dir) = observing_node(INTERVAL).await;
    let args = Args::parse("K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_UID=uid-1").unwrap();
    let netns = dir.path().join("c1");
    symlink("/proc/self/ns/net", &netns).unwrap();
    let sandbox = Sandbox::of(&args, &netns);
    let made = context.agent.stores.with(&context.pool, move |store| {
        commit_lease_of(store, "c1", sandbox, ("10.1.0.3", false));
        Ok(())
    });
    made.await.unwrap();
    std::fs::remove_file(&netns).unwrap();
    let api = context.agent.clients.requests(deadline);
    let mut collector = GarbageCollector::new(context.clone());
    for _ in 0..6 {
        collector.collect_leases(&api).await.unwrap();
        tokio::time::sleep(INTERVAL).await;
    }
    let leases = context.agent.stores.leases(&context.pool).await.unwrap();
    !leases.intact.is_empty()
}

/// A round that a plugin has interrupted sends no request any more. The pod may exist, and its DEL may still come.
#[tokio::test]
async fn an_interrupted_round_is_no_evidence_against_a_lease() {
    let passed = Deadline::At(tokio::time::Instant::now());
    assert!(lease_is_left(passed).await);
    assert!(!lease_is_left(Deadline::background()).await, "the Pod is gone");
}

#[tokio::test]
async fn the_sandbox_of_a_pod_that_was_deleted_by_force_is_not_lost() {
    assert_eq!(lost_sandboxes("uid-1").await, "1", "a newer sandbox of the pod");
    assert_eq!(lost_sandboxes("uid-2").await, "0", "a later pod of the name");
}

/// The object of the address of `container`'s interface.
fn ipaddress(container: &str) -> IpAddress {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress", "metadata": { "name": "default-4-0a010003" },
        "spec": {
            "pool": "rail0", "address": "10.1.0.3", "block": "10.1.0.0/28", "node": { "node": "n", "nodeUID": "u" },
            "state": "Bound", "attachment": { "containerID": container, "ifname": "net1", "network": "net" },
        },
    }))
    .unwrap()
}

/// A controller with a longer quarantine may have marked it as orphaned.
#[test]
fn the_object_of_an_earlier_registration_waits_for_the_longer_of_two_quarantines() {
    let config = Config::try_parse_from(["rdmanet-agent", "--node", "n", "--quarantine=10m"]).unwrap();
    let me = |uid: &str| {
        NodeIdentity::Registered(block::Owner {
            node: "n".into(),
            uid: uid.into(),
        })
    };
    let wait = |uid: &str, recorded: Option<i64>| {
        let mut address = ipaddress("c1");
        address.spec.quarantine_seconds = recorded;
        observation_of(&config.daemon, &me(uid), &address).as_secs()
    };
    assert_eq!(wait("u", Some(3600)), 30);
    assert_eq!(
        [None, Some(60), Some(3600)].map(|recorded| wait("later", recorded)),
        [600, 600, 3600]
    );
}

#[test]
fn an_ended_lease_matches_only_the_object_of_its_own_attachment() {
    let mut released = Released {
        without_del: false,
        ip: "10.1.0.3".parse().unwrap(),
        lease: Some(lease(None, "c1", "net1", 1).lease),
        ended: None,
        inode: 1,
    };
    assert!(is_of("rail0", &ipaddress("c1"), &released));
    assert!(
        !is_of("rail0", &ipaddress("c2"), &released),
        "a pod that came after it has it"
    );
    assert!(!is_of("rail1", &ipaddress("c1"), &released));
    // The address is the only information in an unreadable release note.
    released.lease = None;
    assert!(is_of("rail0", &ipaddress("c2"), &released));
}

/// What the collector finds about the pod of a lease, if the API server has the pod `a` with this UID and phase.
async fn pod_state(uid: &str, phase: &str) -> PodState {
    state_of_pod(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "namespace": "default", "uid": uid },
        "status": { "phase": phase },
    }))
    .await
}

/// What the collector finds about the pod of a lease, if the API server answers with `pod`. The runtime knows the UID `uid-a`.
async fn state_of_pod(pod: serde_json::Value) -> PodState {
    let (context, target, _dir) = registered_node(move |_| (200, pod.clone())).await;
    let mut stored = lease(Some("default/a"), "c1", "net1", 1);
    stored.lease.sandbox.uid = Some("uid-a".to_owned());
    GarbageCollector::new(context)
        .pod_state(&target.api, &stored)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_finished_pod_has_ended_though_its_object_exists() {
    assert_eq!(pod_state("uid-a", "Running").await, PodState::Exists);
    for phase in ["Succeeded", "Failed"] {
        assert_eq!(pod_state("uid-a", phase).await, PodState::Ended(phase.to_owned()));
    }
    let replaced = PodState::Replaced("uid-b".to_owned());
    assert_eq!(pod_state("uid-b", "Succeeded").await, replaced);
}

/// The API server gives the object of a static pod a UID of its own.
#[tokio::test]
async fn a_running_static_pod_is_not_replaced() {
    let annotations = serde_json::json!({ "kubernetes.io/config.hash": "uid-a" });
    let mirror = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "a", "namespace": "default", "uid": "uid-b", "annotations": annotations },
        "status": { "phase": "Running" },
    });
    assert_eq!(state_of_pod(mirror).await, PodState::Exists);
}

/// What [`after_release`] found: the requests for single objects, and how many records of releases are left.
type Outcome = (Vec<String>, usize);

const LEASED_AGAIN: &str = "10.1.0.3";

/// The end of a release. The lease of `c1` on an address has ended, and the object of the lease exists. `before` gets the store
/// and the path of the record of the release.
async fn after_release(before: impl FnOnce(&Store<'_>, &Path) + Send + 'static) -> Outcome {
    after_release_with(0, before).await
}

/// A pool in which addresses rest for this many seconds.
fn pool_with_cooldown(seconds: u32) -> AcceptedPool {
    let spec = serde_json::json!({
        "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "cooldownSeconds": seconds,
    });
    accepted_pool("rail0", &spec).unwrap()
}

/// As [`after_release`], with this cooldown of the pool in seconds. The node has no file of the pool.
async fn after_release_with(
    cooldown: u32,
    before: impl FnOnce(&Store<'_>, &Path) + Send + 'static,
) -> Outcome {
    let object = ipaddress("c1");
    let requested = Arc::new(Mutex::new(Vec::new()));
    let seen = requested.clone();
    let (context, target, dir) = registered_node(move |uri| {
        if uri.contains("/ipaddresses/") {
            seen.lock().unwrap().push(uri.to_owned());
            return (200, serde_json::to_value(&object).unwrap());
        }
        let list = serde_json::json!({
            "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddressList", "metadata": {}, "items": [object],
        });
        (200, list)
    })
    .await;
    let record = dir.path().join("pools/rail0/releases").join(LEASED_AGAIN);
    let stores = &context.agent.stores;
    let prepared = stores.with(&context.pool, move |store| {
        lease_again(store, "c1");
        let owner = lease(None, "c1", "net1", 1).lease.owner;
        store.enter().unwrap().release(&owner).unwrap().unwrap();
        before(store, &record);
        Ok(())
    });
    prepared.await.unwrap();
    let mut collector = GarbageCollector::new(context.clone());
    let mut addresses = Addresses::new(context.clone());
    collector
        .release_ended(&target.api, Some(&pool_with_cooldown(cooldown)), &mut addresses)
        .await
        .unwrap();
    let left = stores.releases(&context.pool).await.unwrap().len();
    (requested.lock().unwrap().clone(), left)
}

/// The address of `c1` passed to `c2`, whose ADD was killed. While the release of `c1` had a record, the list of objects left the
/// address out.
#[tokio::test]
async fn an_object_behind_the_record_of_a_release_is_deleted_in_a_lost_pool() {
    let deleted = Arc::new(Mutex::new(0));
    let seen = deleted.clone();
    let list = serde_json::json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddressList", "metadata": {}, "items": [ipaddress("c2")],
    });
    let flags = ["--observation-interval", "1ms"];
    let (context, mut target, _dir) = node_with(&flags, move |uri, _| {
        if uri.contains("/ipaddresses/") {
            *seen.lock().unwrap() += 1;
            return (200, serde_json::to_value(ipaddress("c2")).unwrap());
        }
        (200, list.clone())
    })
    .await;
    target.accepted = None;
    let prepared = context.agent.stores.with(&context.pool, |store| {
        lease_again(store, "c1");
        store.enter()?.release(&lease(None, "c1", "net1", 1).lease.owner)
    });
    prepared.await.unwrap().unwrap();
    let mut collector = GarbageCollector::new(context.clone());
    collector.observed.collected_as = context.agent.identity();
    let (mut addresses, mut publisher) = (Addresses::new(context.clone()), Publisher::new(context));
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let collected = collector.collect(&target, &mut addresses, &mut publisher, true);
        collected.await.unwrap();
    }
    assert!(*deleted.lock().unwrap() > 0);
}

/// Makes a lease on the address, which is an object of the cluster.
fn lease_again(store: &Store<'_>, container: &str) {
    commit_lease(store, container, LEASED_AGAIN, true);
}

#[tokio::test]
async fn the_object_of_a_released_address_is_deleted() {
    let (requested, left) = after_release(|_, _| {}).await;
    assert_eq!((requested.len(), left), (1, 0), "{requested:?}");
}

/// The next round writes the file again.
#[tokio::test]
async fn an_address_rests_although_the_file_of_its_pool_is_missing() {
    assert_eq!(after_release_with(3600, |_, _| {}).await, (Vec::new(), 1));
}

#[tokio::test]
async fn the_object_of_an_address_that_its_attachment_leases_again_is_kept() {
    let outcome = after_release(|store, record| {
        let earlier = std::fs::read(record).unwrap();
        lease_again(store, "c1");
        // The agent found the record before ADD removed it, or ADD died before that.
        std::fs::write(record, earlier).unwrap();
    });
    assert_eq!(outcome.await, (Vec::new(), 0));
}

#[tokio::test]
async fn the_object_of_an_address_that_its_attachment_requests_again_is_kept() {
    let outcome = after_release(|store, _| {
        let owner = lease(None, "c1", "net1", 1).lease.owner;
        store
            .enter()
            .unwrap()
            .begin_asking(&owner, &RequestId::random())
            .unwrap();
    });
    let waits = (Vec::new(), 1);
    assert_eq!(outcome.await, waits, "the ADD may lease another address");
    let outcome = after_release(|store, record| {
        let owner = lease(None, "c1", "net1", 1).lease.owner;
        store
            .enter()
            .unwrap()
            .begin_asking(&owner, &RequestId::random())
            .unwrap();
        // No time of the end: the release is overdue.
        std::fs::write(record, "{").unwrap();
    });
    assert_eq!(outcome.await, (Vec::new(), 0), "no ADD waits that long");
}

#[tokio::test]
async fn an_unreadable_record_of_a_release_takes_no_address_from_another_pod() {
    let outcome = after_release(|store, record| {
        lease_again(store, "c2");
        std::fs::write(record, "{").unwrap();
    });
    assert_eq!(outcome.await, (Vec::new(), 0));
}

/// A lease in a block of the file needs no object. The comparison may remove the block from the file.
#[tokio::test]
async fn an_agent_lists_its_addresses_again_once_its_blocks_were_compared() {
    let none = serde_json::json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddressList", "metadata": {}, "items": [],
    });
    let (context, target, _dir) = registered_node(move |_| (200, none.clone())).await;
    let me = context.agent.identity().unwrap();
    let mut collector = GarbageCollector::new(context.clone());
    let (mut addresses, mut publisher) = (Addresses::new(context.clone()), Publisher::new(context));
    for proven in [false, true] {
        collector.observed.looked = None;
        collector
            .collect(&target, &mut addresses, &mut publisher, proven)
            .await
            .unwrap();
        assert!(collector.observed.listed.is_some());
        assert_eq!(
            collector.problem().is_none(),
            proven,
            "whether the agent is ready"
        );
        let observe = Duration::from_secs(30);
        assert_eq!(collector.observed.must_list(&me, observe, None), !proven);
    }
}

/// Why the agent is not ready, on a node without blocks whose only lease is damaged. `object`: the address has an object.
async fn problem_with_a_damaged_lease(object: bool) -> Option<String> {
    let items = if object { vec![ipaddress("c1")] } else { Vec::new() };
    let list = serde_json::json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddressList", "metadata": {}, "items": items,
    });
    let (context, target, dir) = registered_node(move |uri| {
        if uri.contains("/ipaddresses/") {
            refusal(409)
        } else {
            (200, list.clone())
        }
    })
    .await;
    damage_lease(&context, &dir, LEASED_AGAIN).await;
    let mut collector = GarbageCollector::new(context.clone());
    let (mut addresses, mut publisher) = (Addresses::new(context.clone()), Publisher::new(context));
    let collected = collector.collect(&target, &mut addresses, &mut publisher, true);
    collected.await.unwrap();
    collector.problem().map(str::to_owned)
}

#[tokio::test]
async fn an_agent_is_not_ready_while_an_unreadable_lease_needs_an_object() {
    let problem = problem_with_a_damaged_lease(false).await.unwrap();
    assert!(
        problem.contains("10.1.0.3 is taken on this node, and no readable lease has it"),
        "{problem}"
    );
    assert_eq!(problem_with_a_damaged_lease(true).await, None);
}

/// The number of lists of addresses in one look at the release of an address of the pod `default/POD`, which rests for an hour. In the
/// pool, each address is an object.
async fn lists_while_an_address_rests(pod: &'static str, sticky: &str) -> usize {
    let lists = Arc::new(Mutex::new(0));
    let seen = lists.clone();
    let (context, target, _dir) = registered_node(move |_| {
        *seen.lock().unwrap() += 1;
        let none = serde_json::json!({
            "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddressList", "metadata": {}, "items": [],
        });
        (200, none)
    })
    .await;
    let spec = serde_json::json!({
        "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "allocation": "PerAddress",
        "sticky": sticky, "cooldownSeconds": 3600,
    });
    let accepted = accepted_pool("rail0", &spec).unwrap();
    replace_file(&context, &file_of_earlier_boot(&context, &accepted)).await;
    let prepared = context.agent.stores.with(&context.pool, move |store| {
        let args = format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}");
        let sandbox = Sandbox::of(&Args::parse(&args).unwrap(), Path::new("/proc/self/ns/net"));
        commit_lease_of(store, "c1", sandbox, (LEASED_AGAIN, true));
        store.enter()?.release(&lease(None, "c1", "net1", 1).lease.owner)
    });
    prepared.await.unwrap().unwrap();
    let mut addresses = Addresses::new(context.clone());
    GarbageCollector::new(context)
        .release_ended(&target.api, Some(&accepted), &mut addresses)
        .await
        .unwrap();
    *lists.lock().unwrap()
}

#[tokio::test]
async fn an_agent_lists_no_objects_for_addresses_that_rest() {
    assert_eq!(lists_while_an_address_rests("db-0", "Never").await, 0);
    assert_eq!(
        lists_while_an_address_rests("app-5d9f-x7k2p", "StatefulSet").await,
        0
    );
    assert_eq!(
        lists_while_an_address_rests("db-0", "StatefulSet").await,
        1,
        "its pod may keep the address"
    );
}

/// A look of the collector at the objects of 10.1.0.3 and 10.1.0.4 while the API server refuses each change of the first. Both have the
/// lease of a container, which `prepare` may end. Returns which objects were changed, how many records of releases are left, and why
/// the agent is not ready.
async fn look_beside_a_refusal(
    state: &str,
    prepare: impl Fn(&Store<'_>, &Attachment) + Send + 'static,
) -> (usize, usize, Option<String>) {
    let both = [(LEASED_AGAIN, "c1"), ("10.1.0.4", "c2")];
    let objects = both.map(|(ip, container)| {
        let mut object = address_object(ip, container, "n");
        object["spec"]["state"] = state.into();
        object
    });
    let list = serde_json::json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddressList", "metadata": {}, "items": objects.clone(),
    });
    let (changed, other) = (Arc::new(Mutex::new(0)), objects[1].clone());
    let seen = changed.clone();
    let (context, mut target, _dir) = node_with(&[], move |uri, body| {
        let is_refused = uri.contains(&address_name("default", LEASED_AGAIN.parse().unwrap()));
        if !uri.contains("/ipaddresses/") {
            (200, list.clone())
        } else if is_refused {
            refusal(403)
        } else {
            *seen.lock().unwrap() += 1;
            let mut object = other.clone();
            if let Some(state) = body["spec"].get("state") {
                object["spec"]["state"] = state.clone();
            }
            (200, object)
        }
    })
    .await;
    let stores = &context.agent.stores;
    let prepared = stores.with(&context.pool, move |store| {
        for (ip, container) in both {
            commit_lease(store, container, ip, true);
            prepare(store, &lease(None, container, "net1", 1).lease.owner);
        }
        Ok(())
    });
    prepared.await.unwrap();
    let mut collector = GarbageCollector::new(context.clone());
    let (mut addresses, mut publisher) = (Addresses::new(context.clone()), Publisher::new(context.clone()));
    target.accepted = Some(pool_with_cooldown(0));
    let collected = collector.collect(&target, &mut addresses, &mut publisher, true);
    let error = collected.await.unwrap_err();
    assert!(error.is_refusal(), "{error}");
    let left = stores.releases(&context.pool).await.unwrap().len();
    let changed = *changed.lock().unwrap();
    (changed, left, collector.problem().map(str::to_owned))
}

/// As by an admission webhook of another program.
#[tokio::test]
async fn a_refused_release_does_not_stop_another_one_nor_the_agent() {
    let looked = look_beside_a_refusal("Bound", |store, owner| {
        store.enter().unwrap().release(owner).unwrap().unwrap();
    });
    assert_eq!(looked.await, (1, 1, None));
}

#[tokio::test]
async fn a_refused_renewal_does_not_stop_another_one() {
    let (changed, _, problem) = look_beside_a_refusal("Orphaned", |_, _| {}).await;
    assert!(changed > 0);
    assert!(problem.is_some(), "the API server may free the first address");
}

#[tokio::test]
async fn an_agent_lists_its_addresses_again_after_a_block_was_removed() {
    let (context, ..) = registered_node(|_| refusal(404)).await;
    let me = context.agent.identity().unwrap();
    let mut collector = GarbageCollector::new(context);
    collector.observed.kept_as = Some(me.clone());
    collector.observed.listed = Some(Instant::now());
    let interval = Duration::from_secs(30);
    assert!(!collector.observed.must_list(&me, interval, None));
    collector.expect_missing_objects();
    assert!(collector.observed.must_list(&me, interval, None));
}
