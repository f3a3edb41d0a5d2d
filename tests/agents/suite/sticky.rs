// SPDX-License-Identifier: Apache-2.0
//! Pods of a `StatefulSet` keep their addresses.

use agents::pools::{simple, sticky_per_address};
use agents::{Attachment, Member, Site};
use api::{AddressState, IpAddress, IpAddressSpec};
use apiserver::install::until;
use serde_json::json;
use std::time::{Duration, Instant};

/// Two nodes, a pool whose last sixteen addresses are sticky, and a `StatefulSet` of two.
async fn prepared() -> (Site, [Member; 2]) {
    prepared_with(&[]).await
}

/// The same with these flags of agents and controller.
async fn prepared_with(flags: &[&str]) -> (Site, [Member; 2]) {
    let site = Site::with(flags).await;
    let nodes = site.two_nodes_with(flags).await;
    let mut spec = simple("10.1.0.0/24");
    spec["reserved"] = json!(["10.1.0.240/28"]);
    spec["sticky"] = json!("StatefulSet");
    // The cooldown does not apply to an address that returns to its pod.
    spec["cooldownSeconds"] = json!(3600);
    site.pool("rail0", spec).await;
    site.stateful_set("db", 2).await;
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    until("every node has noted what is reserved", async || {
        let blocks = site.blocks("rail0").await;
        blocks.iter().all(|block| {
            block
                .status
                .as_ref()
                .is_some_and(|status| status.observed_generation >= Some(1))
        })
    })
    .await;
    (site, nodes)
}

/// An interface of the pod with this ordinal, in its own sandbox.
fn sandbox(ordinal: u32, uid: &str, container: &str) -> Attachment {
    Attachment {
        pod: format!("default/db-{ordinal}"),
        uid: uid.to_owned(),
        ..Attachment::of(container)
    }
}

async fn only(site: &Site) -> IpAddress {
    let mut all = site.addresses().await;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The address of the pool that this pod has, or that is kept for it.
async fn address_of(site: &Site, pool: &str, pod: &str) -> Option<IpAddressSpec> {
    let mut all = site.addresses().await.into_iter().map(|address| address.spec);
    all.find(|spec| spec.pool == pool && spec.holder.as_ref().is_some_and(|holder| holder.pod == pod))
}

async fn wait_kept(site: &Site) {
    until("the address is kept", async || {
        let all = site.addresses().await;
        all.len() == 1 && all[0].spec.state == AddressState::Kept
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_pod_keeps_its_address_after_a_restart_on_any_node() {
    let (site, nodes) = prepared().await;
    let uid = site.replica("db", 0, "a").await;
    let first = sandbox(0, &uid, "s1");
    let ip = nodes[0].add("rail0", &first).remove(0);
    assert!(ip.starts_with("10.1.0.2"), "{ip} is not a reserved one");
    assert_eq!(nodes[0].add("rail0", &first), [ip.as_str()]);
    let there = only(&site).await.spec;
    assert_eq!(there.holder.unwrap().stateful_set, "db");
    assert_eq!(there.pod.unwrap().uid.as_ref(), Some(&uid));
    // A new sandbox of the same pod: the DEL of the old one comes first and does not wait.
    nodes[0].del("rail0", &first);
    let second = sandbox(0, &uid, "s2");
    assert_eq!(nodes[0].add("rail0", &second), [ip.as_str()]);
    // A new pod of the same name, on the same node and on another.
    nodes[0].del("rail0", &second);
    site.remove_pod("db-0").await;
    wait_kept(&site).await;
    let uid = site.replica("db", 0, "a").await;
    let third = sandbox(0, &uid, "s3");
    assert_eq!(nodes[0].add("rail0", &third), [ip.as_str()]);
    nodes[0].del("rail0", &third);
    site.remove_pod("db-0").await;
    wait_kept(&site).await;
    let uid = site.replica("db", 0, "b").await;
    let fourth = sandbox(0, &uid, "s4");
    assert_eq!(nodes[1].add("rail0", &fourth), [ip.as_str()]);
    let there = only(&site).await.spec;
    assert_eq!(
        (there.node.node.as_str(), there.state),
        ("b", AddressState::Bound)
    );
    // The other replica has its own address, and a pod without an owner gets one from a block.
    let uid = site.replica("db", 1, "a").await;
    assert_ne!(nodes[0].add("rail0", &sandbox(1, &uid, "s5")), [ip]);
    assert_eq!(site.addresses().await.len(), 2);
    nodes[0].add("rail0", &Attachment::of("plain"));
    site.pod("like-0", "a").await;
    nodes[0].add(
        "rail0",
        &Attachment {
            uid: String::new(),
            ..Attachment::of("like-0")
        },
    );
    assert_eq!(site.addresses().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_incarnations_of_a_pod_never_have_its_address_at_once() {
    let (site, nodes) = prepared().await;
    let uid = site.replica("db", 0, "a").await;
    let old = sandbox(0, &uid, "old");
    let ip = nodes[0].add("rail0", &old).remove(0);
    // A forced deletion: the containers still run.
    site.remove_pod("db-0").await;
    let again = site.replica("db", 0, "b").await;
    let new = sandbox(0, &again, "new");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let pieces: [&str; 5] = [&ip, "default/db-0", &uid, "still has it on node a", "agent"];
    nodes[1].refused("rail0", &new, &[11], &pieces);
    // The old pod is refused too, because its name belongs to another pod now.
    nodes[0].refused("rail0", &sandbox(0, &uid, "late"), &[11], &[&again]);
    nodes[0].refused(
        "rail0",
        &sandbox(0, &again, "elsewhere"),
        &[],
        &["bound to node b"],
    );
    nodes[0].del("rail0", &old);
    assert_eq!(nodes[1].add_soon("rail0", &new).await, ip);

    // The node of the pod is lost, and an administrator deletes the pod.
    nodes[1].kill();
    site.set_node_ready("b", false).await;
    // A pod that is there.
    nodes[0].refused("rail0", &sandbox(0, &again, "third"), &[11], &[]);
    // Without a controller the address passes on to no pod, however long the first ADD takes.
    assert!(site.controller.stop());
    site.remove_pod("db-0").await;
    let uid = site.replica("db", 0, "a").await;
    let third = sandbox(0, &uid, "third");
    nodes[0].refused("rail0", &third, &[], &["does not respond"]);
    site.controller.start(&site.server, &[]);
    assert_eq!(nodes[0].add_soon("rail0", &third).await, ip);
    // The lost node returns. Its DEL does not affect the new pod.
    nodes[1].start();
    site.set_node_ready("b", true).await;
    nodes[1].del("rail0", &new);
    // Its agent handles two later DELs, one after the other.
    let uid = site.replica("db", 1, "b").await;
    for container in ["later", "last"] {
        nodes[1].add("rail0", &sandbox(1, &uid, container));
        nodes[1].del("rail0", &sandbox(1, &uid, container));
        until("the later address is kept", async || {
            let kept = address_of(&site, "rail0", "db-1").await;
            kept.is_some_and(|spec| spec.state == AddressState::Kept)
        })
        .await;
    }
    let there = address_of(&site, "rail0", "db-0").await.unwrap();
    assert_eq!(
        (there.state, there.node.node.as_str()),
        (AddressState::Bound, "a")
    );
}

/// The pod garbage collector removes the pod of a deleted Node, and its `StatefulSet` makes the pod again at once. So no
/// person has stated that the containers of the first pod ended.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_a_pod_on_a_deleted_node_passes_on_after_the_quarantine() {
    // The first ADD on the other node comes within the quarantine, on a busy machine too.
    let quarantine = Duration::from_secs(60);
    let (site, nodes) = prepared_with(&["--quarantine", "60s", "--quarantine-in-use", "60s"]).await;
    let uid = site.replica("db", 0, "a").await;
    let ip = nodes[0].add("rail0", &sandbox(0, &uid, "old")).remove(0);
    nodes[0].kill();
    let deleted = Instant::now();
    nodes[0].identity.leave(&site.admin).await;
    site.remove_pod("db-0").await;
    let uid = site.replica("db", 0, "b").await;
    let new = sandbox(0, &uid, "new");
    nodes[1].refused("rail0", &new, &[11], &[&ip, "Node object is gone"]);
    assert_eq!(nodes[1].add_soon("rail0", &new).await, ip);
    let waited = deleted.elapsed();
    assert!(waited >= quarantine, "the address passed on after {waited:?}");
}

/// Waits until the controller has looked at all kept addresses as often as a release takes: twice it frees an address of a pool
/// without a cooldown, which is kept for a pod of another `StatefulSet` that ends here.
async fn until_controller_looked(site: &Site, node: &Member, sets: &[&str; 2]) {
    for set in sets {
        site.stateful_set(set, 1).await;
        let uid = site.replica(set, 0, "a").await;
        let attachment = Attachment {
            pod: format!("default/{set}-0"),
            uid,
            ..Attachment::of(set)
        };
        node.add("rail1", &attachment);
        node.del("rail1", &attachment);
        site.remove_set(set).await;
        until("the later address is free", async || {
            address_of(site, "rail1", &format!("{set}-0")).await.is_none()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sticky_addresses_are_released_on_scale_down_and_on_deletion_of_the_set() {
    let (site, nodes) = prepared().await;
    // Its addresses do not rest.
    site.pool("rail1", sticky_per_address("10.2.0.0/28")).await;
    until("the pool is here", async || !nodes[0].file("rail1").is_null()).await;
    for ordinal in 0..2 {
        let uid = site.replica("db", ordinal, "a").await;
        for pool in ["rail0", "rail1"] {
            let attachment = sandbox(ordinal, &uid, &format!("s{ordinal}-{pool}"));
            nodes[0].add(pool, &attachment);
            nodes[0].del(pool, &attachment);
        }
    }
    until("the addresses are kept", async || {
        let all = site.addresses().await;
        all.len() == 4 && all.iter().all(|address| address.spec.state == AddressState::Kept)
    })
    .await;
    until_controller_looked(&site, &nodes[0], &["one", "two"]).await;
    let all = site.addresses().await;
    assert_eq!(all.len(), 4, "as long as there are two replicas: {all:?}");
    site.scale("db", 1).await;
    until("the second one's without a cooldown is free", async || {
        site.addresses().await.len() == 3
    })
    .await;
    until_controller_looked(&site, &nodes[0], &["three", "four"]).await;
    assert!(
        address_of(&site, "rail0", "db-1").await.is_some(),
        "the second one's rests"
    );
    site.edit("rail0", json!({ "spec": { "cooldownSeconds": 0 } }))
        .await;
    until("the second one's is free", async || {
        site.addresses().await.len() == 2
    })
    .await;
    for pool in ["rail0", "rail1"] {
        assert!(address_of(&site, pool, "db-0").await.is_some());
    }
    site.remove_set("db").await;
    until("the first one's is free", async || {
        site.addresses().await.is_empty()
    })
    .await;
    site.controller.wait_log("has 1 replicas from ordinal 0 on");
    site.controller.wait_log("StatefulSet default/db is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_during_add_changes_no_sticky_address() {
    let (site, nodes) = prepared().await;
    let uid = site.replica("db", 0, "a").await;
    let mut ip = None;
    for round in 0..12_u32 {
        let attachment = sandbox(0, &uid, &format!("s{round}"));
        std::thread::scope(|scope| {
            let node = &nodes[0];
            let add = scope.spawn(|| node.call("ADD", "rail0", &attachment));
            std::thread::sleep(Duration::from_millis(u64::from(round) * 3));
            node.interrupt();
            add.join().unwrap();
        });
        nodes[0].kill();
        nodes[0].start();
        let now = nodes[0].add_soon("rail0", &attachment).await;
        assert_eq!(*ip.get_or_insert_with(|| now.clone()), now, "round {round}");
        assert_eq!(site.addresses().await.len(), 1, "round {round}");
        nodes[0].del("rail0", &attachment);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_sticky_addresses_add_needs_the_api_server_and_del_does_not() {
    let (site, nodes) = prepared().await;
    let uid = site.replica("db", 0, "a").await;
    let first = sandbox(0, &uid, "s1");
    let ip = nodes[0].add("rail0", &first);
    site.server.freeze();
    nodes[0].del("rail0", &first);
    nodes[0].refused("rail0", &sandbox(0, &uid, "s2"), &[11, 119], &[]);
    nodes[0].add("rail0", &Attachment::of("plain"));
    site.server.resume();
    wait_kept(&site).await;
    site.remove_pod("db-0").await;
    let uid = site.replica("db", 0, "b").await;
    assert_eq!(
        [nodes[1].add_soon("rail0", &sandbox(0, &uid, "s3")).await].as_slice(),
        ip
    );
    nodes[1].kill();
    nodes[1].refused("rail0", &sandbox(0, &uid, "s4"), &[11], &[]);
    nodes[1].add("rail0", &Attachment::of("plain"));
    nodes[1].del("rail0", &sandbox(0, &uid, "s3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_per_address_pool_keeps_sticky_addresses_until_it_is_deleted() {
    let (site, node) = Site::with_node().await;
    site.pool("rail0", sticky_per_address("10.1.0.0/28")).await;
    site.stateful_set("db", 1).await;
    until("the pool is here", async || !node.file("rail0").is_null()).await;
    let uid = site.replica("db", 0, "a").await;
    let ip = node.add("rail0", &sandbox(0, &uid, "s1"));
    node.del("rail0", &sandbox(0, &uid, "s1"));
    for i in 0..13 {
        assert_ne!(
            node.add("rail0", &Attachment::of(&format!("p{i}"))),
            ip,
            "it is kept for another"
        );
    }
    node.refused("rail0", &Attachment::of("more"), &[110], &[]);
    assert_eq!(node.add("rail0", &sandbox(0, &uid, "s2")), ip);
    node.del("rail0", &sandbox(0, &uid, "s2"));
    (0..13).for_each(|i| node.del("rail0", &Attachment::of(&format!("p{i}"))));
    site.delete("rail0").await;
    until("nothing is left", async || {
        site.addresses().await.is_empty() && site.pools().get_opt("rail0").await.unwrap().is_none()
    })
    .await;
}

/// Otherwise the wait for the second address begins after that for the first one, and both take a quarantine.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_requests_the_release_of_its_addresses_of_both_families_at_once() {
    let flags = ["--quarantine", "1h", "--quarantine-in-use", "1h"];
    let site = Site::with(&flags).await;
    let nodes = site.two_nodes_with(&flags).await;
    let mut spec = sticky_per_address("10.1.0.0/24");
    let ranges = spec["ranges"].as_array_mut().unwrap();
    ranges.push(json!({ "subnet": "fd00::/120", "gateway": "none" }));
    site.pool("rail0", spec).await;
    site.stateful_set("db", 1).await;
    for node in &nodes {
        until("the pool is here", async || !node.file("rail0").is_null()).await;
    }
    let uid = site.replica("db", 0, "a").await;
    assert_eq!(nodes[0].add("rail0", &sandbox(0, &uid, "old")).len(), 2);
    nodes[0].kill();
    nodes[0].identity.leave(&site.admin).await;
    site.remove_pod("db-0").await;
    let uid = site.replica("db", 0, "b").await;
    nodes[1].refused("rail0", &sandbox(0, &uid, "new"), &[11], &["Node object is gone"]);
    let status = site.pools().get("rail0").await.unwrap().status.unwrap();
    let requested = status.requests["b"].clone().unwrap().addresses;
    assert_eq!(requested.len(), 2, "{requested:?}");
}
