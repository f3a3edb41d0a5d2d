// SPDX-License-Identifier: Apache-2.0
//! An Ethernet card in a pod. The cards are virtio on PCI, which the kernel treats as hardware when a namespace ends.

use super::{changed_by_its_pod, unchanged, whole_link, with_settings};
use crate::fabric::{address, printed, reaches, run, soon};
use common::netlink::{OperState, XdpMode};
use common::tcx;
use nix::sys::utsname::uname;
use std::ffi::CString;
use std::io;
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
const BPF_PROG_ATTACH: u32 = 8;

/// Types of programs, and a hook.
const BPF_PROG_TYPE_SCHED_CLS: u64 = 3;
const BPF_PROG_TYPE_XDP: u64 = 6;
const BPF_TCX_INGRESS: u64 = 46;

/// Calls `bpf(2)`, whose attributes are 64-bit words here.
#[expect(unsafe_code, reason = "nix has no bpf(2)")]
fn bpf(command: u32, attributes: &[u64]) -> io::Result<i64> {
    // SAFETY: the kernel reads the attributes, and what they point to, before the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            size_of_val(attributes),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn word(pointer: *const u8) -> u64 {
    u64::try_from(pointer.addr()).unwrap()
}

/// Loads a program of this type that drops every packet, and returns its descriptor. `drop` is `XDP_DROP`, 1, or `TC_ACT_SHOT`, 2.
fn load_program(kind: u64, drop: u64) -> u64 {
    let program: [u64; 2] = [0xb7 | drop << 32, 0x95]; // r0 = drop; exit
    let kind_and_length = kind | 2 << 32;
    let load = [
        kind_and_length,
        word(program.as_ptr().cast()),
        word(c"GPL".as_ptr().cast()),
        0,
        0,
        0,
    ];
    u64::try_from(bpf(BPF_PROG_LOAD, &load).unwrap()).unwrap()
}

/// Loads an XDP program that drops every packet, and pins it to this file.
fn pin_program(file: &Path) {
    let descriptor = load_program(BPF_PROG_TYPE_XDP, 1);
    let path = CString::new(file.as_os_str().as_bytes()).unwrap();
    bpf(BPF_OBJ_PIN, &[word(path.as_ptr().cast()), descriptor]).unwrap();
}

/// Linux has tcx since 6.6.
fn has_tcx() -> bool {
    let release = uname().unwrap().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split('.')
        .map(|number| number.parse::<u32>().unwrap_or_default());
    (numbers.next(), numbers.next()) >= (Some(6), Some(6))
}

#[test]
fn a_tcx_program_of_a_pod_does_not_stay_on_the_card() {
    with_cards(|node| {
        unchanged(node, || {
            let conf = whole_link(node, "eth1");
            let pod = node.pod();
            pod.attach(&conf, "net1");
            let index = pod.link("net1").index;
            let drops = load_program(BPF_PROG_TYPE_SCHED_CLS, 2);
            let link_and_program = u64::from(index) | drops << 32;
            let attach = || bpf(BPF_PROG_ATTACH, &[link_and_program, BPF_TCX_INGRESS, 0, 0]);
            let attached = pod.open().run(attach).unwrap();
            assert_eq!(attached.is_ok(), has_tcx(), "{attached:?}");
            let is_used = pod.open().run(|| tcx::is_used(index)).unwrap().unwrap();
            assert_eq!(is_used, has_tcx());
            pod.detach(&conf, "net1");
            assert!(!tcx::is_used(node.link("eth1").index).unwrap());
        });
    });
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
fn installed_as_host_device_the_plugin_moves_a_card_into_a_pod_and_back() {
    with_cards(|node| {
        node.install_as("host-device");
        let address = node.link("eth1").address;
        for (key, value) in [("device", "eth1".to_owned()), ("hwaddr", address.to_string())] {
            unchanged(node, || {
                let conf = whole_link(node, "").without("mode").without("master");
                let conf = conf.with("type", json!("host-device")).with(key, json!(value));
                let pod = node.pod();
                pod.attach(&conf, "net1");
                assert_eq!(pod.link("net1").address, address, "{key}");
                assert!(!node.link_names().contains(&"eth1".to_owned()), "{key}");
                pod.check(&conf, "net1").done();
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
