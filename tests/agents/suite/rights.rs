// SPDX-License-Identifier: Apache-2.0
//! An agent and a controller have exactly the rights that they use: compares the manifests with the requests to the API server.

use agents::pools::simple;
use agents::{Attachment, Member, Site};
use apiserver::audit::Mark;
use apiserver::install::{documents, manifests, until};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// A right: API group, resource with its subresource, verb.
type Right = (String, String, String);

/// The rights that the agent needs only on a node with an RDMA link: `suite/links.rs` tests them.
const ELSEWHERE: [(&str, &str, &str); 1] = [("", "nodes/status", "patch")];

/// Verbs of rdmanet that only admission policies check; no request has them.
const OURS: [&str; 2] = ["report-links", "act-for-any-node"];

/// The rights of the `ClusterRole` and of the Roles of this name in `conf/rbac`.
fn granted(role: &str) -> BTreeSet<Right> {
    let files = manifests("rbac");
    let all = files.iter().flat_map(|file| documents(file));
    let roles = all.filter(|object| {
        let kind = object.types.as_ref().map(|types| types.kind.as_str());
        matches!(kind, Some("ClusterRole" | "Role")) && object.metadata.name.as_deref() == Some(role)
    });
    let rights: BTreeSet<Right> = roles.flat_map(|role| rights_of(&role.data["rules"])).collect();
    assert!(!rights.is_empty(), "there is no role {role}");
    rights
}

fn rights_of(rules: &serde_json::Value) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    let words = |list: &serde_json::Value| -> Vec<String> {
        let words = list.as_array().unwrap().iter();
        words.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    for rule in rules.as_array().unwrap() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    rights.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    rights
}

/// The right that a request with this path and verb needs.
fn right(uri: &str, verb: &str) -> Option<Right> {
    let path = uri.split('?').next()?;
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let resource = match rest {
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, sub] => format!("{resource}/{sub}"),
        _ => return None,
    };
    Some((group.to_owned(), resource, verb.to_owned()))
}

/// The rights that requests of this service account used. A request for an object that is gone uses its right too.
fn used(site: &Site, account: &str) -> BTreeSet<Right> {
    let user = format!(":{account}");
    let requests = site.server.requests_since(Mark::BEGINNING).into_iter();
    requests
        .filter(|request| request.user().ends_with(&user) && (request.code() < 400 || request.code() == 404))
        .filter_map(|request| right(&request.uri, &request.verb))
        .collect()
}

/// The requests of this service account for which it lacks the right.
fn refused(site: &Site, account: &str) -> BTreeSet<Right> {
    let user = format!(":{account}");
    let requests = site.server.requests_since(Mark::BEGINNING).into_iter();
    requests
        .filter(|request| request.user().ends_with(&user) && request.is_unauthorized())
        .filter_map(|request| right(&request.uri, &request.verb))
        .collect()
}

/// Exercises the agents: addresses by name and by `StatefulSet`, refusals, an exhausted pool, and returned blocks.
async fn exercise(site: &Site, nodes: &[Member; 2]) {
    for i in 0..40 {
        nodes[0].add_soon("wide", &Attachment::of(&format!("w{i}"))).await;
    }
    let by_name = Attachment::of("named").asking("10.1.0.5");
    nodes[0].add_soon("wide", &by_name).await;
    // The name is taken, and the API server returns the existing object.
    nodes[1].refused("wide", &Attachment::of("second").asking("10.1.0.5"), &[111], &[]);
    nodes[0].del("wide", &by_name);
    let uid = site.replica("db", 0, "a").await;
    let replica = Attachment {
        pod: "default/db-0".to_owned(),
        uid,
        ..Attachment::of("replica")
    };
    nodes[0].add_soon("wide", &replica).await;
    nodes[0].del("wide", &replica);
    for i in 0..40 {
        nodes[0].del("wide", &Attachment::of(&format!("w{i}")));
    }
    let mut pod = Attachment::of("one");
    pod.uid = site.pod("one", "a").await;
    for _ in 0..3 {
        nodes[0].error("team", &pod);
    }
    for i in 0..20 {
        nodes[0]
            .add_soon("narrow", &Attachment::of(&format!("n{i}")))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_uses_every_right_that_its_role_grants() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    let mut wide = simple("10.1.0.0/24");
    wide["reserved"] = json!(["10.1.0.0/28"]);
    wide["sticky"] = json!("StatefulSet");
    let mut team = simple("10.2.0.0/24");
    team["namespaceSelector"] = json!({ "matchLabels": { "team": "ml" } });
    site.pool("wide", wide).await;
    site.pool("team", team).await;
    site.simple("narrow", "10.3.0.0/27").await;
    site.stateful_set("db", 1).await;
    for node in &nodes {
        for pool in ["wide", "team", "narrow"] {
            node.wait_active(pool).await;
        }
    }
    exercise(&site, &nodes).await;
    let mut wanted = granted("rdmanet-agent");
    wanted.retain(|(_, _, verb)| !OURS.contains(&verb.as_str()));
    for (group, resource, verb) in ELSEWHERE {
        let right = [group, resource, verb].map(str::to_owned).into();
        assert!(wanted.remove(&right), "{right:?}");
    }
    let unused = || -> Vec<Right> {
        wanted
            .difference(&used(&site, "rdmanet-agent"))
            .cloned()
            .collect()
    };
    // Blocks are returned some time after their pods have gone. The audit log contains a watch only after its end.
    for is_last in [false, true] {
        for _ in 0..60 {
            if unused().iter().all(|(_, _, verb)| verb == "watch" && !is_last) {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        for node in &nodes {
            node.stop();
        }
    }
    assert_eq!(unused(), Vec::<Right>::new(), "granted, and not used");
    assert_eq!(
        refused(&site, "rdmanet-agent"),
        BTreeSet::new(),
        "not granted, and requested"
    );
}

/// The interface of a replica of the set `db`, whose pod is new.
async fn replica(site: &Site, ordinal: u32, node: &str, container: &str) -> Attachment {
    Attachment {
        pod: format!("default/db-{ordinal}"),
        uid: site.replica("db", ordinal, node).await,
        ..Attachment::of(container)
    }
}

/// Gives the controller each kind of its work: a full pool whose blocks are shared, a machine that dies with a block, an address and
/// a replica that starts elsewhere, and pools that are edited and deleted.
async fn work(site: &Site, flags: &[&str]) {
    let [living, dead] = [
        Member::running(&site.server, "living", flags).await,
        Member::running(&site.server, "dead", flags).await,
    ];
    let mut wide = simple("10.1.0.0/24");
    wide["reserved"] = json!(["10.1.0.0/28"]);
    wide["sticky"] = json!("StatefulSet");
    site.pool("wide", wide).await;
    site.simple("narrow", "10.3.0.0/27").await;
    site.stateful_set("db", 1).await;
    for node in [&living, &dead] {
        node.wait_active("wide").await;
        node.wait_active("narrow").await;
    }
    // A pod keeps the block shared until the controller has counted its addresses, whatever the load of this machine.
    dead.add_soon("narrow", &Attachment::of("kept")).await;
    for i in 0..20 {
        living.add_soon("narrow", &Attachment::of(&format!("n{i}"))).await;
    }
    dead.add_soon("wide", &Attachment::of("named").asking("10.1.0.5"))
        .await;
    dead.add_soon("wide", &replica(site, 0, "dead", "first").await)
        .await;
    dead.kill();
    site.set_node_ready("dead", false).await;
    site.remove_pod("db-0").await;
    let second = replica(site, 0, "living", "second").await;
    living.add_soon("wide", &second).await;
    living.del("wide", &second);
    // The address of the set is Kept now. Before the controller frees it, it reads the set and the pool.
    site.edit("wide", json!({ "spec": { "sticky": "Never" } })).await;
    dead.identity.leave(&site.admin).await;
    until("nothing of the machine and of the set is left", async || {
        let (blocks, addresses) = (site.blocks("wide").await, site.addresses().await);
        blocks.iter().all(|block| block.spec.owner.node != "dead")
            && addresses.iter().all(|address| address.spec.pool != "wide")
    })
    .await;
    // The second Event with one reason patches the first one.
    site.simple("edited", "10.9.0.0/24").await;
    for (fallback, missing) in [("absent", "True"), ("wide", "False"), ("absent", "True")] {
        site.edit("edited", json!({ "spec": { "fallback": [fallback] } }))
            .await;
        site.wait_condition("edited", "FallbackMissing", missing).await;
    }
    site.delete("edited").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_uses_every_right_that_its_role_grants() {
    let flags = ["--quarantine", "4s", "--quarantine-in-use", "4s"];
    let site = Site::with(&flags).await;
    work(&site, &flags).await;
    let mut wanted = granted("rdmanet-controller");
    wanted.retain(|(_, _, verb)| !OURS.contains(&verb.as_str()));
    let unused = || -> Vec<Right> {
        wanted
            .difference(&used(&site, "rdmanet-controller"))
            .cloned()
            .collect()
    };
    // The audit log contains a watch only after its end.
    for is_last in [false, true] {
        for _ in 0..60 {
            if unused().iter().all(|(_, _, verb)| verb == "watch" && !is_last) {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        site.controller.stop();
    }
    assert_eq!(unused(), Vec::<Right>::new(), "granted, and not used");
    assert_eq!(
        refused(&site, "rdmanet-controller"),
        BTreeSet::new(),
        "not granted, and requested"
    );
}
