// SPDX-License-Identifier: Apache-2.0
//! Agents and plugins of two versions on the nodes of a cluster that has the manifests and the controller of today.

use crate::cluster::{BOTH, KEEPS_BLOCKS, Pods, blocks_of, leases, node_of, replace_agent, wait_pool};
use agents::pools::simple;
use agents::{Attachment, Member, Named, Site};
use apiserver::install::until;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tests::Version;
use tests::Version::{Earlier, Today};

/// Agent and plugins at each moment of an upgrade, a rollback, and a second upgrade.
const STAGES: [(Version, Version); 7] = [
    (Earlier, Earlier),
    (Today, Earlier),
    (Today, Today),
    (Earlier, Today),
    (Earlier, Earlier),
    (Earlier, Today),
    (Today, Today),
];

/// A pool with blocks, and one whose addresses are all objects, for which a plugin asks its agent at each ADD.
async fn two_pools(site: &Site) {
    site.simple("rail0", "10.1.0.0/24").await;
    let mut spec = simple("10.2.0.0/24");
    spec["allocation"] = json!("PerAddress");
    site.pool("each", spec).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_keep_their_addresses_while_a_node_is_upgraded_and_rolled_back() {
    let site = Site::new().await;
    two_pools(&site).await;
    let node = Member::new(&site.server, "a", &KEEPS_BLOCKS).await;
    let pods = Pods::default();
    let mut living: Vec<(&str, Attachment, String)> = Vec::new();
    let mut blocks: BTreeSet<String> = BTreeSet::new();
    for (stage, (agent, plugin)) in STAGES.into_iter().enumerate() {
        replace_agent(&node, agent).await;
        node.wait_active("rail0").await;
        wait_pool(&node, "each").await;
        for (pool, attachment, ip) in &living {
            let again = node.call_of(plugin, "ADD", pool, attachment);
            assert_eq!(&again.addresses()[0], ip, "a repeated ADD in stage {stage}");
            node.check_of(plugin, pool, attachment, again.result());
        }
        for pool in ["rail0", "each"] {
            let attachment = Attachment::of(&format!("{pool}-{stage}"));
            let ip = pods.add(plugin, &node, pool, &attachment).await;
            living.push((pool, attachment, ip));
        }
        if stage >= 3 {
            for _ in 0..2 {
                let (pool, attachment, ip) = living.remove(0);
                pods.del(plugin, &node, pool, (&attachment, &ip));
            }
        }
        let now: BTreeSet<String> = blocks_of(&site, "rail0", &node).await.into_iter().collect();
        assert!(blocks.is_subset(&now), "stage {stage}: {blocks:?} became {now:?}");
        blocks = now;
    }
    until("the objects of released addresses are gone", async || {
        site.addresses().await.len() == living.len() / 2
    })
    .await;
    for (pool, attachment, ip) in &living {
        pods.del(Earlier, &node, pool, (attachment, ip));
    }
    assert_eq!(leases(&node, "rail0"), [""; 0]);
    assert_eq!(leases(&node, "each"), [""; 0]);
    until("no address has an object", async || {
        site.addresses().await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_address_has_one_pod_on_nodes_of_two_versions() {
    let site = Site::new().await;
    let mut spec = simple("10.1.0.0/24");
    spec["reserved"] = json!(["10.1.0.200-10.1.0.210"]);
    site.pool("rail0", spec).await;
    let nodes = [
        node_of(Earlier, &site.server, "earlier", &[]).await,
        node_of(Today, &site.server, "today", &[]).await,
    ];
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    let pods = Pods::default();
    let [one, two] = ["one", "two"].map(|name| Attachment::of(name).asking("10.1.0.205"));
    // Whether the plugin has the version of its agent, for both.
    for same in [true, false] {
        for (i, first) in BOTH.into_iter().enumerate() {
            let plugin = |agent: Version| if same { agent } else { agent.other() };
            let (node, other) = (&nodes[i], &nodes[1 - i]);
            let ip = pods.add(plugin(first), node, "rail0", &one).await;
            assert_eq!(ip, "10.1.0.205");
            assert_eq!(pods.add(plugin(first), node, "rail0", &one).await, ip);
            let answer = other.call_of(plugin(first.other()), "ADD", "rail0", &two);
            answer.refused(111, &["default/one"]);
            pods.del(plugin(first), node, "rail0", (&one, &ip));
            // The other node gets it next, in the following round.
            until("it is free", async || site.addresses().await.is_empty()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_two_versions_allocate_every_address_of_a_pool_exactly_once() {
    let site = Site::new().await;
    site.simple("rail0", "10.1.0.0/26").await;
    let nodes = [
        node_of(Earlier, &site.server, "earlier", &KEEPS_BLOCKS).await,
        node_of(Today, &site.server, "today", &KEEPS_BLOCKS).await,
    ];
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    let pods = Pods::default();
    let mut given = BTreeSet::new();
    let mut turn = 0;
    // A node without a free address leaves the pod to the other.
    until("every address has a pod", async || {
        for i in 0..124 {
            let (node, plugin) = (&nodes[i % 2], BOTH[i / 2 % 2]);
            let attachment = Attachment::of(&format!("p{turn}"));
            turn += 1;
            given.extend(pods.try_add(plugin, node, "rail0", &attachment));
        }
        given.len() == 62
    })
    .await;
    assert_eq!(pods.ledger.len(), 62);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_releases_the_leases_that_a_plugin_of_another_version_made_for_gone_pods() {
    let site = Site::new().await;
    site.simple("rail0", "10.1.0.0/24").await;
    // Keeps the directory while the others are deleted.
    let _last = Named::new("versions-last");
    for agent in BOTH {
        let name = format!("{agent:?}").to_lowercase();
        let node = node_of(agent, &site.server, &name, &KEEPS_BLOCKS).await;
        node.wait_active("rail0").await;
        let mut netns = Vec::new();
        let mut of = async |pod: &str| {
            let name = format!("{name}-{pod}");
            netns.push(Named::new(&name));
            Attachment {
                uid: site.pod(&name, &node.identity.node.node).await,
                netns: netns.last().unwrap().path(),
                ..Attachment::of(&name)
            }
        };
        let (gone, kept) = (of("gone").await, of("kept").await);
        node.call_of(agent.other(), "ADD", "rail0", &gone).addresses();
        node.call_of(agent.other(), "ADD", "rail0", &kept).addresses();
        netns.remove(0);
        site.remove_pod(&gone.container).await;
        site.remove_pod(&kept.container).await;
        until("the lease is released", async || {
            leases(&node, "rail0").len() == 1
        })
        .await;
        assert_eq!(leases(&node, "rail0"), [format!("{}@net1", kept.container)]);
    }
}

/// A node for each version, and the pools `rail0` and `other`. The first node has a block of `rail0`.
async fn beside_another_pool(versions: [Version; 2]) -> (Site, [Member; 2]) {
    let site = Site::new().await;
    let nodes = [
        node_of(versions[0], &site.server, "a", &KEEPS_BLOCKS).await,
        node_of(versions[1], &site.server, "b", &KEEPS_BLOCKS).await,
    ];
    let mut other = simple("10.2.0.0/24");
    // No node has a block of this pool, so it is deleted at once.
    other["allocation"] = json!("PerAddress");
    site.pool("other", other).await;
    site.wait_condition("other", "Ready", "True").await;
    site.simple("rail0", "10.1.0.0/24").await;
    nodes[0].wait_active("rail0").await;
    (site, nodes)
}

/// One edit reserves the address of a pod on a node with an earlier agent, and adds addresses that another pool allocates in
/// another way. The edit is refused. It takes effect under the same generation after the other pool is gone. An agent before
/// `acceptedGeneration` reports the generation of the refused edit meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_an_earlier_agent_keeps_its_address_when_a_reservation_takes_effect() {
    let (site, nodes) = beside_another_pool([Earlier, Today]).await;
    let pods = Pods::default();
    let ip = pods
        .add(Earlier, &nodes[0], "rail0", &Attachment::of("one"))
        .await;
    let both = ["10.1.0.0/24", "10.2.0.0/24"].map(|subnet| json!({ "subnet": subnet, "gateway": "none" }));
    site.edit("rail0", json!({ "spec": { "ranges": both, "reserved": [ip] } }))
        .await;
    site.wait_condition("rail0", "Degraded", "True").await;
    // This report has the number of the spec that the earlier agent applies, as it understands it.
    pods.add(Earlier, &nodes[0], "rail0", &Attachment::of("two"))
        .await;
    until("the earlier node has reported since", async || {
        let blocks = site.blocks("rail0").await.into_iter();
        let mut statuses = blocks.filter_map(|block| block.status);
        statuses.any(|status| status.used == 2)
    })
    .await;
    // The earlier agent does not see the edit take effect.
    nodes[0].freeze();
    site.delete("other").await;
    site.wait_condition("rail0", "Degraded", "False").await;
    until("the other agent has the edit", async || {
        nodes[1].file("rail0")["reserved"] == json!([ip])
    })
    .await;
    let wants = Attachment::of("three").asking(&ip);
    for _ in 0..5 {
        assert_eq!(pods.try_add(Today, &nodes[1], "rail0", &wants), None);
    }
    // Once the agent is replaced, the address is known to be in use.
    nodes[0].thaw();
    replace_agent(&nodes[0], Today).await;
    until("the address is known to be in use", async || {
        let answer = nodes[1].call_of(Today, "ADD", "rail0", &wants);
        assert!(!answer.status.success(), "two pods have {ip}: {answer}");
        answer.stdout.contains("\"code\":111")
    })
    .await;
}

/// The reverse of the test above: the pod is on a node of today, and an agent before `acceptedGeneration` compares what that node
/// reports with the generation of the pool.
#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_agent_waits_until_a_node_of_today_knows_of_a_reservation() {
    let (site, nodes) = beside_another_pool([Today, Earlier]).await;
    let pods = Pods::default();
    let ip = pods.add(Today, &nodes[0], "rail0", &Attachment::of("one")).await;
    // An edit that is refused first has a number that is not its generation.
    let both = ["10.1.0.0/24", "10.2.0.0/24"].map(|subnet| json!({ "subnet": subnet, "gateway": "none" }));
    site.edit("rail0", json!({ "spec": { "ranges": both } })).await;
    site.wait_condition("rail0", "Degraded", "True").await;
    site.delete("other").await;
    site.wait_condition("rail0", "Degraded", "False").await;
    until("the node of today has reported the number", async || {
        let pool = site.pools().get("rail0").await.unwrap();
        let number = pool.status.and_then(|status| status.accepted_generation);
        let blocks = site.blocks("rail0").await.into_iter();
        let mut own = blocks.filter(|block| block.spec.owner == nodes[0].identity.node);
        own.all(|block| block.status.and_then(|status| status.observed_generation) == number)
    })
    .await;
    nodes[0].freeze();
    site.edit("rail0", json!({ "spec": { "reserved": [ip] } })).await;
    until("the earlier agent has the edit", async || {
        nodes[1].file("rail0")["reserved"] == json!([ip])
    })
    .await;
    let wants = Attachment::of("three").asking(&ip);
    for _ in 0..5 {
        assert_eq!(pods.try_add(Earlier, &nodes[1], "rail0", &wants), None);
    }
    nodes[0].thaw();
}

/// Kills the plugin at many moments, also while it waits for the agent. The plugin of the other version then repairs the store.
#[tokio::test(flavor = "multi_thread")]
async fn each_plugin_repairs_the_leases_of_a_pool_after_a_killed_call_of_the_other() {
    let site = Site::new().await;
    two_pools(&site).await;
    for agent in BOTH {
        let name = format!("{agent:?}").to_lowercase();
        let node = node_of(agent, &site.server, &name, &KEEPS_BLOCKS).await;
        node.wait_active("rail0").await;
        wait_pool(&node, "each").await;
        let pods = Pods::default();
        for i in 0..40_u64 {
            let killed = if i % 2 == 0 { Earlier } else { Today };
            let then = killed.other();
            for (pool, step) in [("rail0", 60), ("each", 500)] {
                let attachment = Attachment::of(&format!("{name}-{pool}-{i}"));
                let moment = Duration::from_micros(i * step);
                node.prepared(killed, "ADD", pool, &attachment)
                    .killed_after(moment);
                let ip = pods.add(then, &node, pool, &attachment).await;
                pods.ledger.ended(&[ip.parse().unwrap()]);
                node.prepared(killed, "DEL", pool, &attachment)
                    .killed_after(moment);
                node.call_of(then, "DEL", pool, &attachment).done();
            }
        }
        for pool in ["rail0", "each"] {
            assert_eq!(leases(&node, pool), [""; 0], "agent {agent:?}");
        }
        until("no address has an object", async || {
            site.addresses().await.is_empty()
        })
        .await;
    }
}

/// Pods come and go on two nodes. Meanwhile each agent is killed and started again in the other version.
#[tokio::test(flavor = "multi_thread")]
async fn no_address_is_lost_or_allocated_twice_while_agents_change_versions() {
    let site = Site::new().await;
    site.simple("rail0", "10.1.0.0/26").await;
    let nodes = [
        node_of(Earlier, &site.server, "a", &["--idle", "2s"]).await,
        node_of(Today, &site.server, "b", &["--idle", "2s"]).await,
    ];
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    let pods = Pods::default();
    std::thread::scope(|scope| {
        for node in &nodes {
            let pods = &pods;
            scope.spawn(move || come_and_go(pods, node, 200));
        }
        for turn in 0..6 {
            std::thread::sleep(Duration::from_millis(700));
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let node = &nodes[turn % 2];
            node.kill();
            // The first node starts with the earlier version, the second with today's.
            let version = BOTH[(turn / 2 + turn % 2 + 1) % 2];
            scope
                .spawn(move || runtime.block_on(node.start_of(version)))
                .join()
                .unwrap();
        }
    });
    assert!(pods.ledger.is_empty(), "the ledger itself");
    for node in &nodes {
        replace_agent(node, Today).await;
        assert_eq!(leases(node, "rail0"), [""; 0]);
    }
    for i in 0..62 {
        pods.add(
            Today,
            &nodes[i % 2],
            "rail0",
            &Attachment::of(&format!("last-{i}")),
        )
        .await;
    }
    assert_eq!(pods.ledger.len(), 62);
}

/// ADD and DEL of up to 35 pods on a node, with plugins of both versions. A refused ADD is followed by DEL, as kubelet does.
fn come_and_go(pods: &Pods, node: &Member, calls: usize) {
    let mut living: Vec<(Attachment, String)> = Vec::new();
    for i in 0..calls {
        let (add, del) = (BOTH[i % 2], BOTH[i / 2 % 2]);
        let attachment = Attachment::of(&format!("{}-{i}", node.identity.node.node));
        match pods.try_add(add, node, "rail0", &attachment) {
            Some(ip) => living.push((attachment, ip)),
            None => node.call_of(del, "DEL", "rail0", &attachment).done(),
        }
        if living.len() > 35 || (i % 4 == 0 && !living.is_empty()) {
            let (attachment, ip) = living.remove(0);
            pods.del(del, node, "rail0", (&attachment, &ip));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for (attachment, ip) in living {
        pods.del(Version::Earlier, node, "rail0", (&attachment, &ip));
    }
}
