// SPDX-License-Identifier: Apache-2.0
//! The compared plugins, each with its nodes and its records of addresses.

pub mod ours;
pub mod peer;

use crate::call::Call;
use crate::witness::{Assignment, Difference};
use apiserver::install::until;
use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::path::Path;

/// The name of the network.
pub const NETWORK: &str = "bench";

/// An address that a pod got.
#[derive(Clone, Debug)]
pub struct Given {
    /// The index of the pod's node.
    pub node: usize,
    /// The address and the pod.
    pub assignment: Assignment,
}

/// The records of one place, compared with the results.
#[derive(Clone, Debug)]
pub struct Witness {
    /// The place.
    pub name: &'static str,
    /// The difference.
    pub difference: Difference,
}

/// The sandbox of a call.
#[derive(Clone, Copy, Debug)]
pub struct Sandbox<'a> {
    /// The index of its node.
    pub node: usize,
    /// The name of its pod.
    pub pod: &'a str,
    /// Its id.
    pub id: &'a str,
}

impl Sandbox<'_> {
    /// A call of an IPAM plugin with this section, without an agent and without a node.
    fn call(&self, plugin: &Path, verb: &'static str, ipam: &Value) -> Call {
        Call {
            program: plugin.to_owned(),
            verb,
            id: self.id.to_owned(),
            pod: self.pod.to_owned(),
            conf: conf(ipam),
            agent: None,
            node: None,
            netns: None,
        }
    }
}

/// A plugin with its nodes.
pub trait Side: Sync {
    /// Its name in the report.
    fn title(&self) -> &'static str;

    /// The user name of its requests in the audit log.
    fn user(&self) -> String;

    /// The number of addresses that it may allocate.
    fn addresses(&self) -> u32;

    /// A call for a sandbox.
    fn call(&self, verb: &'static str, sandbox: Sandbox<'_>) -> Call;

    /// Compares all records of this side with `given`.
    fn witnesses(&self, given: &[Given]) -> impl Future<Output = Vec<Witness>>;
}

/// All objects. It repeats the request, because an API server that has just started cannot list custom resources yet.
async fn list<K: Clone + DeserializeOwned + Debug>(objects: Api<K>) -> Vec<K> {
    let mut items = Vec::new();
    until("the API server lists objects", async || {
        let listed = objects.list(&ListParams::default()).await;
        let succeeded = listed.is_ok();
        items = listed.map_or_else(|_| Vec::new(), |listed| listed.items);
        succeeded
    })
    .await;
    items
}

/// The configuration of a network whose IPAM plugin has this section.
fn conf(ipam: &Value) -> String {
    json!({ "cniVersion": "1.0.0", "name": NETWORK, "type": "macvlan", "ipam": ipam }).to_string()
}
