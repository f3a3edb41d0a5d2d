// SPDX-License-Identifier: Apache-2.0
//! The probe of an address on `IPoIB`: ADD asks from a link that has just come up, and finds the pod that has the
//! address.

use crate::bond::bonded;
use crate::fabric::{network, run_accelerated, sa_delay};
use std::thread;
use tests::{Answer, Conf, Node, Pod, json};

/// How long the subnet administrator takes for each response, in milliseconds. An answer for an IPv6 address needs about
/// five responses.
const DELAY: u32 = 150;

/// How many ADDs a test calls until one finds the other pod. A probe misses it if the VM gets no processor time meanwhile.
const TRIES: usize = 10;

/// The kinds of HCA: none accelerated, all accelerated.
const KINDS: [&str; 2] = ["", "all"];

fn with_address(node: &Node, master: &str, address: &str, probed: bool) -> Conf {
    let result = json!({"ips": [{"address": address, "rdmanet.io/probe": probed}]});
    network(
        node,
        &json!({"master": master, "ipam": node.scripted_ipam(&result)}),
    )
}

/// Calls ADD until it is refused, at most [`TRIES`] times.
fn first_refused(pod: &Pod<'_>, conf: &Conf) -> Answer {
    first(&format!("{conf:?}"), || {
        let answer = pod.add(conf, "net1");
        if answer.status.success() {
            pod.detach(conf, "net1");
            return None;
        }
        Some(answer)
    })
}

/// The first result of `look`, which probes once. Fails after [`TRIES`] probes without one.
fn first<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    let mut found = std::iter::repeat_with(look).take(TRIES).zip(1..);
    let found = found.find_map(|(result, tries)| Some((result?, tries)));
    let (result, tries) =
        found.unwrap_or_else(|| panic!("{TRIES} probes in a row found no other pod: {what}"));
    if tries > 1 {
        tests::log_line(&format!("only probe {tries} found the other pod: {what}"));
    }
    result
}

/// Asserts that an ADD on `master` is refused while a pod on `parent` has the address, and that the error names the
/// GUID of that pod's port.
fn refuses_address_of_pod_on(parent: &str, node: &Node, master: &str, address: &str) {
    let (holder, pod) = (node.pod(), node.pod());
    let held = with_address(node, parent, address, false);
    holder.attach(&held, "net1");
    sa_delay(DELAY);
    let guid = holder.link("net1").address.to_string();
    let ip = address.split('/').next().unwrap();
    let conf = with_address(node, master, address, true).with("bond", "inPod");
    let answer = first_refused(&pod, &conf);
    sa_delay(0);
    answer.refused(105, &[ip, &guid, "another host has the address"]);
    assert!(pod.link_names().is_empty(), "nothing is left of the refused ADD");
    holder.detach(&held, "net1");
}

#[test]
fn a_probe_on_a_slow_fabric_refuses_an_address_of_another_pod_and_names_its_guid() {
    for kind in KINDS {
        run_accelerated(kind, |node| {
            for (master, address) in [
                ("ib1", "10.7.0.2/24"),
                ("ib1", "fd00:7::2/64"),
                ("ib0", "10.7.0.3/24"),
                ("ib0", "fd00:7::3/64"),
            ] {
                refuses_address_of_pod_on("ib0", node, master, address);
            }
        });
    }
}

#[test]
fn a_probe_on_a_bond_in_the_pod_refuses_an_address_of_another_pod() {
    for kind in KINDS {
        run_accelerated(kind, |node| {
            bonded(node, || {
                for address in ["10.7.0.2/24", "fd00:7::2/64"] {
                    refuses_address_of_pod_on("ib2", node, "bond0", address);
                }
            });
        });
    }
}

/// An IPAM plugin with a fault gives two pods one address at the same moment.
#[test]
fn of_two_pods_that_probe_one_address_at_the_same_moment_one_is_refused() {
    for kind in KINDS {
        run_accelerated(kind, |node| {
            for address in ["10.7.0.2/24", "fd00:7::2/64"] {
                let confs = ["ib0", "ib1"].map(|master| with_address(node, master, address, true));
                first(&format!("{kind:?} {address}"), || {
                    (attached_at_once(node, &confs) < 2).then_some(())
                });
            }
        });
    }
}

/// Calls ADD of two pods at the same moment. Returns how many succeed.
fn attached_at_once(node: &Node, confs: &[Conf; 2]) -> usize {
    let pods = [node.pod(), node.pod()];
    let answers = thread::scope(|scope| {
        let calls = [0, 1].map(|at| {
            let (pod, conf) = (&pods[at], &confs[at]);
            scope.spawn(move || pod.add(conf, "net1"))
        });
        calls.map(|call| call.join().unwrap())
    });
    let mut attached = 0;
    for (pod, (conf, answer)) in pods.iter().zip(confs.iter().zip(&answers)) {
        if answer.status.success() {
            attached += 1;
            pod.detach(conf, "net1");
        } else {
            answer.refused(105, &["on the network of net1"]);
        }
    }
    attached
}

#[test]
fn a_probed_address_on_infiniband_without_an_answer_is_assigned() {
    for kind in KINDS {
        run_accelerated(kind, |node| {
            for (held, address) in [("10.7.0.2/24", "10.7.0.3/24"), ("fd00:7::2/64", "fd00:7::3/64")] {
                let (holder, pod) = (node.pod(), node.pod());
                let other = with_address(node, "ib0", held, false);
                holder.attach(&other, "net1");
                let conf = with_address(node, "ib1", address, true);
                pod.attach(&conf, "net1");
                assert_eq!(pod.global("net1"), [address]);
                pod.check(&conf, "net1").done();
                pod.detach(&conf, "net1");
                holder.detach(&other, "net1");
            }
        });
    }
}
