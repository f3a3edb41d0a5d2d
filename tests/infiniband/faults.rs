// SPDX-License-Identifier: Apache-2.0
//! A kill at every request that changes something, in every mode, followed by each way to put it right: nothing is left
//! of it. Emulation is slow, so that only some of the kills are made, spread evenly; `RDMANET_ALL_KILLS=1` makes all.

use crate::fabric;
use nix::sys::signal::Signal;
use tests::faults::{Faults, Verb};
use tests::{Conf, Node};

/// How many calls of a verb are killed in one mode: about a second each.
const fn kills(verb: Verb) -> usize {
    match verb {
        Verb::Add => 16,
        Verb::Del => 9,
    }
}

/// A way to be attached.
struct Mode {
    /// Its file in `conf/`.
    conf: &'static str,
    /// What the node must have before, as words for `ip`.
    node: &'static [&'static str],
    /// The way back.
    back: &'static [&'static str],
}

impl Mode {
    /// A configuration for a node that has three ports, and needs nothing else.
    const fn of(conf: &'static str) -> Self {
        Self {
            conf,
            node: &[],
            back: &[],
        }
    }

    /// A configuration for an Ethernet port.
    const fn on_ethernet(conf: &'static str) -> Self {
        Self {
            conf,
            node: &[
                "link add ens1f0np0 mtu 9000 type veth peer name ens1f0np0-far mtu 9000",
                "link set ens1f0np0 up",
                "link set ens1f0np0-far up",
            ],
            back: &["link del ens1f0np0"],
        }
    }
}

/// One line for each mode, and two tests for each line.
macro_rules! modes {
    ($($name:ident: $mode:expr;)+) => {$(
        mod $name {
            use super::*;

            #[test]
            fn add_killed_before_any_change_leaves_nothing_that_is_not_put_right() {
                killed_everywhere(&$mode, Verb::Add);
            }

            #[test]
            fn del_killed_before_any_change_leaves_nothing_that_is_not_put_right() {
                killed_everywhere(&$mode, Verb::Del);
            }
        }
    )+};
}

modes! {
    ipoib: Mode::of("ipoib-rail0.conflist");
    partition: Mode::of("ipoib-pkey.conflist");
    macvlan: Mode::on_ethernet("macvlan-roce.conflist");
    ipvlan: Mode::on_ethernet("ipvlan-roce.conflist");
}

fn killed_everywhere(mode: &Mode, verb: Verb) {
    fabric::run(|node: &Node| {
        mode.node.iter().for_each(|words| drop(node.ip(words)));
        let conf = Conf::handed_out(mode.conf, node);
        Faults::new(node, &conf).kill_everywhere(verb, Signal::SIGKILL, Some(kills(verb)));
        mode.back.iter().for_each(|words| drop(node.ip(words)));
    });
}
