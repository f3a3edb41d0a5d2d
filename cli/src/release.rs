// SPDX-License-Identifier: Apache-2.0
//! `rdmanet release`: releases an address that is no longer in use, or all blocks and addresses of a gone node.
//!
//! Invariant: an address is freed only on evidence that its holder is gone. Either the pod does not exist and this
//! machine finds no network namespace of it, or the whole node is gone.
//!
//! Invariant: the command frees exactly the object or lease that it inspected (UID and version of the object, inode of
//! the lease), or nothing.

mod gone;

use crate::answer::{Answer, Failure, Outcome};
use crate::args;
use crate::cluster::explain;
use crate::cluster::pods::PodFacts;
use crate::cluster::snapshot::Snapshot;
use crate::holders::standing;
use crate::leases::{places, with_store};
use api::{AddressState, IpAddress};
use ipam::config::Place;
use ipam::store::{Fate, HeldLease};
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::net::IpAddr;

/// An object or a lease that holds the address.
enum Hold {
    Object(Box<IpAddress>),
    Lease(Place, Box<HeldLease>),
}

/// Releases the address after a confirmation. With `yes` there is no question.
///
/// # Errors
/// The address may still be in use, there was no confirmation, or the cluster does not respond.
pub async fn run(client: &Client, options: &args::Release) -> Result<Answer, Failure> {
    let snapshot = Snapshot::read(client).await?;
    match (options.address, &options.node) {
        (Some(ip), _) => release_address(client, &snapshot, ip, options).await,
        (None, Some(node)) => gone::release(client, &snapshot, node, options.yes).await,
        (None, None) => Err(Failure("name an address, or a node with --node".to_owned())),
    }
}

async fn release_address(
    client: &Client,
    snapshot: &Snapshot,
    ip: IpAddr,
    options: &args::Release,
) -> Result<Answer, Failure> {
    let holds = holds(snapshot, ip, options)?;
    if let Some(pod) = living(snapshot, ip, options) {
        return Err(Failure(format!(
            "pod {} on node {} has {ip} and lives; delete the pod, and the address is released with it",
            pod.name,
            pod.node.as_deref().unwrap_or("none")
        )));
    }
    if holds.is_empty() {
        return Ok(Answer {
            text: format!("nothing to release: {}\n", standing(snapshot, ip)),
            json: json!({ "version": 1, "released": [] }),
            outcome: Outcome::Fine,
        });
    }
    let mut evidence = Vec::new();
    for hold in &holds {
        evidence.push(unused(snapshot, hold, &holds, ip)?);
    }
    if !options.yes && !confirmed(&ip.to_string(), &evidence)? {
        return Err(Failure(format!("{ip} is not released")));
    }
    for hold in &holds {
        free(client, hold, ip).await?;
    }
    Ok(Answer {
        text: format!("{ip} is released: {}\n", evidence.join("; ")),
        json: json!({ "version": 1, "released": [{ "address": ip, "evidence": evidence }] }),
        outcome: Outcome::Fine,
    })
}

/// The object and the leases of this node that have the address.
fn holds(snapshot: &Snapshot, ip: IpAddr, options: &args::Release) -> Result<Vec<Hold>, Failure> {
    let meant = |pool: &str| options.pool.as_ref().is_none_or(|wanted| wanted == pool);
    let objects = snapshot
        .addresses
        .iter()
        .filter(|(its, object)| *its == ip && meant(&object.spec.pool));
    let objects: Vec<&IpAddress> = objects.map(|(_, object)| object).collect();
    if objects.len() > 1 {
        let pools: Vec<&str> = objects.iter().map(|object| object.spec.pool.as_str()).collect();
        return Err(Failure(format!(
            "{ip} is held in several address spaces, by pools {}; say which is meant: --pool",
            pools.join(" and ")
        )));
    }
    let mut all: Vec<Hold> = objects
        .into_iter()
        .cloned()
        .map(Box::new)
        .map(Hold::Object)
        .collect();
    for place in places(&options.data_dir)?
        .into_iter()
        .filter(|place| place.is_pool && meant(&place.name))
    {
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method alone has one lifetime too few"
        )]
        let leases = with_store(&place, |store| store.leases())?;
        let with_ip = leases
            .held
            .into_iter()
            .filter(|held| held.lease.addresses().any(|its| its == ip));
        all.extend(with_ip.map(|held| Hold::Lease(place.clone(), Box::new(held))));
    }
    Ok(all)
}

/// The running pod whose status lists the address.
fn living<'s>(snapshot: &'s Snapshot, ip: IpAddr, options: &args::Release) -> Option<&'s PodFacts> {
    let has = |pod: &&PodFacts| {
        let interface = pod.interface_with(ip);
        interface.is_some_and(|interface| {
            let pool = snapshot.pool_of(ip, &interface.name, pod.node.as_deref());
            pool.is_none_or(|pool| options.pool.as_deref().is_none_or(|wanted| wanted == pool.name()))
        })
    };
    snapshot.pods.iter().filter(|pod| pod.lives).find(has)
}

/// The evidence that the address is not in use, in a sentence.
fn unused(snapshot: &Snapshot, hold: &Hold, all: &[Hold], ip: IpAddr) -> Result<String, Failure> {
    match hold {
        Hold::Object(object) => object_unused(snapshot, object, all, ip),
        Hold::Lease(_, lease) => lease_unused(snapshot, lease, ip),
    }
}

fn named<'s>(snapshot: &'s Snapshot, name: &str, uid: Option<&str>) -> Option<&'s PodFacts> {
    let same = |pod: &&PodFacts| pod.name == name && uid.is_none_or(|uid| pod.uid == uid);
    snapshot.pods.iter().filter(|pod| pod.lives).find(same)
}

fn object_unused(
    snapshot: &Snapshot,
    object: &IpAddress,
    all: &[Hold],
    ip: IpAddr,
) -> Result<String, Failure> {
    let spec = &object.spec;
    if spec.state == AddressState::Kept {
        let pod = spec
            .holder
            .as_ref()
            .map(|holder| format!("{}/{}", holder.namespace, holder.pod));
        let pod = pod.unwrap_or_default();
        return match named(snapshot, &pod, None) {
            Some(_) => Err(Failure(format!(
                "{ip} is kept for pod {pod}, which exists; delete the pod first, or its StatefulSet"
            ))),
            None => Ok(format!("it was kept for pod {pod}, which does not exist")),
        };
    }
    let pod = spec
        .pod
        .as_ref()
        .map(|pod| (format!("{}/{}", pod.namespace, pod.name), pod.uid.as_deref()));
    if let Some((name, uid)) = &pod
        && named(snapshot, name, *uid).is_some()
    {
        return Err(Failure(format!(
            "{ip} is bound to pod {name}, which lives; delete the pod, and the address is released with it"
        )));
    }
    let name = pod.map_or_else(|| "nobody knows".to_owned(), |(name, _)| name);
    let node = &spec.node;
    if snapshot.nodes.get(&node.node) != Some(&node.node_uid) {
        return Ok(format!(
            "it was bound to pod {name}, which does not exist, on node {}, which is gone",
            node.node
        ));
    }
    // The node exists. Only that node can see whether the namespace exists.
    if all.iter().any(|hold| matches!(hold, Hold::Lease(..))) {
        return Ok(format!("pod {name} does not exist"));
    }
    Err(Failure(format!(
        "{ip} was given on node {}, which lives, and only that node sees whether a container still has it; its agent frees the address by itself within minutes, or run this command there",
        node.node
    )))
}

fn lease_unused(snapshot: &Snapshot, held: &HeldLease, ip: IpAddr) -> Result<String, Failure> {
    let sandbox = &held.lease.sandbox;
    if let Some(name) = &sandbox.pod
        && named(snapshot, name, sandbox.uid.as_deref()).is_some()
    {
        return Err(Failure(format!(
            "{ip} is leased to pod {name}, which lives; delete the pod, and the address is released with it"
        )));
    }
    let who = held.lease.describe();
    match sandbox.netns.as_ref().map(ipam::store::NetnsFile::fate) {
        Some(Fate::Gone) => Ok(format!("it was leased to {who}, whose network namespace is gone")),
        Some(Fate::Replaced) => Ok(format!(
            "it was leased to {who}, whose network namespace is another one's by now"
        )),
        Some(Fate::There) => Err(Failure(format!(
            "{ip} is leased to {who}, whose network namespace is still there: crictl stopp ends the sandbox"
        ))),
        Some(Fate::Unseen(why)) => Err(Failure(format!(
            "{ip} is leased to {who}; whether its network namespace is there cannot be seen: {why}"
        ))),
        None => Err(Failure(format!(
            "{ip} is leased to {who}, and nobody wrote down its network namespace; docs/store.md says how to free an address by hand"
        ))),
    }
}

fn confirmed(what: &str, evidence: &[String]) -> Result<bool, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(Failure(format!(
            "{what} is not released, since nobody can be asked here; say --yes"
        )));
    }
    let unread = |e| Failure(format!("cannot ask: {e}; say --yes"));
    let mut screen = std::io::stderr();
    write!(screen, "release {what}? {} [y/N] ", evidence.join("; ")).map_err(unread)?;
    let mut line = String::new();
    input.read_line(&mut line).map_err(unread)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

async fn free(client: &Client, hold: &Hold, ip: IpAddr) -> Result<(), Failure> {
    let changed = || {
        Failure(format!(
            "{ip} has just changed hands and is not released; look again"
        ))
    };
    match hold {
        Hold::Object(object) => {
            let api: Api<IpAddress> = Api::all(client.clone());
            let unchanged = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: object.metadata.uid.clone(),
                    resource_version: object.metadata.resource_version.clone(),
                }),
                ..DeleteParams::default()
            };
            let name = object.metadata.name.as_deref().unwrap_or_default();
            match api.delete(name, &unchanged).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => Err(changed()),
                Err(e) => Err(explain(&format!("release {ip}"), &e)),
            }
        }
        Hold::Lease(place, lease) => {
            let released = with_store(place, |store| match store.enter_existing()? {
                Some(locked) => locked.release_unchanged(lease),
                None => Ok(false),
            })?;
            released.then_some(()).ok_or_else(changed)
        }
    }
}
