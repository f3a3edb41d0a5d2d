// SPDX-License-Identifier: Apache-2.0
//! A real node: one of its two 200 Gbit/s InfiniBand cards has a cable, and which one differs from node to node. A
//! third RDMA device is a LAG of the 10 Gbit/s ports of the node's own network.
//!
//! The model has the layout of the mlx5 driver and the owner's published output (`ibstat`, `ibdev2netdev`).

use super::*;
use crate::error::Error;
use crate::host::{Host, observe, side_of};
use crate::model::{ModelKernel, Node, recorded};
use crate::plan;
use common::cni;

fn a100() -> (Node, ModelKernel) {
    recorded(
        include_str!("a100/sysfs"),
        include_str!("a100/address.json"),
        include_str!("a100/route.json"),
    )
}

/// The host with the chosen parent.
fn chosen(kernel: &mut ModelKernel, node: &Node, config: &Config) -> Result<Host, Error> {
    let resolved = resolve(kernel, &node.sysfs(), &config.master)?;
    observe(kernel, &node.sysfs(), side_of(config), &resolved.master)
}

/// The parent of the planned child, and the reason.
fn picked(keys: Value) -> (String, String) {
    let (node, mut kernel) = a100();
    let config = Config::read(&call(keys.clone())).unwrap();
    let host = chosen(&mut kernel, &node, &config).unwrap_or_else(|e| panic!("{keys}: {e}"));
    let child = plan::child(&config, &host).unwrap();
    let Master::Preferred(preferences) = &config.master else {
        panic!("{keys} leaves no choice");
    };
    let found = candidates(&mut kernel, &node.sysfs(), preferences, &Loads::new()).unwrap();
    let choice = choose(preferences, &found).unwrap();
    assert_eq!(choice.name, child.parent);
    (host.port.unwrap().device, choice.why)
}

fn nothing_fits(master: Value) -> (u32, String) {
    let (node, mut kernel) = a100();
    let config = Config::read(&call(json!({"master": master}))).unwrap();
    let error = cni::Error::from(chosen(&mut kernel, &node, &config).unwrap_err());
    (error.code.0, error.msg)
}

#[test]
fn the_a100_node_gets_the_active_port_with_a_reason() {
    let (device, why) = picked(json!({"master": {"linkLayer": "InfiniBand"}}));
    assert_eq!(device, "mlx5_1");
    assert_eq!(
        why,
        "the only link that fits {linkLayer: InfiniBand}; passed over: \
         bond0 (Ethernet, mlx5_bond_0/1) carries the node's default route; name it if pods may share it; \
         ens1f0np0 (Ethernet, mlx5_bond_0/1) is a port of bond0; \
         ibp27s0 (InfiniBand, mlx5_0/1) carries nothing: mlx5_0 port 1 is down (Disabled)"
    );
}

#[test]
fn one_configuration_fits_whichever_port_of_the_a100_node_is_cabled() {
    for master in [
        json!({}),
        json!({"rateMin": 100}),
        json!({"rdmaDevice": "mlx5_*"}),
        json!({"ifName": "ib*"}),
        json!({"subnetPrefix": "fe80:0000:0000:0000"}),
        json!({"pkey": "0xffff"}),
        json!(["ibp27s0", "ibp75s0"]),
        json!(["ibs1", {"linkLayer": "InfiniBand"}]),
    ] {
        assert_eq!(picked(json!({"master": master})).0, "mlx5_1", "{master}");
    }
    assert_eq!(picked(json!({"master": ["ibs7"]})).0, "mlx5_1", "by altname");
    assert_eq!(
        picked(json!({"master": {}, "mode": "ipoib", "pkey": "0xffff"})).0,
        "mlx5_1"
    );
}

#[test]
fn the_management_bond_is_never_offered_to_a_description() {
    for master in [
        json!({"linkLayer": "Ethernet"}),
        json!({"rdmaDevice": "mlx5_bond_0"}),
        json!({"pciAddress": "0000:17:00.*"}),
        json!({"ifName": "bond*"}),
        json!({"numaNode": 0, "linkLayer": "Ethernet", "state": "any"}),
    ] {
        let (code, text) = nothing_fits(master.clone());
        assert_eq!(code, 7, "{master}: {text}");
        assert!(text.starts_with("no link of this node fits master: bond0 (Ethernet, mlx5_bond_0/1) carries the node's default route"), "{text}");
        assert!(
            text.contains("ens1f0np0 (Ethernet, mlx5_bond_0/1) is a port of bond0"),
            "{text}"
        );
        assert!(!text.contains("docker0") && !text.contains("cali"), "{text}");
    }
}

#[test]
fn a_bond_with_the_nodes_address_is_withheld_without_a_default_route() {
    let (node, mut kernel) = a100();
    kernel.set().state.host_routes.clear();
    let preferences = preferences(json!({"linkLayer": "Ethernet"}));
    let found = candidates(&mut kernel, &node.sysfs(), &preferences, &Loads::new()).unwrap();
    let text = list_passed_over(&choose(&preferences, &found).unwrap_err());
    assert!(
        text.contains(
            "bond0 (Ethernet, mlx5_bond_0/1) is a bond that carries the node's address 10.20.0.21; "
        ),
        "{text}"
    );
}

#[test]
fn a_port_without_a_cable_has_the_code_of_carrier() {
    let (code, text) = nothing_fits(json!({"rdmaDevice": "mlx5_0"}));
    assert_eq!(code, 102);
    assert!(
        text.contains("ibp27s0 (InfiniBand, mlx5_0/1) carries nothing: mlx5_0 port 1 is down (Disabled)"),
        "{text}"
    );
    assert!(
        text.contains("ibp75s0 (InfiniBand, mlx5_1/1) has mlx5_1, not mlx5_0 (rdmaDevice)"),
        "{text}"
    );
}
