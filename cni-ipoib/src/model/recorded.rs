// SPDX-License-Identifier: Apache-2.0
use super::{ModelKernel, Node};
use crate::recorded::{Recorded, write_sysfs};

/// The node of a recording (see [`crate::recorded`]): its sysfs, and its kernel.
pub(crate) fn recorded(sysfs: &str, addresses: &str, routes: &str) -> (Node, ModelKernel) {
    let node = Node::bare();
    write_sysfs(sysfs, node.path()).unwrap();
    let told = Recorded::read(addresses, routes).unwrap();
    let kernel = ModelKernel::new(told.links);
    let global = told
        .addresses
        .into_iter()
        .filter(|(_, address)| address.scope == 0);
    let nets = global.map(|(index, address)| (index, address.address));
    kernel.set().state.host_addresses.extend(nets);
    kernel.set().state.host_routes.extend(told.routes);
    (node, kernel)
}
