// SPDX-License-Identifier: Apache-2.0
//! `rdmanet release`: releases an address that is no longer in use, or all blocks and addresses of a gone node.
//!
//! Invariant: an address is freed only on evidence that its pod is gone. Either the pod does not exist and this
//! machine finds no network namespace of it, or the whole node is gone and the quarantine is over.
//!
//! Invariant: the command frees exactly the object or lease that it inspected (UID and version of the object, inode of
//! the lease), or nothing.

mod gone_node;
mod quarantine;

use crate::allocations::describe_unallocated;
use crate::args;
use crate::cluster::explain_write;
use crate::cluster::pods::PodFacts;
use crate::cluster::snapshot::{Snapshot, bound_pod, kept_for};
use crate::leases::{leases_of, stores, with_store};
use crate::output::{CommandError, Outcome, Output};
use crate::terminal;
use api::deadline::Deadline;
use api::requests::{ApiError, Requests, WriteResult};
use api::{AddressState, IpAddress};
use ipam::config::Place;
use ipam::store::{Fate, StoredLease};
use kube::Client;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::net::IpAddr;

/// An object or a lease that records the allocation.
enum Record {
    Object(Box<IpAddress>),
    Lease(Place, Box<StoredLease>),
}

/// Releases the address after a confirmation. With `yes` there is no question.
///
/// # Errors
/// The address may still be in use, there was no confirmation, or the cluster does not respond.
pub async fn run(client: &Client, options: &args::Release) -> Result<Output, CommandError> {
    let snapshot = Snapshot::read(client).await?;
    match (options.address, &options.node) {
        (Some(ip), _) => release_address(client, &snapshot, ip, options).await,
        (None, Some(node)) => gone_node::release(client, &snapshot, node, options.yes).await,
        (None, None) => Err(CommandError("name an address, or a node with --node".to_owned())),
    }
}

async fn release_address(
    client: &Client,
    snapshot: &Snapshot,
    ip: IpAddr,
    options: &args::Release,
) -> Result<Output, CommandError> {
    let records = find_records(snapshot, ip, options)?;
    if let Some(pod) = pod_with_address(snapshot, ip, options) {
        return Err(CommandError(format!(
            "pod {} on node {} uses {ip}; delete the pod, which releases the address",
            pod.name,
            pod.node.as_deref().unwrap_or("none")
        )));
    }
    if records.is_empty() {
        return Ok(Output {
            text: format!("nothing to release: {}\n", describe_unallocated(snapshot, ip)),
            json: json!({ "version": 1, "released": [] }),
            outcome: Outcome::Fine,
        });
    }
    let mut evidence = Vec::new();
    for record in &records {
        evidence.push(evidence_of_end(snapshot, record, &records, ip)?);
    }
    quarantine::require_over(client, &[], &orphans(snapshot, &records)).await?;
    if !options.yes && !confirmed(&ip.to_string(), &evidence)? {
        return Err(CommandError(format!("{ip} was not released")));
    }
    for record in &records {
        free(client, record, ip).await?;
    }
    Ok(Output {
        text: format!("{ip} is released: {}\n", evidence.join("; ")),
        json: json!({ "version": 1, "released": [{ "address": ip, "evidence": evidence }] }),
        outcome: Outcome::Fine,
    })
}

/// The leases of this node and the object that have the address. The leases come first: an agent with a lease of the address
/// keeps its object.
fn find_records(
    snapshot: &Snapshot,
    ip: IpAddr,
    options: &args::Release,
) -> Result<Vec<Record>, CommandError> {
    let is_selected = |pool: &str| options.pool.as_ref().is_none_or(|wanted| wanted == pool);
    let objects = snapshot
        .addresses
        .iter()
        .filter(|(address, object)| *address == ip && is_selected(&object.spec.pool));
    let objects: Vec<&IpAddress> = objects.map(|(_, object)| object).collect();
    if objects.len() > 1 {
        let pools: Vec<&str> = objects.iter().map(|object| object.spec.pool.as_str()).collect();
        return Err(CommandError(format!(
            "{ip} is allocated in several address spaces, by pools {}; choose one with --pool",
            pools.join(" and ")
        )));
    }
    let mut all = Vec::new();
    for place in stores(&options.leases.data_dir)?
        .into_iter()
        .filter(|place| place.is_pool && is_selected(&place.name))
    {
        let with_ip = leases_of(&place)?
            .intact
            .into_iter()
            .filter(|stored| stored.lease.addresses().any(|address| address == ip));
        all.extend(with_ip.map(|stored| Record::Lease(place.clone(), Box::new(stored))));
    }
    all.extend(objects.into_iter().cloned().map(Box::new).map(Record::Object));
    Ok(all)
}

/// The running pod whose status lists the address.
fn pod_with_address<'s>(snapshot: &'s Snapshot, ip: IpAddr, options: &args::Release) -> Option<&'s PodFacts> {
    let has = |pod: &&PodFacts| {
        let interface = pod.interface_with(ip);
        interface.is_some_and(|interface| {
            let pool = snapshot.pool_of(ip, &interface.name, pod.node.as_deref());
            pool.is_none_or(|pool| options.pool.as_deref().is_none_or(|wanted| wanted == pool.name()))
        })
    };
    snapshot.pods.iter().filter(|pod| pod.is_running).find(has)
}

/// The evidence that the address is not in use, in a sentence.
fn evidence_of_end(
    snapshot: &Snapshot,
    record: &Record,
    all: &[Record],
    ip: IpAddr,
) -> Result<String, CommandError> {
    match record {
        Record::Object(object) => evidence_of_object(snapshot, object, all, ip),
        Record::Lease(_, lease) => evidence_of_lease(snapshot, lease, ip),
    }
}

/// Whether the node of the object is gone. If the Node was registered again, the containers of the machine may still run. Its
/// agent sees them.
fn is_of_gone_node(snapshot: &Snapshot, object: &IpAddress) -> bool {
    let node = &object.spec.node;
    let has_agent = snapshot.agents.contains_key(&node.node);
    let registered = snapshot.nodes.get(&node.node);
    registered.is_none_or(|uid| *uid != node.node_uid && !has_agent)
}

/// The objects of gone nodes that may be in use.
fn orphans<'r>(snapshot: &Snapshot, records: &'r [Record]) -> Vec<&'r IpAddress> {
    let object = |record: &'r Record| match record {
        Record::Object(object) => Some(&**object),
        Record::Lease(..) => None,
    };
    let objects = records.iter().filter_map(object);
    objects
        .filter(|object| object.spec.state != AddressState::Kept && is_of_gone_node(snapshot, object))
        .collect()
}

fn running_pod<'s>(snapshot: &'s Snapshot, name: &str, uid: Option<&str>) -> Option<&'s PodFacts> {
    let same = |pod: &&PodFacts| pod.name == name && uid.is_none_or(|uid| pod.has_uid(uid));
    snapshot.pods.iter().filter(|pod| pod.is_running).find(same)
}

fn evidence_of_object(
    snapshot: &Snapshot,
    object: &IpAddress,
    all: &[Record],
    ip: IpAddr,
) -> Result<String, CommandError> {
    let spec = &object.spec;
    if spec.state == AddressState::Kept {
        let pod = kept_for(object).unwrap_or_default();
        return match running_pod(snapshot, &pod, None) {
            Some(_) => Err(CommandError(format!(
                "{ip} is kept for pod {pod}, which exists; delete the pod first, or its StatefulSet"
            ))),
            None => Ok(format!("it was kept for pod {pod}, which does not exist")),
        };
    }
    let pod = bound_pod(object);
    let uid = spec.pod.as_ref().and_then(|pod| pod.uid.as_deref());
    if let Some(name) = &pod
        && running_pod(snapshot, name, uid).is_some()
    {
        return Err(CommandError(format!(
            "{ip} is bound to pod {name}, which is running; delete the pod, which releases the address"
        )));
    }
    let name = pod.unwrap_or_else(|| "unknown".to_owned());
    let node = &spec.node;
    if is_of_gone_node(snapshot, object) {
        if spec.state == AddressState::Bound {
            return Err(quarantine::not_begun(snapshot, object));
        }
        return Ok(format!(
            "it was bound to pod {name}, which does not exist, on node {}, which is gone",
            node.node
        ));
    }
    // The node exists. Only that node can see whether the namespace exists.
    if all.iter().any(|record| is_lease_of(record, object)) {
        return Ok(format!("pod {name} does not exist"));
    }
    Err(CommandError(format!(
        "{ip} of pool {} was allocated on node {}, which exists; only that node sees whether a container still uses it. Wait: the agent of the node frees the address within minutes or after the cooldown of the pool. Or run this command on the node. For a lease of another pool on this machine, use --pool",
        spec.pool, node.node
    )))
}

/// Whether `record` is the lease of the object's attachment, which is on the object's node only. Another pool of this machine
/// may have the same address in another address space.
fn is_lease_of(record: &Record, object: &IpAddress) -> bool {
    let Record::Lease(place, stored) = record else {
        return false;
    };
    let owner = &stored.lease.owner;
    place.name == object.spec.pool
        && object.spec.attachment.as_ref().is_some_and(|attachment| {
            attachment.container_id == owner.container_id.as_str()
                && attachment.ifname == owner.ifname.as_str()
        })
}

fn evidence_of_lease(snapshot: &Snapshot, stored: &StoredLease, ip: IpAddr) -> Result<String, CommandError> {
    let sandbox = &stored.lease.sandbox;
    if let Some(name) = &sandbox.pod
        && running_pod(snapshot, name, sandbox.uid.as_deref()).is_some()
    {
        return Err(CommandError(format!(
            "{ip} is leased to pod {name}, which is running; delete the pod, which releases the address"
        )));
    }
    let attachment = stored.lease.describe();
    match sandbox.netns.as_ref().map(ipam::store::NetnsFile::fate) {
        Some(Fate::Gone) => Ok(format!(
            "it was leased to {attachment}, whose network namespace is gone"
        )),
        Some(Fate::Replaced) => Ok(format!(
            "it was leased to {attachment}, whose network namespace is now that of another pod"
        )),
        Some(Fate::There) => Err(CommandError(format!(
            "{ip} is leased to {attachment}, whose network namespace exists; crictl stopp removes the sandbox"
        ))),
        Some(Fate::Unseen(why)) => Err(CommandError(format!(
            "{ip} is leased to {attachment}; the state of its network namespace is unknown: {why}"
        ))),
        None => Err(CommandError(format!(
            "{ip} is leased to {attachment}, and the lease does not record its network namespace; docs/store.md has the steps to free an address by hand"
        ))),
    }
}

fn confirmed(subject: &str, evidence: &[String]) -> Result<bool, CommandError> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(CommandError(format!(
            "{subject} was not released: stdin is not a terminal, so no confirmation is possible; use --yes"
        )));
    }
    let failed = |e| CommandError(format!("cannot ask for confirmation: {e}; use --yes"));
    let mut screen = std::io::stderr();
    let question = terminal::line(&format!("release {subject}? {}", evidence.join("; ")));
    write!(screen, "{question} [y/N] ").map_err(failed)?;
    let mut line = String::new();
    input.read_line(&mut line).map_err(failed)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

async fn free(client: &Client, record: &Record, ip: IpAddr) -> Result<(), CommandError> {
    match record {
        Record::Object(object) => {
            let api = Requests::new(client.clone(), Deadline::background());
            check_outcome(&ip.to_string(), free_object(&api, object).await)
        }
        Record::Lease(place, lease) => {
            let released = with_store(place, |store| match store.enter_existing()? {
                Some(locked) => locked.release_unchanged(lease),
                None => Ok(false),
            })?;
            let outcome = if released {
                WriteResult::Applied(())
            } else {
                WriteResult::Conflict
            };
            check_outcome(&ip.to_string(), Ok(outcome))
        }
    }
}

/// Deletes the object. A bound one is marked as orphaned first, since a policy refuses its deletion. If a lease still has the
/// address, the agent of its node binds the object again, and the deletion has no effect.
async fn free_object(api: &Requests, object: &IpAddress) -> Result<WriteResult<()>, ApiError> {
    if object.spec.state != AddressState::Bound {
        return api.delete(object).await;
    }
    let mut orphaned = object.clone();
    orphaned.spec.state = AddressState::Orphaned;
    match api.replace(&orphaned).await? {
        WriteResult::Applied(orphaned) => api.delete(&orphaned).await,
        WriteResult::Conflict => Ok(WriteResult::Conflict),
    }
}

fn check_outcome(name: &str, written: Result<WriteResult<()>, ApiError>) -> Result<(), CommandError> {
    match written {
        Ok(WriteResult::Applied(())) => Ok(()),
        Ok(WriteResult::Conflict) => Err(CommandError(format!(
            "{name} has just been changed and was not released; run this again"
        ))),
        Err(error) => Err(CommandError(format!(
            "{name} was not released: {}",
            explain_write(&error)
        ))),
    }
}

#[cfg(test)]
mod tests;
