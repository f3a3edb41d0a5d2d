// SPDX-License-Identifier: Apache-2.0
//! `rdmanet addresses`: lists the pod of each address, its node, and since when.

use crate::allocations::{Allocation, Evidence, allocations, describe_unallocated};
use crate::args;
use crate::cluster::snapshot::Snapshot;
use crate::leases;
use crate::output::{CommandError, Outcome, Output};
use crate::table::Table;
use kube::Client;
use kube::api::ListParams;
use serde_json::json;
use std::fmt::Write;
use std::net::IpAddr;

/// The subject of the query.
enum Wanted {
    Everything,
    Address(IpAddr),
    /// `name` or `namespace/name`.
    Pod(String),
}

/// The leases of the machine that runs the command.
#[derive(Clone, Copy, Default)]
struct LocalLeases<'l> {
    intact: &'l [leases::NodeLease],
    /// The errors about those that cannot be read.
    damaged: &'l [String],
    /// The name of the machine's Node, if known.
    node: Option<&'l str>,
}

/// Reads the cluster, and the leases of this node if it has any.
///
/// # Errors
/// As [`crate::cluster::explain`], or the leases cannot be listed.
pub async fn run(client: &Client, options: &args::Addresses) -> Result<Output, CommandError> {
    let wanted = Wanted::of(options.subject.as_deref());
    let mut snapshot = Snapshot::of_pools(client).await?;
    let pods = pods_to_list(&wanted, options.node.as_deref());
    snapshot.read_pods(client, &pods).await?;
    let (leases, damaged) = leases::all(&options.leases.data_dir)?;
    let here = this_node(&snapshot, leases::node_names(&options.leases.data_dir)?);
    let leases = LocalLeases {
        intact: &leases,
        damaged: &damaged,
        node: here.as_deref(),
    };
    Ok(answer(&snapshot, leases, &wanted, options))
}

fn answer(
    snapshot: &Snapshot,
    leases: LocalLeases<'_>,
    wanted: &Wanted,
    options: &args::Addresses,
) -> Output {
    let mut all = allocations(snapshot, leases.intact, leases.node);
    all.retain(|allocation| {
        let pool = options
            .pool
            .as_ref()
            .is_none_or(|pool| allocation.pool.as_ref() == Some(pool));
        let node = options
            .node
            .as_ref()
            .is_none_or(|node| allocation.node.as_ref() == Some(node));
        pool && node && wanted.matches(allocation)
    });
    // Only the allocations of the whole cluster show that an address has none.
    let is_complete = options.pool.is_none() && options.node.is_none();
    let unallocated = match wanted {
        Wanted::Address(ip) if all.is_empty() && is_complete => Some(describe_unallocated(snapshot, *ip)),
        _ => None,
    };
    let mut text = table(&all).render();
    if all.is_empty() {
        text = match (wanted, &unallocated) {
            _ if !is_complete => {
                "no allocation matches --pool and --node; without them the command reads the whole cluster\n"
                    .to_owned()
            }
            (Wanted::Pod(name), _) => format!(
                "no pod {name} has an address of a pool; kubectl describe pod shows the Events of Multus\n"
            ),
            (_, Some(state)) => format!("{state}\n"),
            (_, None) => "no address is allocated\n".to_owned(),
        };
    }
    for sentence in leases.damaged {
        let _ = writeln!(text, "cannot read: {sentence}");
    }
    Output {
        text,
        json: json!({ "version": 1, "addresses": all, "unallocated": unallocated, "unread": leases.damaged }),
        outcome: Outcome::of(!leases.damaged.is_empty()),
    }
}

impl Wanted {
    fn of(subject: Option<&str>) -> Self {
        let Some(subject) = subject else {
            return Self::Everything;
        };
        subject
            .parse()
            .map_or_else(|_| Self::Pod(subject.to_owned()), Self::Address)
    }

    fn matches(&self, allocation: &Allocation) -> bool {
        match self {
            Self::Everything => true,
            Self::Address(ip) => allocation.address == *ip,
            Self::Pod(name) => allocation.pod.as_ref().is_some_and(|pod| {
                pod == name || pod.split_once('/').is_some_and(|(_, plain)| plain == name)
            }),
        }
    }
}

/// Selects the pods to list. A cluster may have a hundred thousand pods. For an address these are all pods: a pod may
/// have an address in a block of another node, for instance after an import, or if two pods have one address.
fn pods_to_list(wanted: &Wanted, node: Option<&str>) -> ListParams {
    let all = ListParams::default();
    match (wanted, node) {
        (_, Some(node)) => all.fields(&format!("spec.nodeName={node}")),
        (Wanted::Pod(name), None) => {
            let plain = name.split_once('/').map_or(name.as_str(), |(_, plain)| plain);
            all.fields(&format!("metadata.name={plain}"))
        }
        (Wanted::Everything | Wanted::Address(_), None) => all,
    }
}

/// The name of the Node object of this machine: one of `names`, which an agent has written, or the host name. Unknown if there is
/// no Node of such a name.
fn this_node(snapshot: &Snapshot, names: Vec<String>) -> Option<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut all = names.into_iter().chain([host.trim().to_owned()]);
    all.find(|name| snapshot.nodes.contains_key(name))
}

fn table(all: &[Allocation]) -> Table {
    let mut table = Table::new(&[
        "ADDRESS",
        "POOL",
        "NODE",
        "POD",
        "INTERFACE",
        "NETWORK",
        "SINCE",
        "REPORTED BY",
    ]);
    for one in all {
        let since = one.since.clone().unwrap_or_default();
        let container = one.container_id.as_ref().map(|id| format!("container {id}"));
        table.row([
            one.address.to_string(),
            one.pool.clone().unwrap_or_default(),
            one.node.clone().unwrap_or_default(),
            one.pod.clone().or(container).unwrap_or_default(),
            one.interface.clone().unwrap_or_default(),
            one.network.clone().unwrap_or_default(),
            match one.reported_by.as_slice() {
                // This is the start of the pod, not the time of the allocation.
                [Evidence::NetworkStatus] if !since.is_empty() => format!("{since} (pod)"),
                _ if one.kept => format!("kept, {since}"),
                _ => since,
            },
            one.reporters().join(", "),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
