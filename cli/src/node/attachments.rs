// SPDX-License-Identifier: Apache-2.0
//! The attachments of `cni-ipoib` on a node, and which links and RDMA devices of the node their pods have. The host does
//! not see such a link, and in exclusive mode it does not see such an RDMA device. Neither is a fault of the node.

use cni_ipoib::intent::{Grant, Hardware, Identity, Intent, Made, Snapshot};
use cni_ipoib::journal::Written;
use common::netlink::Link;
use common::rdma::{Device, Guid, Port, PortLayer};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

/// A user of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum User {
    /// An attachment of ours.
    Attachment(Attached),
    /// A link of the host on top of it.
    Link {
        /// Its name.
        name: String,
    },
}

/// An attachment of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attached {
    /// The network.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// The pod, if the runtime named it to one of our plugins.
    pub pod: Option<String>,
}

/// What the pod of an attachment has of the node: a whole link, an RDMA device, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPod {
    /// The attachment.
    pub attached: Attached,
    /// The state of the whole link on the host.
    pub link: Option<Snapshot>,
    /// The RDMA device of the attachment.
    pub grant: Option<Grant>,
}

/// An attachment whose pod has children of links of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithChildren {
    /// The attachment.
    pub attached: Attached,
    /// The name of the link that the attachment chose.
    pub master: String,
    /// The indexes of the parents on the host.
    parents: Vec<u32>,
}

/// The attachments of `cni-ipoib` on a node. A record has none.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    /// The users of each link, by its name.
    pub(super) users: BTreeMap<String, Vec<User>>,
    /// The pods that have a whole link or an RDMA device.
    pub(super) in_pods: Vec<InPod>,
    /// The pods that have children.
    pub(super) with_children: Vec<WithChildren>,
}

impl Attachments {
    /// The attachments in the journal. `pods` has the pods that rdma-ipam knows, by container id.
    pub(super) fn of(
        records: &[Written],
        pods: &BTreeMap<String, String>,
        lives: impl Fn(&Written) -> bool,
    ) -> Self {
        let mut all = Self::default();
        let interface =
            |one: &Written, name: &str| (one.attachment.container_id.to_string(), name.to_owned());
        let interfaces: BTreeSet<_> = records
            .iter()
            .map(|one| interface(one, one.attachment.ifname.as_str()))
            .collect();
        for one in records {
            let attached = Attached::of(one, pods);
            all.in_pods.extend(InPod::of(one, &attached, &lives));
            // `linkInContainer`: the parent is another interface of the pod.
            if !interfaces.contains(&interface(one, &one.intent.master)) {
                all.with_children.extend(WithChildren::of(one, &attached, &lives));
            }
            let of_master = all.users.entry(one.intent.master.clone()).or_default();
            of_master.push(User::Attachment(attached));
        }
        all
    }
}

impl Attached {
    /// The attachment of `of`. `pods` has the pods that rdma-ipam knows, by container id.
    pub fn of(of: &Written, pods: &BTreeMap<String, String>) -> Self {
        let container_id = of.attachment.container_id.to_string();
        let named = || {
            let pod = of.intent.pod.as_ref()?;
            Some(format!("{}/{}", pod.namespace, pod.name))
        };
        Self {
            network: of.network.clone(),
            pod: pods.get(&container_id).cloned().or_else(named),
            container_id,
            ifname: of.attachment.ifname.to_string(),
        }
    }

    /// `pod ml/trainer-0`, or the container if no pod is known.
    pub fn place(&self) -> String {
        match &self.pod {
            Some(pod) => format!("pod {pod}"),
            None => format!("container {}", self.container_id),
        }
    }
}

impl WithChildren {
    /// The children of `of`. `None` if it has none of a link of the host, or the namespace of the pod is gone.
    fn of(of: &Written, attached: &Attached, lives: impl Fn(&Written) -> bool) -> Option<Self> {
        let parents: Vec<u32> = of.intent.made.iter().filter_map(Made::parent_on_host).collect();
        (!parents.is_empty() && lives(of)).then(|| Self {
            attached: attached.clone(),
            master: of.intent.master.clone(),
            parents,
        })
    }

    /// Whether a parent is not among `links`, those of the host: its driver was loaded again, or its adapter is gone. The
    /// kernel has then deleted the children. A link that is created anew has another index.
    pub(super) fn is_lost(&self, links: &[Link]) -> bool {
        let is_there = |parent: &u32| links.iter().any(|link| link.index == *parent);
        !self.parents.iter().all(is_there)
    }
}

impl InPod {
    /// The link of `of`, and its RDMA device if that moved. `None` if neither is in the pod, the namespace of the
    /// pod is gone, or the entry is of an earlier boot: then the kernel has returned or created both on the host.
    pub fn of(of: &Written, attached: &Attached, lives: impl Fn(&Written) -> bool) -> Option<Self> {
        let Intent { device, rdma, .. } = &of.intent;
        let is_in_pod = device.is_some() || rdma.as_ref().and_then(Grant::moved).is_some();
        let is_of_this_boot = device.as_ref().is_none_or(Snapshot::is_of_this_boot);
        (is_in_pod && is_of_this_boot && lives(of)).then(|| Self {
            attached: attached.clone(),
            link: device.clone(),
            grant: rdma.clone(),
        })
    }

    /// Whether the pod has the link of `port`.
    pub fn has_link_of(&self, device: &Device, port: &Port) -> bool {
        let is_port = |grant: &Grant| grant.port == port.number;
        let is_its = |link: &Snapshot| is_link_of(&link.hardware, device, port);
        self.link.as_ref().is_some_and(is_its) && self.grant.as_ref().is_none_or(is_port)
    }

    /// The RDMA device that is in the pod and not among `devices`, which the host sees.
    pub fn hidden<'a>(&'a self, devices: &[Device]) -> Option<&'a Identity> {
        let moved = self.grant.as_ref()?.moved()?;
        let is_it = |seen: &Device| {
            let elsewhere = matches!((moved.pci, seen.pci), (Some(its), Some(other)) if its != other);
            let guid = moved.node_guid != Guid(0) && moved.node_guid == seen.node_guid;
            !elsewhere && (guid || moved.name == seen.name)
        };
        (!devices.iter().any(is_it)).then_some(moved)
    }
}

/// Whether the link with this hardware is the link of `port`. A PCI function may have several InfiniBand ports, each
/// with its GUID, and GUIDs are copied between virtual functions.
fn is_link_of(link: &Hardware, device: &Device, port: &Port) -> bool {
    let name = |path: &Option<_>| path.as_deref().and_then(Path::file_name).map(OsStr::to_owned);
    let (its, of_port) = (name(&link.path), name(&device.path));
    match port.layer {
        PortLayer::Infiniband => its == of_port && link.port_guid.is_some() && link.port_guid == port.guid(),
        _ => its == of_port && its.is_some() && link.port_guid.is_none(),
    }
}
