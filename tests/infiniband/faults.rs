// SPDX-License-Identifier: Apache-2.0
//! Kills the plugin in every mode, and then recovers in each way: nothing remains. Emulation is slow, so a run kills at
//! every request about a link or an RDMA device, and at some of the others. `RDMANET_KILLS=1000` kills at each of them,
//! `RDMANET_ALL_KILLS=1` repeats each kill with every way to recover.

use crate::fabric;
use nix::sys::signal::Signal;
use tests::faults::{Faults, Verb};
use tests::{Conf, Node};

/// The number of calls of a verb that are killed in one mode, besides those at requests about links and RDMA devices. One
/// takes about a second.
const fn kills(verb: Verb) -> usize {
    match verb {
        Verb::Add => 6,
        Verb::Del => 4,
    }
}

/// One kind of attachment.
struct Mode {
    /// Its file in `conf/`.
    conf: &'static str,
    /// Whether the node's RDMA subsystem is in exclusive mode.
    exclusive: bool,
    /// Commands that prepare the node.
    node: &'static [&'static str],
    /// Commands that undo the preparation.
    back: &'static [&'static str],
}

impl Mode {
    /// A configuration for a node with three InfiniBand ports, without preparation.
    const fn of(conf: &'static str) -> Self {
        Self {
            conf,
            exclusive: false,
            node: &[],
            back: &[],
        }
    }

    /// A configuration for a port of this RDMA device.
    const fn on_mlx5_1(conf: &'static str) -> Self {
        Self {
            node: &["rdma dev set softib1 name mlx5_1"],
            back: &["rdma dev set mlx5_1 name softib1"],
            ..Self::of(conf)
        }
    }

    /// A configuration for a bond of two ports.
    const fn on_bond(conf: &'static str) -> Self {
        Self {
            node: &[
                "ip link add bond0 type bond mode active-backup fail_over_mac active miimon 100",
                "ip link set ib0 down",
                "ip link set ib0 master bond0",
                "ip link set ib1 down",
                "ip link set ib1 master bond0",
                "ip link set bond0 up",
            ],
            back: &["ip link del bond0", "ip link set ib0 up", "ip link set ib1 up"],
            ..Self::of(conf)
        }
    }

    /// A configuration for an Ethernet port.
    const fn on_ethernet(conf: &'static str) -> Self {
        Self {
            node: &[
                "ip link add ens1f0np0 mtu 9000 type veth peer name ens1f0np0-far mtu 9000",
                "ip link set ens1f0np0 up",
                "ip link set ens1f0np0-far up",
            ],
            back: &["ip link del ens1f0np0"],
            ..Self::of(conf)
        }
    }
}

/// One line for each mode, and two tests for each line.
macro_rules! modes {
    ($($name:ident: $mode:expr;)+) => {$(
        mod $name {
            use super::*;

            #[test]
            fn add_killed_at_requests_about_links_leaves_nothing_after_cleanup() {
                killed_everywhere(&$mode, Verb::Add);
            }

            #[test]
            fn del_killed_at_requests_about_links_leaves_nothing_after_cleanup() {
                killed_everywhere(&$mode, Verb::Del);
            }
        }
    )+};
}

modes! {
    ipoib: Mode::of("ipoib-rail0.conflist");
    partition: Mode::of("ipoib-pkey.conflist");
    any_port: Mode::of("ipoib-any.conflist");
    policy_routing: Mode::on_mlx5_1("ipoib-routed-rail.conflist");
    bond: Mode::on_bond("ipoib-bond.conflist");
    macvlan: Mode::on_ethernet("macvlan-roce.conflist");
    ipvlan: Mode::on_ethernet("ipvlan-roce.conflist");
    device: Mode::of("device.conflist");
    device_with_rdma: Mode {
        exclusive: true,
        ..Mode::of("device.conflist")
    };
}

fn killed_everywhere(mode: &Mode, verb: Verb) {
    let test = |node: &Node| {
        mode.node.iter().for_each(|command| command_on(node, command));
        let conf = Conf::handed_out(mode.conf, node);
        Faults::new(node, &conf).kill_everywhere(verb, Signal::SIGKILL, Some(kills(verb)));
        mode.back.iter().for_each(|command| command_on(node, command));
    };
    if mode.exclusive {
        fabric::run_exclusive(test);
    } else {
        fabric::run(test);
    }
}

fn command_on(node: &Node, command: &str) {
    let (program, words) = command.split_once(' ').unwrap();
    let output = node.exec(program, words);
    assert!(output.status.success(), "{command}: {output:?}");
}
