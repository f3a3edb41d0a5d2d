// SPDX-License-Identifier: Apache-2.0
#![expect(clippy::too_many_lines, reason = "tables")]

use super::*;
use crate::error::DeviceError;
use crate::model::attachment;
use nix::errno::Errno;

fn ifname() -> IfName {
    "net1".parse().unwrap()
}

fn links() -> Candidates {
    Candidates(vec![
        "ib0 (InfiniBand, mlx5_0/1, active)".to_owned(),
        "eth1 (Ethernet, mlx5_1/1, down)".to_owned(),
    ])
}

fn passed(link: &str, why: &str, down: bool) -> PassedOver {
    PassedOver {
        entry: "{}".to_owned(),
        link: link.to_owned(),
        why: why.to_owned(),
        down,
    }
}

fn refusal() -> netlink::Error {
    netlink::Error::Kernel {
        errno: Errno::EBUSY,
        text: Some("port is enslaved".to_owned()),
    }
}

fn full() -> std::io::Error {
    std::io::Error::from_raw_os_error(Errno::ENOSPC as i32)
}

/// The number of a variant. There is no wildcard, so a new variant compiles only with a line in [`table`].
fn number(error: &Error) -> usize {
    match error {
        Error::BadValue { .. } => 0,
        Error::BadWord { .. } => 1,
        Error::Unsupported { .. } => 2,
        Error::KeyOfOtherMode { .. } => 3,
        Error::MasterUnset { .. } => 4,
        Error::MasterMissing { .. } => 5,
        Error::DeviceWithoutLink { .. } => 6,
        Error::NoDefaultRoute => 7,
        Error::WrongLinkLayer { .. } => 8,
        Error::WrongKind { .. } => 9,
        Error::MasterDown { .. } => 10,
        Error::PkeyAbsent { .. } => 11,
        Error::MtuTooLarge { .. } => 12,
        Error::MtuNotApplied { .. } => 13,
        Error::AddressOfPort { .. } => 14,
        Error::IfnameInUse(_) => 15,
        Error::NetnsGone(_) => 16,
        Error::NetnsWrong { .. } => 17,
        Error::Kernel { .. } => 18,
        Error::NoCarrier { .. } => 19,
        Error::NoAddress(_) => 20,
        Error::Io { .. } => 21,
        Error::Busy(_) => 22,
        Error::Changed { .. } => 23,
        Error::NoPrevResult(_) => 24,
        Error::Cni(_) => 25,
        Error::Rdma(_) => 26,
        Error::NoMaster { .. } => 27,
        Error::Locked { .. } => 28,
        Error::Device(_) => 29,
        Error::AddressOfBond { .. } => 30,
        Error::NotOffered { .. } => 31,
        Error::AddressAnswered { .. } => 32,
        Error::Probe { .. } => 33,
        Error::NoConnectedMode { .. } => 34,
        Error::IdWithoutDevice { .. } => 35,
        Error::Occupied { .. } => 36,
    }
}

const VARIANTS: usize = 37;

/// Every variant with its code, its message, and its details.
fn table() -> Vec<(Error, u32, &'static str, &'static str)> {
    let mut table = of_configuration();
    table.extend(of_the_node());
    table.extend(of_the_work());
    table
}

fn of_configuration() -> Vec<(Error, u32, &'static str, &'static str)> {
    vec![
        (
            Error::BadValue {
                key: "mtu",
                value: "7".to_owned(),
                want: "68 bytes or more".to_owned(),
            },
            7,
            "mtu is 7, want 68 bytes or more",
            "",
        ),
        (
            Error::NotOffered {
                key: "args.cni.mac",
                value: "02:00:00:00:00:98".to_owned(),
                capability: "mac",
            },
            7,
            "args.cni.mac asks for 02:00:00:00:00:98, which this network does not let pods choose; add \"capabilities\": {\"mac\": true} to the network, or remove the request from the pod's annotation",
            "",
        ),
        (
            Error::BadWord {
                key: "ipvlanMode",
                reason: "\"l4\" is not one of l2, l3, l3s".to_owned(),
            },
            7,
            "ipvlanMode: \"l4\" is not one of l2, l3, l3s",
            "",
        ),
        (
            Error::Unsupported {
                key: "ipMasq",
                value: "true".to_owned(),
                remedy: "remove it",
            },
            2,
            "ipMasq true is not supported: remove it",
            "",
        ),
        (
            Error::NoConnectedMode {
                master: "ib0".to_owned(),
                driver: "mlx5_core[ib_ipoib]".to_owned(),
            },
            2,
            "ipoibMode connected is not supported: ib0 has only datagram mode, as its driver mlx5_core[ib_ipoib] moves the packets itself; set ipoibMode to datagram, or leave it out",
            "",
        ),
        (
            Error::KeyOfOtherMode {
                key: "pkey",
                its: Mode::Ipoib,
                mode: Mode::Ipvlan,
            },
            7,
            "pkey is for mode ipoib, but the mode is ipvlan; remove pkey or change the mode",
            "",
        ),
        (
            Error::MasterUnset { candidates: links() },
            7,
            "master is not set, and no device plugin chose a device (is its resource among the pod's limits and in the network's annotation k8s.v1.cni.cncf.io/resourceName?); RDMA-capable links of this node: ib0 (InfiniBand, mlx5_0/1, active), eth1 (Ethernet, mlx5_1/1, down)",
            "",
        ),
        (
            Error::MasterMissing {
                name: "ib7".to_owned(),
                place: "on this node",
                candidates: Candidates::default(),
            },
            7,
            "master \"ib7\" does not exist on this node; RDMA-capable links of this node: none (is the driver loaded? On InfiniBand it also takes the module ib_ipoib: modprobe ib_ipoib)",
            "",
        ),
        (
            Error::NoMaster { passed: Vec::new() },
            7,
            "no link of this node fits master: it has no RDMA-capable link (is the driver loaded? On InfiniBand it also takes the module ib_ipoib: modprobe ib_ipoib)",
            "",
        ),
        (
            Error::DeviceWithoutLink {
                id: "0000:3b:00.1".to_owned(),
            },
            7,
            "device 0000:3b:00.1 has no network interface in the host's namespace; is it bound to its driver, or already in a pod?",
            "",
        ),
        (
            Error::IdWithoutDevice {
                id: "17".to_owned(),
                candidates: Candidates::default(),
            },
            7,
            "device id \"17\" names no link: it is neither a PCI address nor an auxiliary device, but such an id as the RDMA shared device plugin allocates; set master to choose the link (device in a host-device configuration); RDMA-capable links of this node: none (is the driver loaded? On InfiniBand it also takes the module ib_ipoib: modprobe ib_ipoib)",
            "",
        ),
        (
            Error::NoDefaultRoute,
            7,
            "master is not set and there is no default route to take it from; set master",
            "",
        ),
        (
            Error::Device(DeviceError::Taken {
                link: "ib1".to_owned(),
                holder: "a/net1".to_owned(),
            }),
            11,
            "ib1 belongs to a/net1; try again after that pod is deleted",
            "",
        ),
        (
            Error::Rdma(RdmaError::Missing {
                link: "eth0".to_owned(),
                reason: "the node has no RDMA device for it".to_owned(),
            }),
            7,
            "cannot choose the RDMA device of eth0: the node has no RDMA device for it; if rdma.required is false, the pod gets no RDMA device",
            "",
        ),
        (
            Error::NoPrevResult(ifname()),
            7,
            "CHECK needs prevResult with the interface net1; the runtime must pass the result of ADD",
            "",
        ),
    ]
}

fn of_the_node() -> Vec<(Error, u32, &'static str, &'static str)> {
    let master = || "ib0".to_owned();
    vec![
        (
            Error::WrongLinkLayer {
                master: master(),
                layer: "InfiniBand",
                mode: Mode::Macvlan,
                want: "Ethernet",
                instead: "mode ipoib",
            },
            7,
            "ib0 is InfiniBand: macvlan needs Ethernet; use mode ipoib",
            "",
        ),
        (
            Error::WrongKind {
                master: master(),
                what: "a port of br0".to_owned(),
                mode: Mode::Macvlan,
                remedy: "name br0".to_owned(),
            },
            7,
            "ib0 is a port of br0: it carries no macvlan child; name br0",
            "",
        ),
        (
            Error::Occupied {
                master: master(),
                child: "a macvlan child in mode passthru",
                reason: "it carries the node's default route".to_owned(),
                remedy: "name another master",
            },
            7,
            "ib0 cannot have a macvlan child in mode passthru: it carries the node's default route; name another master",
            "",
        ),
        (
            Error::MasterDown {
                master: master(),
                reason: "is down; bring it up: ip link set ib0 up".to_owned(),
            },
            102,
            "ib0 is down; bring it up: ip link set ib0 up",
            "",
        ),
        (
            Error::PkeyAbsent {
                pkey: Pkey(0x8003),
                port: "mlx5_0 port 1".to_owned(),
                table: vec![Pkey(0xffff), Pkey(1)],
            },
            7,
            "pkey 0x8003 is not in the table of mlx5_0 port 1 (it has 0xffff, 0x0001); have the subnet manager add this port to the partition",
            "",
        ),
        (
            Error::MtuTooLarge {
                mtu: 9000,
                master: master(),
                what: "datagram mode",
                max: 4092,
            },
            7,
            "mtu 9000 is more than ib0 carries in datagram mode: 4092; lower it or leave it out",
            "",
        ),
        (
            Error::MtuNotApplied {
                ifname: ifname(),
                got: 2044,
                want: 4092,
            },
            7,
            "net1 has MTU 2044, not 4092: the multicast group of its partition allows no more; lower mtu, or raise it in the subnet manager's partition configuration",
            "",
        ),
        (
            Error::AddressOfPort {
                key: "infinibandGUID",
                value: "0000:0000:0000:0007".to_owned(),
                master: master(),
                guid: Guid(8),
            },
            7,
            "infinibandGUID 0000:0000:0000:0007 cannot be given to a child of ib0: its children answer at the port's GUID 0000:0000:0000:0008; remove infinibandGUID, or use a virtual function",
            "",
        ),
        (
            Error::AddressOfBond {
                key: "mac",
                value: "02:00:00:00:00:05".to_owned(),
                master: "bond0".to_owned(),
            },
            7,
            "mac 02:00:00:00:00:05 cannot be given to an interface on bond0: a bond of InfiniBand ports has the address of its active port; remove mac",
            "",
        ),
    ]
}

fn of_the_work() -> Vec<(Error, u32, &'static str, &'static str)> {
    vec![
        (
            Error::IfnameInUse("net1".to_owned()),
            101,
            "the pod already has an interface net1; choose another name in the pod's network annotation",
            "",
        ),
        (
            Error::NetnsGone("/run/netns/a".into()),
            3,
            "CNI_NETNS /run/netns/a does not exist: the container is gone",
            "",
        ),
        (
            Error::NetnsWrong {
                path: "/etc/passwd".into(),
                what: "no network namespace".to_owned(),
            },
            4,
            "CNI_NETNS /etc/passwd is no network namespace; want the path of the container's network namespace",
            "",
        ),
        (
            Error::Kernel {
                step: "create net1 on ib0".to_owned(),
                source: refusal(),
            },
            100,
            "cannot create net1 on ib0",
            "the kernel refused: EBUSY: Device or resource busy (port is enslaved)",
        ),
        (
            Error::NoCarrier {
                ifname: ifname(),
                waited: Duration::from_secs(10),
                reason: "no group; add one".to_owned(),
            },
            102,
            "net1 has no carrier after 10s: no group; add one",
            "",
        ),
        (
            Error::NoAddress("ranges".to_owned()),
            103,
            "ipam plugin ranges answered without an address; check its ranges",
            "",
        ),
        (
            Error::AddressAnswered {
                ifname: "net1".to_owned(),
                claim: Claim {
                    address: "10.0.0.2".parse().unwrap(),
                    hardware: Some("02:00:00:00:0a:0b".parse().unwrap()),
                    probes: false,
                },
            },
            105,
            "10.0.0.2 answers on the network of net1 already, at 02:00:00:00:0a:0b: another host has the address; find that host, or keep the address out of the range or pool (exclude), and create the pod again",
            "",
        ),
        (
            Error::Probe {
                ifname: "net1".to_owned(),
                source: std::io::Error::from_raw_os_error(100),
            },
            100,
            "cannot probe the addresses of net1; the plugin needs CAP_NET_RAW, and the interface must stay up",
            "Network is down (os error 100)",
        ),
        (
            Error::Io {
                what: "write",
                path: "/run/x".into(),
                remedy: "free space on its file system",
                source: full(),
            },
            5,
            "cannot write /run/x; free space on its file system",
            "No space left on device (os error 28)",
        ),
        (
            Error::Busy(attachment("c1")),
            11,
            "another call for net1 of container c1 is still running; try again",
            "",
        ),
        (
            Error::Locked {
                path: "/run/rdmanet/attachments/rail0".into(),
                waited: Duration::from_secs(20),
                holder: "process 9495 (flock)".to_owned(),
            },
            11,
            "/run/rdmanet/attachments/rail0 has been locked for 20s by process 9495 (flock); if that is a CNI plugin, try again, otherwise end that process",
            "",
        ),
        (
            Error::Changed {
                ifname: ifname(),
                findings: vec!["it is down".to_owned(), "its MTU is 1, was 2".to_owned()],
            },
            104,
            "net1 is not as ADD left it: it is down; its MTU is 1, was 2",
            "",
        ),
        (
            cni::Error::new(Code::EXHAUSTED, "ranges: pool is full")
                .with_details("3 of 3")
                .into(),
            110,
            "ranges: pool is full",
            "3 of 3",
        ),
    ]
}

#[test]
fn every_error_has_its_code_its_message_and_its_cause() {
    for (error, code, msg, details) in table() {
        let reported = cni::Error::from(error);
        assert_eq!(
            (reported.code.0, reported.msg.as_str(), reported.details.as_str()),
            (code, msg, details)
        );
    }
}

#[test]
fn a_choice_that_only_lacks_carrier_has_the_code_of_carrier() {
    let passed = vec![
        passed("ib0", "has no carrier", true),
        passed("ib1", "is on NUMA node 1, not 0", false),
    ];
    let reported = cni::Error::from(Error::NoMaster { passed });
    let text = "no link of this node fits master: ib0 has no carrier; ib1 is on NUMA node 1, not 0";
    assert_eq!((reported.code.0, reported.msg.as_str()), (102, text));
}

#[test]
fn no_error_is_missing_in_the_table() {
    let mut numbers: Vec<usize> = table().iter().map(|(error, ..)| number(error)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..VARIANTS).collect::<Vec<_>>());
}

#[test]
fn a_message_is_one_line_without_repetition() {
    for (error, ..) in table() {
        let text = error.to_string();
        assert!(
            !text.contains('\n') && !text.ends_with(['.', ' ', ':', ';']),
            "{text:?}"
        );
        assert!(
            !text.contains("  ") && !text.contains("cannot cannot"),
            "{text:?}"
        );
    }
}

#[test]
fn codes_are_of_the_specification_or_from_100() {
    for (error, code, ..) in table() {
        assert!(matches!(code, 2..=7 | 11 | 100..=999), "{error}: {code}");
    }
}

#[test]
fn a_host_that_only_probes_for_the_address_has_a_message_of_its_own() {
    let error = Error::AddressAnswered {
        ifname: "net1".to_owned(),
        claim: Claim {
            address: "fd00::2".parse().unwrap(),
            hardware: None,
            probes: true,
        },
    };
    let expected = "a host at a hardware address that its message does not name probes for fd00::2 on the network of net1 at this moment: two hosts were given the address; keep it out of one of their ranges or pools (exclude), and create the pod again";
    assert_eq!(
        (error.to_string().as_str(), error.code()),
        (expected, Code::ADDRESS_ANSWERED)
    );
}
