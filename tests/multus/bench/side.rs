// SPDX-License-Identifier: Apache-2.0
//! The sides of the comparison: a main plugin with its IPAM plugin.

use crate::report::Measurements;
use multus::Setup;
use serde_json::{Value, json};
use std::path::Path;

/// One side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// rdmanet, with addresses of a cluster's pool in blocks of the node. No agent runs.
    Pool,
    /// rdmanet, with addresses of the node's own range.
    Ranges,
    /// The reference macvlan plugin, with addresses that are API objects.
    Whereabouts,
    /// The reference macvlan plugin, with addresses from the daemon of the node.
    NvIpam,
}

impl Kind {
    /// Its name in the report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Pool => "cni-ipoib, rdma-ipam with a pool",
            Self::Ranges => "cni-ipoib, rdma-ipam with ranges",
            Self::Whereabouts => "macvlan v1.9.1, whereabouts v0.9.4",
            Self::NvIpam => "macvlan v1.9.1, nv-ipam",
        }
    }
}

/// Networks that differ only in their number.
pub(crate) struct Side {
    kind: Kind,
    /// The part of the `ipam` section that is the same in all networks.
    ipam: Value,
}

impl Side {
    /// See [`Kind::Pool`].
    pub(crate) fn pool() -> Self {
        Self::new(Kind::Pool, json!({ "type": "rdma-ipam", "pool": "rail0" }))
    }

    /// See [`Kind::Ranges`].
    pub(crate) fn ranges() -> Self {
        Self::new(Kind::Ranges, json!({ "type": "rdma-ipam", "cooldown": 0 }))
    }

    /// See [`Kind::Whereabouts`]; `defaults` is the file that its installation writes.
    pub(crate) fn whereabouts(defaults: &Path) -> Self {
        let ipam = json!({ "type": "whereabouts", "configuration_path": defaults });
        Self::new(Kind::Whereabouts, ipam)
    }

    /// See [`Kind::NvIpam`]; `ipam` names its pool and its daemon.
    pub(crate) fn nv_ipam(ipam: &Value) -> Self {
        Self::new(Kind::NvIpam, ipam.clone())
    }

    fn new(kind: Kind, ipam: Value) -> Self {
        Self { kind, ipam }
    }

    /// The name of network `number`.
    pub(crate) fn network(&self, number: usize) -> String {
        format!("{:?}-{number}", self.kind).to_lowercase()
    }

    /// The configuration of network `number`.
    pub(crate) fn conf(&self, number: usize) -> Value {
        let subnet = format!("10.{}.0.0/16", 100 + number);
        let mut ipam = self.ipam.clone();
        match self.kind {
            Kind::Ranges => ipam["ranges"] = json!([[{ "subnet": subnet }]]),
            Kind::Whereabouts => ipam["range"] = json!(subnet),
            Kind::Pool | Kind::NvIpam => {}
        }
        let plugin = match self.kind {
            Kind::Pool | Kind::Ranges => "cni-ipoib",
            Kind::Whereabouts | Kind::NvIpam => "macvlan",
        };
        let mut conf = json!({
            "cniVersion": "1.0.0", "name": self.network(number), "type": plugin, "master": "eth0", "ipam": ipam,
        });
        if plugin == "cni-ipoib" {
            conf["mode"] = json!("macvlan");
        }
        conf
    }

    /// ADD and DEL of a pod with `count` of these networks.
    pub(crate) fn measure(&self, setup: &Setup, count: usize, round: usize, table: &mut Measurements) {
        let wanted: Vec<String> = (0..count).map(|number| self.network(number)).collect();
        let name = format!("{}-{count}-{round}", self.network(0));
        let (sandbox, pod) = setup.pod(&name, &wanted.join(","));
        let multus = setup.thin();
        for verb in ["ADD", "DEL"] {
            let mark = setup.server().mark();
            let answer = match verb {
                "ADD" => multus.add(&sandbox, &pod),
                _ => multus.call(verb, &sandbox, &pod).run(),
            };
            assert!(answer.status.success(), "{name}: {answer}");
            let requests = setup.server().requests_since(mark).len();
            let kind = (count > 0).then_some(self.kind);
            table.add((count, verb, kind), answer.took, requests);
            if verb == "ADD" {
                assert_eq!(sandbox.link_names().len(), count + 1, "{name}");
            }
        }
        setup.delete(&pod);
    }
}
