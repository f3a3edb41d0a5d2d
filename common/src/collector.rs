// SPDX-License-Identifier: Apache-2.0
//! What the agent and the collector of a node send each other: one line of JSON as request, one as reply.
//!
//! The collector is a process of `cni-ipoib` that may change the links of the node and has no access to the API
//! server. The agent has that access and no right to change links. So neither removes an attachment alone
//! (`docs/design/garbage.md`).

use crate::cni::{Args, Attachment};
use serde::{Deserialize, Serialize};

/// The collector's socket, in the directory that both containers see.
pub const SOCKET: &str = "/run/rdmanet/agent/collector.sock";

/// The variable that names another socket.
pub const SOCKET_VARIABLE: &str = "RDMANET_COLLECTOR";

/// The pod of an attachment, as the kubelet names it in `CNI_ARGS`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodId {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// `K8S_POD_NAME`.
    pub name: String,
    /// `K8S_POD_UID`.
    pub uid: String,
}

impl PodId {
    /// The pod of a call; `None` if one of the three keys is missing, as with cnitool.
    pub fn of(args: &Args) -> Option<Self> {
        let text = |key| args.get(key).map(str::to_owned);
        Some(Self {
            namespace: text("K8S_POD_NAMESPACE")?,
            name: text("K8S_POD_NAME")?,
            uid: text("K8S_POD_UID")?,
        })
    }
}

/// An attachment of a pod whose network namespace is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeadAttachment {
    /// The name of its network configuration.
    pub network: String,
    /// The attachment.
    pub attachment: Attachment,
    /// Device and inode of the namespace that ADD used. A repeated ADD in another namespace is another
    /// attachment.
    pub netns_id: (u64, u64),
    /// Its pod.
    pub pod: PodId,
    /// Whether a living sandbox of the same pod has this interface.
    pub replaced: bool,
}

/// A request of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Lists the attachments of pods whose namespaces are gone.
    List,
    /// Removes one of them. The API server has no such pod any more.
    #[serde(rename_all = "camelCase")]
    Collect {
        /// The attachment.
        dead: DeadAttachment,
        /// For how many seconds the agent has seen it unused.
        seconds: u64,
    },
}

/// The reply of the collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// The answer to [`Request::List`].
    Dead(Vec<DeadAttachment>),
    /// Nothing of the attachment is left.
    Collected,
    /// The attachment stays, for this reason.
    Kept(String),
    /// The request failed, for this reason. A later one may succeed.
    Failed(String),
}
