// SPDX-License-Identifier: Apache-2.0
//! Proof that nothing happens: a process has looked at an object and left it unchanged.
//!
//! A pause proves that only if the machine is fast. Here the process has to do its work on another object that came later. When that
//! is done twice, one after the other, it has looked at the earlier object as often as an action needs.

use crate::pools::simple;
use crate::{Named, Site};
use api::NodeRef;
use apiserver::install::until;
use serde_json::json;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A collector acts when its second look at a netns still finds it gone. The action on the first of two namespaces may come before
/// that on an older one in the same look. The second namespace begins after that look.
const LATER: u32 = 2;

/// Waits until a collector has collected what belonged to namespaces that ended after the call. `attach` attaches a container of this
/// name, whose pod the API server does not have, in the namespace at the path. `is_collected` returns whether nothing is left of it.
pub async fn until_collected_later(
    mut attach: impl AsyncFnMut(&str, PathBuf),
    mut is_collected: impl AsyncFnMut(&str) -> bool,
) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Keeps the directory of namespaces while the others are deleted.
    let _last = Named::new(&format!("later-last-{}", COUNT.fetch_add(1, Ordering::SeqCst)));
    for _ in 0..LATER {
        let name = format!("later-{}", COUNT.fetch_add(1, Ordering::SeqCst));
        let netns = Named::new(&name);
        attach(&name, netns.path()).await;
        drop(netns);
        until("what ended later is collected", async || {
            is_collected(&name).await
        })
        .await;
    }
}

/// Waits until the controller has freed blocks of nodes that were gone only after the call, so their quarantine is over. No node has
/// another block of the pool `later`, which this makes.
pub async fn until_blocks_freed_later(site: &Site) {
    let mut spec = simple("10.250.0.0/28");
    spec["nodeSelector"] = json!({ "matchLabels": { "later": "none" } });
    site.pool("later", spec).await;
    site.wait_condition("later", "Ready", "True").await;
    for number in 0..LATER {
        let gone = NodeRef {
            node: format!("later-{number}"),
            node_uid: format!("later-{number}"),
        };
        site.crowd("later", Ipv4Addr::new(10, 250, 0, 0), 1, |_| gone.clone())
            .await;
        until("the block of the later node is free", async || {
            site.blocks("later").await.is_empty()
        })
        .await;
    }
}
