// SPDX-License-Identifier: Apache-2.0
//! The pools of all machines: one of each kind of allocation. Both are slightly smaller than the machines need at
//! most, so blocks are transferred and shared, and resting addresses are allocated early.

use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a released address rests.
pub(crate) const COOLDOWN: Duration = Duration::from_secs(1);

/// The addresses of each family that a pool of blocks reserves for replicas.
const RESERVED: usize = 16;

/// A pool, by its kind of allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Two families, in blocks of eight. The replicas' addresses are reserved.
    Blocks,
    /// One family. Each address is an object.
    PerAddress,
}

impl Pool {
    pub(crate) const ALL: [Self; 2] = [Self::Blocks, Self::PerAddress];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Blocks => "chaos-blocks",
            Self::PerAddress => "chaos-addresses",
        }
    }

    /// The number of the low bits in which the addresses of a subnet differ.
    fn bits(self, machines: u64) -> u32 {
        let blocks = 8 + machines.div_ceil(6).next_power_of_two().ilog2();
        match self {
            Self::Blocks => blocks,
            Self::PerAddress => blocks - 3,
        }
    }

    /// The number of addresses that pods can get. Both families of a pool have as many.
    pub(crate) fn addresses(self, machines: u64) -> usize {
        let all = (1 << self.bits(machines)) - 2;
        match self {
            Self::Blocks => 2 * (all - RESERVED),
            Self::PerAddress => all,
        }
    }

    fn spec(self, machines: u64) -> Value {
        let bits = self.bits(machines);
        let mut spec = match self {
            Self::Blocks => json!({
                "ranges": [
                    { "subnet": format!("10.77.0.0/{}", 32 - bits), "gateway": "none" },
                    // IPv6 has no broadcast address, so one more address is left out here.
                    { "subnet": format!("fd77::/{}", 128 - bits), "gateway": "none", "exclude": ["fd77::1"] },
                ],
                "blockSize": { "v4": 8, "v6": 8 },
                "reserved": ["10.77.0.16/28", "fd77::10/124"],
            }),
            Self::PerAddress => json!({
                "ranges": [{ "subnet": format!("10.78.0.0/{}", 32 - bits), "gateway": "none" }],
                "allocation": "PerAddress",
            }),
        };
        spec["cooldownSeconds"] = json!(COOLDOWN.as_secs());
        spec["sticky"] = json!("StatefulSet");
        spec
    }

    pub(crate) async fn create(self, admin: &Client, machines: u64) {
        let api: Api<api::IpPool> = Api::all(admin.clone());
        apiserver::objects::create(&api, apiserver::objects::pool(self.name(), &self.spec(machines))).await;
    }
}
