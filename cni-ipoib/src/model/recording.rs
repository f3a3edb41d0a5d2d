// SPDX-License-Identifier: Apache-2.0
use super::{ModelKernel, Node};
use reader::{Recorded, write_sysfs};

/// The reader of recordings is a part of the command. A dependency on that crate would be a cycle.
#[path = "../../../cli/src/node/recording.rs"]
mod reader;

/// The node of a recording: its sysfs, and its kernel.
pub(crate) fn recorded(sysfs: &str, addresses: &str, routes: &str) -> (Node, ModelKernel) {
    let node = Node::bare();
    write_sysfs(sysfs, node.path()).unwrap();
    let recorded = Recorded::read(addresses, routes).unwrap();
    let kernel = ModelKernel::new(recorded.links);
    let global = recorded
        .addresses
        .into_iter()
        .filter(|(_, address)| address.scope == 0);
    let nets = global.map(|(index, address)| (index, address.address));
    kernel.set().state.host_addresses.extend(nets);
    kernel.set().state.host_routes.extend(recorded.routes);
    (node, kernel)
}
