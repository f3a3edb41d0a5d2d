// SPDX-License-Identifier: Apache-2.0
//! An Ethernet card in a pod. The cards are virtio on PCI, which the kernel treats as hardware when a namespace ends.

use super::{changed_by_its_pod, unchanged, whole_link, with_settings};
use crate::fabric::{address, printed, reaches, run, soon};
use common::netlink::{OperState, XdpMode};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use tests::{Node, json};

const CARDS: [&str; 3] = ["eth0", "eth1", "eth2"];

fn with_cards(test: impl FnOnce(&Node) + Send) {
    run(|node| {
        for card in CARDS {
            node.ip(&format!("link set {card} up"));
        }
        for card in CARDS {
            soon("the card is up", || node.link(card).oper_state == OperState::Up);
        }
        test(node);
        for card in CARDS {
            node.ip(&format!("link set {card} down"));
        }
    });
}

#[test]
fn pods_with_whole_cards_reach_each_other_and_return_them_unchanged() {
    with_cards(|node| {
        with_settings(node, "eth1", 1500, || {
            let confs = [
                whole_link(node, "eth0"),
                whole_link(node, "eth1").with("mac", json!("02:aa:00:00:00:01")),
            ];
            let pods = [node.pod(), node.pod()];
            let target = address(&pods[0].attach(&confs[0], "net1"), false);
            let result = pods[1].attach(&confs[1], "net1");
            assert_eq!(result["interfaces"][0]["mac"], "02:aa:00:00:00:01");
            assert!(
                result["interfaces"][0]["pciID"]
                    .as_str()
                    .unwrap()
                    .starts_with("0000:00:"),
                "{result}"
            );
            reaches(&pods[1], &target);
            for (pod, conf) in pods.iter().zip(&confs) {
                pod.check(conf, "net1").done();
                pod.detach(conf, "net1");
                assert!(pod.links().is_empty(), "{:?}", pod.link_names());
            }
        });
    });
}

#[test]
fn a_card_that_its_pod_changed_is_restored() {
    with_cards(|node| {
        with_settings(node, "eth1", 1500, || changed_by_its_pod(node, "eth1"));
    });
}

/// Commands of `bpf(2)`, from `include/uapi/linux/bpf.h`.
const BPF_PROG_LOAD: u32 = 5;
const BPF_OBJ_PIN: u32 = 6;

/// Calls `bpf(2)`, whose attributes are 64-bit words here.
#[expect(unsafe_code, reason = "nix has no bpf(2)")]
fn bpf(command: u32, attributes: &[u64]) -> i64 {
    // SAFETY: the kernel reads the attributes, and what they point to, before the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            size_of_val(attributes),
        )
    };
    assert!(result >= 0, "bpf {command}: {}", std::io::Error::last_os_error());
    result
}

/// Loads an XDP program that drops every packet, and pins it to this file.
fn pin_program(file: &Path) {
    let program: [u64; 2] = [0x0000_0001_0000_00b7, 0x95]; // r0 = XDP_DROP; exit
    let address = |pointer: *const u8| u64::try_from(pointer.addr()).unwrap();
    let xdp_of_two_instructions = 6 | 2 << 32;
    let license = c"GPL";
    let load = [
        xdp_of_two_instructions,
        address(program.as_ptr().cast()),
        address(license.as_ptr().cast()),
        0,
        0,
        0,
    ];
    let descriptor = bpf(BPF_PROG_LOAD, &load);
    let path = CString::new(file.as_os_str().as_bytes()).unwrap();
    bpf(
        BPF_OBJ_PIN,
        &[address(path.as_ptr().cast()), u64::try_from(descriptor).unwrap()],
    );
}

#[test]
fn an_xdp_program_of_a_pod_does_not_stay_on_the_card() {
    with_cards(|node| {
        unchanged(node, || {
            let conf = whole_link(node, "eth1");
            let programs = tempfile::tempdir().unwrap();
            printed(
                Command::new("mount")
                    .args(["-t", "bpf", "bpf"])
                    .arg(programs.path()),
            );
            let program = programs.path().join("drop");
            pin_program(&program);
            let pod = node.pod();
            pod.attach(&conf, "net1");
            pod.ip(&format!("link set net1 xdpgeneric pinned {}", program.display()));
            assert_eq!(pod.link("net1").xdp, [XdpMode::Generic]);
            printed(Command::new("umount").arg(programs.path()));
            pod.detach(&conf, "net1");
        });
    });
}

#[test]
fn a_card_is_found_by_pci_address_and_by_hardware_address() {
    with_cards(|node| {
        let directory = std::fs::canonicalize("/sys/class/net/eth1").unwrap();
        let mut names = directory
            .ancestors()
            .filter_map(|directory| directory.file_name()?.to_str());
        let pci = names.find(|name| name.starts_with("0000:00:")).unwrap();
        let address = node.link("eth1").address.to_string();
        for (key, value) in [("pciBusID", pci), ("deviceID", pci), ("hwaddr", address.as_str())] {
            unchanged(node, || {
                let conf = whole_link(node, "").with(key, json!(value));
                let pod = node.pod();
                let result = pod.attach(&conf, "net1");
                assert_eq!(result["interfaces"][0]["pciID"], pci, "{key}");
                pod.detach(&conf, "net1");
            });
        }
    });
}

#[test]
fn del_and_gc_restore_a_dead_pods_card_although_its_name_was_taken() {
    with_cards(|node| {
        with_settings(node, "eth1", 1500, || {
            let conf = whole_link(node, "eth1");
            for gc in [false, true] {
                node.ip("link add net1 type dummy");
                let pod = node.pod();
                pod.attach(&conf, "net1");
                pod.die();
                soon("the kernel has put the card back", || {
                    node.link_names().iter().any(|name| name.starts_with("dev"))
                });
                if gc {
                    node.gc(&conf, &[]).done();
                } else {
                    pod.detach(&conf, "net1");
                }
                node.ip("link del net1");
            }
        });
    });
}
