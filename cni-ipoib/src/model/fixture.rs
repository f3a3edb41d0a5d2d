// SPDX-License-Identifier: Apache-2.0
use super::start::GUID;
use super::{Ipam, ModelKernel, Node, Pod, attachment, bonded, call, ipoib};
use crate::CniIpoib;
use crate::config::Paths;
use crate::intent::Grant;
use crate::journal::{Entry, Intent, Journal};
use crate::kernel::{Kernel, Side};
use crate::rdma::transfer::hand_over;
use common::cni::dispatch::{Call, Plugin};
use common::cni::{self, CniResult, GcConf, Version};
use common::netlink::NetnsMode;
use common::netns::Netns;
use common::rdma::Guid;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

/// The whole plugin on a node with `ib0`, with the IPAM plugin `ranges` and one pod.
pub(crate) struct Fixture {
    pub(crate) kernel: ModelKernel,
    pub(crate) ipam: Ipam,
    pub(crate) node: Node,
    pub(crate) pod: Pod,
    pub(crate) state: TempDir,
    /// The master of every call.
    pub(crate) master: &'static str,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(Ipam::dual_stack())
    }

    pub(crate) fn with(ipam: Ipam) -> Self {
        let kernel = ModelKernel::new(vec![ipoib(4, "ib0", 0xffff)]);
        let guid: Guid = GUID.parse().unwrap();
        kernel.set().state.rdma.device(1, "mlx5_0", guid.0, None);
        Self {
            kernel,
            ipam,
            node: Node::with_ib0(),
            pod: Pod::new(),
            state: tempfile::tempdir().unwrap(),
            master: "ib0",
        }
    }

    /// The same on a node with `bond0` of `ib0` and `ib1`, which is the master.
    pub(crate) fn on_bond(self) -> Self {
        Self {
            kernel: ModelKernel::new(bonded()),
            node: Node::with_ib0_and_ib1(),
            master: "bond0",
            ..self
        }
    }

    /// The same on a node without IPv6.
    pub(crate) fn without_ipv6(self) -> Self {
        {
            let state = &mut self.kernel.set().state;
            state.without_ipv6 = true;
            for link in &mut state.host {
                link.addr_gen_mode = None;
            }
        }
        self
    }

    /// The same with HCAs whose driver has no `IPoIB` data path.
    pub(crate) fn plain(self) -> Self {
        self.kernel.set().plain = true;
        self.node.driven("0000:3b:00.0", "mlx4_core");
        self.node.driven("0000:3b:00.1", "mlx4_core");
        self
    }

    pub(crate) fn plugin(&self) -> CniIpoib {
        let (kernel, pod) = (self.kernel.clone(), self.pod.id());
        kernel.set().locked = Some(self.state.path().to_owned());
        let open = move |netns: Option<&Netns>| -> Box<dyn Kernel> {
            match netns {
                Some(other) if other.id() != pod => Box::new(ModelKernel::new(Vec::new())),
                netns => Box::new(kernel.seeing_pod(netns.is_some())),
            }
        };
        let paths = Paths {
            sysfs: self.node.path().to_owned(),
            state: self.state.path().to_owned(),
            device_info: vec![self.state.path().join("devinfo")],
        };
        CniIpoib::new(paths, Box::new(move |netns| Ok(open(netns))))
    }

    /// A call for a child of `ib0` with these keys added.
    pub(crate) fn call(&self, keys: &Value) -> Call {
        let mut all = json!({"master": self.master, "ipam": {"type": "ranges"}});
        let more = keys.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(more);
        Call {
            path: vec![self.ipam.dir().to_owned()],
            ..call(all)
        }
    }

    pub(crate) fn info_file(&self) -> PathBuf {
        self.state.path().join("devinfo/pod.json")
    }

    /// ADD with everything that can be undone: an MTU and a device-info file.
    pub(crate) fn add(&self, container: &str) -> Result<CniResult, cni::Error> {
        let keys = json!({"mtu": 2000, "runtimeConfig": {"CNIDeviceInfoFile": self.info_file()}});
        self.add_with(container, &keys)
    }

    pub(crate) fn add_with(&self, container: &str, keys: &Value) -> Result<CniResult, cni::Error> {
        self.plugin()
            .add(&self.call(keys), &attachment(container), &self.pod.path())
    }

    /// DEL of a runtime that passes `CNI_NETNS`.
    pub(crate) fn del(&self, container: &str) -> Result<(), cni::Error> {
        let netns = self.pod.path();
        self.plugin()
            .del(&self.call(&json!({})), &attachment(container), Some(&netns))
    }

    /// DEL without `CNI_NETNS`.
    pub(crate) fn del_without_netns(&self, container: &str) -> Result<(), cni::Error> {
        self.plugin()
            .del(&self.call(&json!({})), &attachment(container), None)
    }

    pub(crate) fn gc(&self, valid: &[&str]) -> Result<(), cni::Error> {
        let valid = valid.iter().map(|container| attachment(container)).collect();
        self.plugin().gc(&self.call(&json!({})), &GcConf { valid })
    }

    /// CHECK of an attachment with the result `prev`.
    pub(crate) fn check(&self, container: &str, prev: &CniResult) -> Result<(), cni::Error> {
        self.check_with(container, prev, json!({"mtu": 2000}))
    }

    /// CHECK with the keys of ADD.
    pub(crate) fn check_with(
        &self,
        container: &str,
        prev: &CniResult,
        mut keys: Value,
    ) -> Result<(), cni::Error> {
        keys["prevResult"] = prev.to_json(Version::V1_1_0);
        let call = self.call(&keys);
        self.plugin()
            .check(&call, &attachment(container), &self.pod.path())
    }

    pub(crate) fn status(&self, keys: &Value) -> Result<(), cni::Error> {
        self.plugin().status(&self.call(keys))
    }

    /// The entry of a container, locked as by a running call.
    pub(crate) fn entry(&self, container: &str) -> Entry {
        self.journal().open(&attachment(container)).unwrap()
    }

    /// The intent of an ADD for the pod.
    pub(crate) fn intent(&self) -> Intent {
        self.pod.intent(self.master)
    }

    /// Ends the pod of `container` without DEL: the kernel returns its links and devices. The model has one namespace for
    /// pods, so the record of `container` gets another one.
    pub(crate) fn kill_pod(&self, container: &str) {
        self.amend_intent(container, |intent| intent.netns_id = (1, 1));
        self.kernel.set().state.pod_dies();
    }

    /// Changes the record of ADD about `container`. A complete attachment stays complete.
    pub(crate) fn amend_intent(&self, container: &str, change: impl FnOnce(&mut Intent)) {
        let mut entry = self.entry(container);
        let (done, mut intent) = (entry.done, entry.intent.clone().unwrap());
        change(&mut intent);
        entry.begin(intent).unwrap();
        if done {
            entry.finish().unwrap();
        }
    }

    /// Sets the node to exclusive mode and gives `mlx5_1`, as in `grant`, to the pod of `c1`, whose ADD was killed before it
    /// made a link.
    pub(crate) fn grant_rdma(&self, grant: &Grant) {
        {
            let rdma = &mut self.kernel.set().state.rdma;
            rdma.mode = NetnsMode::Exclusive;
            rdma.device(2, "mlx5_1", 7, None);
        }
        let intent = Intent {
            rdma: Some(grant.clone()),
            ..self.intent()
        };
        self.entry("c1").begin(intent).unwrap();
        hand_over(&mut self.kernel.clone(), self.state.path(), grant).unwrap();
    }

    /// The names of the RDMA devices in a namespace.
    pub(crate) fn rdma_names(&self, side: Side) -> Vec<String> {
        let rdma = self.kernel.state().rdma;
        rdma.names(side).into_iter().map(str::to_owned).collect()
    }

    /// The containers in the journal.
    pub(crate) fn written_down(&self) -> Vec<String> {
        let known = self.journal().attachments().unwrap();
        known.iter().map(|known| known.container_id.to_string()).collect()
    }

    fn journal(&self) -> Journal {
        Journal::new(self.state.path(), "fabric")
    }
}
