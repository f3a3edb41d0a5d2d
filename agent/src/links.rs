// SPDX-License-Identifier: Apache-2.0
//! Watches the node's links through netlink: ports without carrier, and bonds that switch to another port. Metrics and Events
//! report changes, and a condition of the Node reports the current state.
//!
//! Invariant: the condition is computed from the links at the time of its write, never from the events that were received. So a
//! kernel message that is lost or late only delays the write.

mod evaluate;
mod history;
mod ports;

pub mod condition;

use crate::agent::{Agent, event};
use crate::config::LinkScope;
use api::deadline::Deadline;
use api::recorder::NewEvent;
use common::netlink::{self, LinkInfo};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::link::{LinkExtentMask, LinkMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{MulticastGroup, new_multicast_connection};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// The pause after a netlink failure.
const RESTART_PAUSE: Duration = Duration::from_secs(5);

/// The number of changes that may wait to be published as Events.
const EVENTS_QUEUED: usize = 64;

/// The state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    name: String,
    /// The link is administratively up.
    enabled: bool,
    up: bool,
    /// The active port of a bond, by index.
    active: Option<u32>,
}

/// Watches links and reports changes, for ever.
pub async fn run(agent: Arc<Agent>) {
    let changed = Notify::new();
    let (events, queue) = mpsc::channel(EVENTS_QUEUED);
    let listener = Listener {
        agent: &agent,
        changed: &changed,
        events,
    };
    tokio::select! {
        () = listen(&listener) => {}
        () = publish_events(&agent, queue) => {}
        () = condition::run(&agent, &changed) => {}
    }
}

/// The receivers of link events. The listener never waits for them: the kernel drops messages that are not read in time.
struct Listener<'a> {
    agent: &'a Agent,
    changed: &'a Notify,
    events: mpsc::Sender<NewEvent>,
}

/// Listens for ever. Restarts if messages of the kernel were lost.
async fn listen(listener: &Listener<'_>) {
    let mut known = HashMap::new();
    loop {
        match listen_once(listener, &mut known).await {
            Ok(()) => tracing::warn!("netlink messages about links were lost; listing all links again"),
            Err(e) => {
                tracing::warn!(error = %e, "netlink listener failed; restarting it");
                tokio::time::sleep(RESTART_PAUSE).await;
            }
        }
    }
}

/// Listens until a message of the kernel is lost. `known`: the links that were reported before.
async fn listen_once(
    listener: &Listener<'_>,
    known: &mut HashMap<u32, Link>,
) -> Result<(), rtnetlink::Error> {
    let Listener { agent, changed, .. } = listener;
    let (connection, handle, mut messages) = new_multicast_connection(&[MulticastGroup::Link])
        .map_err(|e| rtnetlink::Error::NamespaceError(e.to_string()))?;
    let _connection = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(connection));
    // With a filter the kernel sizes the buffer of the list by the largest link: a child that returned from a pod may have
    // hundreds of altnames. This one changes only lists of bridges.
    let filter = vec![LinkExtentMask::Mrp];
    let list = handle.link().get().set_filter_mask(AddressFamily::Unspec, filter);
    let mut all = list.execute();
    let mut there = HashMap::new();
    while let Some(message) = all.try_next().await? {
        let index = message.header.index;
        if let Some(link) = read(message, &agent.config.links) {
            there.insert(index, link);
        }
    }
    let before = std::mem::replace(known, there);
    let has_name = |index: &u32, name: &str| known.get(index).is_some_and(|now| now.name == name);
    for (index, gone) in before.iter().filter(|(index, link)| !has_name(index, &link.name)) {
        tracing::debug!(
            link = gone.name,
            index,
            "a link was removed or renamed while netlink messages were lost"
        );
        agent.metrics.link_gone(&gone.name);
    }
    for (index, now) in &*known {
        listener.report(before.get(index), now, known);
    }
    changed.notify_one();
    while let Some((message, _)) = messages.next().await {
        match message.payload {
            NetlinkPayload::InnerMessage(message) => listener.receive(message, known),
            NetlinkPayload::Overrun(_) => return Ok(()),
            _ => {}
        }
    }
    Err(rtnetlink::Error::NamespaceError(
        "the connection to the kernel has ended".to_owned(),
    ))
}

/// Whether the message describes the link itself. A bridge sends messages to the same group about each of its ports, without the
/// kind of the port and without the active port of a bond. It reports a port that leaves the bridge as deleted.
///
/// Source: `br_ifinfo_notify` and `br_fill_ifinfo` in `net/bridge/br_netlink.c`.
fn is_of_link(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}

/// Reads physical ports and bonds, to which pods' links are attached. Other links are created and deleted with pods or, as
/// representors, with functions, and count only if `scope` names them. That holds for an IPoIB child too, which ADD creates on the
/// host for a moment.
fn read(message: LinkMessage, scope: &LinkScope) -> Option<Link> {
    let link = netlink::Link::decode(message);
    let counts = ports::is_hardware_or_bond(&link) && !link.is_representor() || scope.names(&link);
    let active = match link.info {
        LinkInfo::Bond { active, .. } => active,
        _ => None,
    };
    counts.then_some(Link {
        name: link.name,
        enabled: link.up,
        up: link.carrier,
        active,
    })
}

/// The changes from `before` to `now`. `known` has the names of links.
fn changes(before: &Link, now: &Link, known: &HashMap<u32, Link>) -> Vec<NewEvent> {
    let mut changes = Vec::new();
    // A link that an administrator sets down has not lost carrier. A link is also set down before it moves into a pod or is taken
    // out of service.
    if before.up != now.up && now.enabled {
        let (reason, what) = if now.up {
            (event::LINK_UP, "has carrier again")
        } else {
            (event::LINK_DOWN, "has lost carrier")
        };
        changes.push(NewEvent {
            is_warning: !now.up,
            reason,
            note: format!("link {} {what}", now.name),
        });
    }
    if before.active != now.active {
        let name = |index: u32| known.get(&index).map_or("a port", |link| link.name.as_str());
        let bond = &now.name;
        let note = match (before.active.map(name), now.active.map(name)) {
            (Some(before), Some(now)) => format!("bond {bond} switched from {before} to {now}"),
            (Some(before), None) => {
                format!("bond {bond} lost its active port {before} and has no other with carrier")
            }
            (None, now) => format!("bond {bond} now uses {}", now.unwrap_or_default()),
        };
        changes.push(NewEvent {
            is_warning: before.active.is_some(),
            reason: event::BOND_FAILOVER,
            note,
        });
    }
    changes
}

impl Listener<'_> {
    /// Updates `known` by a message of the kernel, and reports what the message changes.
    fn receive(&self, message: RouteNetlinkMessage, known: &mut HashMap<u32, Link>) {
        match message {
            RouteNetlinkMessage::NewLink(message) if is_of_link(&message) => self.update(message, known),
            RouteNetlinkMessage::DelLink(message) if is_of_link(&message) => {
                self.remove(message.header.index, known);
            }
            _ => {}
        }
    }

    fn update(&self, message: LinkMessage, known: &mut HashMap<u32, Link>) {
        let index = message.header.index;
        let Some(now) = read(message, &self.agent.config.links) else {
            // A link that `--links` named may have another name now.
            return self.remove(index, known);
        };
        let before = known.insert(index, now.clone());
        self.changed.notify_one();
        if let Some(renamed) = before.as_ref().filter(|before| before.name != now.name) {
            self.agent.metrics.link_gone(&renamed.name);
        }
        self.report(before.as_ref(), &now, known);
    }

    fn remove(&self, index: u32, known: &mut HashMap<u32, Link>) {
        if let Some(gone) = known.remove(&index) {
            self.agent.metrics.link_gone(&gone.name);
            self.changed.notify_one();
        }
    }

    fn report(&self, before: Option<&Link>, now: &Link, known: &HashMap<u32, Link>) {
        let carrier = before.is_some_and(|before| before.up != now.up);
        self.agent.metrics.link(&now.name, now.up, carrier);
        for change in before.map_or_else(Vec::new, |before| changes(before, now, known)) {
            tracing::warn!(
                link = now.name,
                up = now.up,
                change = change.note,
                "a link changed"
            );
            if self.events.try_send(change).is_err() {
                tracing::debug!("Event dropped: too many wait for the API server");
            }
        }
    }
}

/// Publishes Events of changes, one after the other, when it is this node's turn.
async fn publish_events(agent: &Agent, mut queue: mpsc::Receiver<NewEvent>) {
    let turn = || tokio::time::sleep(condition::delay(agent, fastrand::f64()));
    while let Some(burst) = next_burst(&mut queue, turn).await {
        for change in burst {
            publish_event(agent, change).await;
        }
    }
}

/// Publishes an Event of the agent's Node.
pub async fn publish_event(agent: &Agent, event: NewEvent) {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(agent.config.node.clone()),
        // kubectl selects Events of a Node by this UID.
        uid: Some(agent.config.node.clone()),
        ..ObjectReference::default()
    };
    agent.events.publish(&Deadline::background(), &about, event).await;
}

/// Waits for a change, and then for `turn`: more changes may follow, on this node and on all others. Returns all changes that have
/// come by then.
async fn next_burst<T: Future<Output = ()>>(
    queue: &mut mpsc::Receiver<NewEvent>,
    turn: impl FnOnce() -> T,
) -> Option<Vec<NewEvent>> {
    let mut burst = vec![queue.recv().await?];
    turn().await;
    while let Ok(next) = queue.try_recv() {
        burst.push(next);
    }
    Some(burst)
}

#[cfg(test)]
mod tests;
