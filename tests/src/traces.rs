// SPDX-License-Identifier: Apache-2.0
//! The traces of attachments on a node. A comparison of two shows whether an attachment left something behind.

use crate::node::files_below;
use crate::{Node, Pod};

/// The objects that ADD creates and DEL deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    /// Links of the node.
    pub node: Vec<String>,
    /// Links of the pods, with their addresses.
    pub pods: Vec<(String, String)>,
    /// Files of attachments.
    pub attachments: Vec<String>,
    /// Files beside them, of the same attachments.
    pub beside: Vec<String>,
    /// Leases and claimed addresses of `rdma-ipam` and `host-local`.
    pub leases: Vec<String>,
}

impl Node {
    /// The traces on this node and in these pods.
    pub fn traces(&self, pods: &[&Pod<'_>]) -> Traces {
        let of_pod = |pod: &&Pod<'_>| {
            let links = pod.links();
            let name = |link: common::netlink::Link| (pod.id.clone(), link.name);
            links.into_iter().map(name).collect::<Vec<_>>()
        };
        let state = files_below(&self.path("state"), &|_| true).into_iter();
        let (attachments, beside) = state.partition(|file| file.starts_with("attachments/"));
        Traces {
            node: self.link_names(),
            pods: pods
                .iter()
                .filter(|pod| pod.netns.exists())
                .flat_map(of_pod)
                .collect(),
            attachments,
            beside,
            leases: self.leases(),
        }
    }

    /// The leases and claimed addresses of `rdma-ipam` and `host-local`, without addresses in cooldown.
    pub fn leases(&self) -> Vec<String> {
        let ours = |name: &str| name.contains("/leases/") || name.contains("/addresses/");
        let theirs = |name: &str| !name.ends_with("/lock") && !name.contains("/last_reserved_ip");
        let mut all = files_below(&self.path("rdma-ipam"), &ours);
        all.extend(files_below(&self.path("host-local"), &theirs));
        all
    }
}

/// Asserts that nothing was left and nothing else was deleted.
#[track_caller]
pub fn assert_same(before: &Traces, after: &Traces, when: &str) {
    assert_eq!(after.node, before.node, "links of the node {when}");
    assert_eq!(after.pods, before.pods, "links of the pods {when}");
    assert_eq!(
        after.attachments, before.attachments,
        "files of attachments {when}"
    );
    assert_eq!(
        after.beside, before.beside,
        "files beside those of attachments {when}"
    );
    assert_eq!(after.leases, before.leases, "leases {when}");
}
