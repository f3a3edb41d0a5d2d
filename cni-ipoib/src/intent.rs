// SPDX-License-Identifier: Apache-2.0
//! What ADD writes down before its first effect: the content of an attachment's file in the journal. Plain
//! data, which identifies links and devices by properties that survive a change of name and namespace.

mod function;
mod grant;
mod hardware;
mod made;
mod snapshot;

pub use function::Function;
pub use grant::{Grant, Identity, Sharing};
pub use hardware::{Hardware, is_made_by_software};
pub use made::Made;
pub(crate) use snapshot::boot;
pub use snapshot::{PacketSettings, Snapshot, Sysctls};

use common::collector::PodId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What ADD is about to do; the first line of the file. A later line replaces it if a device was recreated
/// meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// `CNI_NETNS`.
    pub netns: PathBuf,
    /// The namespace's device and inode: the path may be reused for another container.
    pub netns_id: (u64, u64),
    /// The pod, if the runtime named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodId>,
    /// The parent.
    pub master: String,
    /// The link of the host that the kernel takes as the parent, if it is not `master` (`plan::given_parent`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Why this parent was chosen, if there was a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The IPAM plugin that allocates the addresses.
    pub ipam: Option<String>,
    /// The device-info file, if ADD writes it.
    #[serde(default)]
    pub device_info: Option<PathBuf>,
    /// The RDMA device that the pod gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma: Option<Grant>,
    /// The state on the host of a link that is moved whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Snapshot>,
    /// Whether the whole link of this attachment is the host's again. Then `device` is absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restored: bool,
    /// The ipvlan mode of a child of a host's link, with the name of `ip link`. An earlier version did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipvlan: Option<String>,
    /// The same for a macvlan child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macvlan: Option<String>,
    /// The links that were created, by properties that the pod cannot change. Written before the links get an
    /// address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<Made>,
}

impl Intent {
    /// The intent once its whole link is restored.
    pub(crate) fn without_device(self) -> Self {
        Self {
            restored: self.restored || self.device.is_some(),
            device: None,
            ..self
        }
    }

    /// The RDMA device that moves into the pod, if one does.
    pub(crate) fn moved(&self) -> Option<&Identity> {
        self.rdma.as_ref()?.moved()
    }
}
