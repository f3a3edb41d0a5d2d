// SPDX-License-Identifier: Apache-2.0
//! Listens to the kernel for what happens to the node's links: a port without carrier, a bond that goes on over another
//! port.

use crate::agent::{Agent, event};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    InfoBond, InfoData, LinkAttribute, LinkInfo, LinkLayerType, LinkMessage, State,
};
use rtnetlink::{MulticastGroup, new_multicast_connection};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What is known of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    name: String,
    up: bool,
    /// The link that a bond goes over.
    active: Option<u32>,
}

/// Listens until `stop`; starts anew if the kernel has had more to say than was read.
pub async fn run(agent: Arc<Agent>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => return,
            heard = listen(&agent) => {
                if let Err(e) = heard {
                    tracing::warn!(error = %e, "the kernel is not heard about links; trying again");
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

async fn listen(agent: &Agent) -> Result<(), rtnetlink::Error> {
    let (connection, handle, mut messages) = new_multicast_connection(&[MulticastGroup::Link])
        .map_err(|e| rtnetlink::Error::NamespaceError(e.to_string()))?;
    let task = tokio::spawn(connection);
    let mut known: HashMap<u32, Link> = HashMap::new();
    let mut all = handle.link().get().execute();
    while let Some(message) = all.try_next().await? {
        if let Some(link) = read(&message) {
            agent.metrics.link(&link.name, link.up, false);
            known.insert(message.header.index, link);
        }
    }
    while let Some((message, _)) = messages.next().await {
        match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message)) => {
                let Some(now) = read(&message) else { continue };
                let before = known.insert(message.header.index, now.clone());
                report(agent, before.as_ref(), &now, &known).await;
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(message)) => {
                known.remove(&message.header.index);
            }
            _ => {}
        }
    }
    task.abort();
    Ok(())
}

/// Physical ports, and bonds: what pods' links hang from. Others come and go with pods.
fn read(message: &LinkMessage) -> Option<Link> {
    let mut link = Link {
        name: String::new(),
        up: false,
        active: None,
    };
    let mut kind = None;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::OperState(state) => link.up = *state == State::Up,
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(value) => kind = Some(value.to_string()),
                        LinkInfo::Data(InfoData::Bond(values)) => {
                            link.active = values.iter().find_map(|value| match value {
                                InfoBond::ActivePort(index) => Some(*index),
                                _ => None,
                            });
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let layer = message.header.link_layer_type;
    let fabric = layer == LinkLayerType::Infiniband || layer == LinkLayerType::Ether;
    (fabric
        && kind
            .as_deref()
            .is_none_or(|kind| kind == "bond" || kind == "ipoib"))
    .then_some(link)
}

/// Something that people should hear of.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    warning: bool,
    reason: &'static str,
    note: String,
}

/// What `now` says that `before` did not; `known` has the names of links.
fn changes(before: &Link, now: &Link, known: &HashMap<u32, Link>) -> Vec<Change> {
    let mut changes = Vec::new();
    if before.up != now.up {
        let (reason, what) = if now.up {
            (event::LINK_UP, "has carrier again")
        } else {
            (event::LINK_DOWN, "has lost carrier")
        };
        changes.push(Change {
            warning: !now.up,
            reason,
            note: format!("link {} {what}", now.name),
        });
    }
    if before.active != now.active {
        let name = |index: Option<u32>| {
            index
                .and_then(|index| known.get(&index))
                .map_or("none", |link| link.name.as_str())
        };
        changes.push(Change {
            warning: true,
            reason: event::BOND_FAILOVER,
            note: format!(
                "bond {} went over {} and goes on over {}",
                now.name,
                name(before.active),
                name(now.active)
            ),
        });
    }
    changes
}

async fn report(agent: &Agent, before: Option<&Link>, now: &Link, known: &HashMap<u32, Link>) {
    let carrier = before.is_some_and(|before| before.up != now.up);
    agent.metrics.link(&now.name, now.up, carrier);
    for change in before.map_or_else(Vec::new, |before| changes(before, now, known)) {
        tracing::warn!(link = now.name, up = now.up, "{}", change.note);
        tell(agent, change.warning, change.reason, change.note).await;
    }
}

async fn tell(agent: &Agent, warning: bool, reason: &str, note: String) {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(agent.config.node.clone()),
        // What kubectl looks for in Events of nodes.
        uid: Some(agent.config.node.clone()),
        ..ObjectReference::default()
    };
    agent.tell(&about, warning, reason, note).await;
}

#[cfg(test)]
mod tests;
