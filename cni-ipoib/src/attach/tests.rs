// SPDX-License-Identifier: Apache-2.0
mod probe;

use super::*;
use crate::config::Mode;
use crate::intent::Made;
use crate::journal::Progress;
use crate::mark::Mark;
use crate::model::{Fault, Ipam, ModelKernel, State, attachment, call, ethernet, ipoib};
use crate::plan::{Child, Plan, Way};
use crate::routes::route_entry;
use common::cni::IpConfig;
use common::cni::dispatch::Call;
use common::cni::{Code, Route};
use common::netlink::RouteEntry;
use common::netlink::{AddrGenMode, IpoibMode, IpvlanMode, MacvlanMode, NewLinkKind, TABLE_MAIN};
use common::rdma::Pkey;
use serde_json::json;
use std::time::Duration;

const IPOIB: NewLinkKind<'static> = NewLinkKind::Ipoib {
    pkey: Some(Pkey(0x8001)),
    mode: Some(IpoibMode::Datagram),
    umcast: None,
};
const MACVLAN: NewLinkKind<'static> = NewLinkKind::Macvlan {
    mode: MacvlanMode::Bridge,
    bc_queue_len: None,
};

const TABLE: u32 = 0x1234_5678;

fn plan(mode: Mode, kind: NewLinkKind<'static>) -> Plan {
    let attachment = attachment("c1");
    Plan {
        child: Child {
            mode,
            kind,
            parent: "p0".to_owned(),
            parent_index: 4,
            side: Side::Host,
            way: match mode {
                Mode::Ipoib => Way::Moved,
                _ => Way::Direct,
            },
            mtu: Some(1400),
            address: None,
            addr_gen_mode: Some(AddrGenMode::Random),
            carrier_timeout: Duration::from_secs(10),
            pci: None,
            ports: Vec::new(),
        },
        interface: PodInterface {
            ifname: attachment.ifname.clone(),
            policy_table: Some(TABLE),
            mark: Mark::new("fabric", &attachment),
            rdma: None,
        },
    }
}

/// A parent `p0` of the kind that `mode` needs, and an IPAM plugin.
struct Bench {
    kernel: ModelKernel,
    ipam: Ipam,
    call: Call,
    /// The outcome of the last step.
    done: Result<(), Error>,
    state: tempfile::TempDir,
}

/// A journal in memory.
struct Notes {
    made: Vec<Made>,
    done: Option<Result<(), Error>>,
}

impl Progress for Notes {
    fn made(&mut self, links: &[Made]) -> Result<(), Error> {
        self.made = links.to_vec();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        assert!(!self.made.is_empty(), "the links are recorded before the end");
        self.done.take().unwrap()
    }
}

impl Bench {
    fn new(mode: Mode, ipam: Ipam) -> Self {
        let parent = match mode {
            Mode::Ipoib => ipoib(4, "p0", 0xffff),
            Mode::Macvlan | Mode::Ipvlan | Mode::Device => ethernet(4, "p0"),
        };
        let call = Call {
            path: vec![ipam.dir().to_owned()],
            ..call(json!({"ipam": {"type": "ranges"}}))
        };
        Self {
            kernel: ModelKernel::new(vec![parent]),
            ipam,
            call,
            done: Ok(()),
            state: tempfile::tempdir().unwrap(),
        }
    }

    fn attach(&mut self, plan: &Plan) -> Result<Attached, Failed> {
        let attachment = attachment("c1");
        let mut kernel = self.kernel.clone();
        let done = std::mem::replace(&mut self.done, Ok(()));
        let mut progress = Notes {
            made: Vec::new(),
            done: Some(done),
        };
        let mut context = AttachContext {
            kernel: &mut kernel,
            ipam: Some(Delegate::new("ranges", &self.call, Duration::from_secs(5)).unwrap()),
            attachment: &attachment,
            netns: Path::new("/run/netns/a"),
            netns_id: (4, 1),
            network: "fabric",
            state: self.state.path(),
            device_info: None,
            progress: &mut progress,
            made: Vec::new(),
            link_may_live: false,
        };
        attach(&mut context, plan)
    }

    /// Attaches, and checks that it fails and leaves everything as it was.
    fn refused(&mut self, plan: &Plan) -> cni::Error {
        let before = self.kernel.state();
        let failed = self.attach(plan).unwrap_err();
        assert_eq!(failed.left, []);
        assert_eq!(self.kernel.state(), before);
        assert_eq!(self.ipam.verbs(), ["ADD", "DEL"]);
        failed.error.into()
    }

    fn log(&self) -> Vec<String> {
        self.kernel.get().log.clone()
    }
}

#[test]
fn a_failure_at_any_step_leaves_nothing_in_any_mode() {
    let ipvlan = NewLinkKind::Ipvlan { mode: IpvlanMode::L2 };
    for (mode, kind) in [
        (Mode::Ipoib, IPOIB),
        (Mode::Macvlan, MACVLAN),
        (Mode::Ipvlan, ipvlan),
    ] {
        for number in 0.. {
            let mut bench = Bench::new(mode, Ipam::dual_stack());
            let before = bench.kernel.state();
            bench.kernel.fail(Fault::Refused(number));
            let outcome = bench.attach(&plan(mode, kind));
            let log = bench.log();
            match log.get(number) {
                Some(failed) if !failed.starts_with("announce") => {
                    assert_eq!(outcome.unwrap_err().left, [], "{mode} {failed}");
                    assert_eq!(bench.kernel.state(), before, "{mode} {failed}");
                    assert_eq!(bench.ipam.verbs(), ["ADD", "DEL"], "{mode} {failed}");
                }
                Some(_) => assert!(outcome.is_ok()),
                None => {
                    assert!(outcome.is_ok());
                    break;
                }
            }
        }
    }
}

#[test]
fn an_attachment_that_cannot_be_marked_as_done_is_undone() {
    let mut bench = Bench::new(Mode::Ipoib, Ipam::dual_stack());
    bench.done = Err(Error::Io {
        what: "write",
        path: "/run/rdmanet/x".into(),
        remedy: "free space on its file system",
        source: std::io::ErrorKind::StorageFull.into(),
    });
    assert_eq!(bench.refused(&plan(Mode::Ipoib, IPOIB)).code, Code::IO);
}

#[test]
fn a_link_that_cannot_be_deleted_keeps_its_addresses() {
    for refused in ["delete", "list links"] {
        let mut bench = Bench::new(Mode::Ipoib, Ipam::dual_stack());
        bench.kernel.set().carrier = false;
        bench.kernel.fail(Fault::Every(refused));
        let failed = bench.attach(&plan(Mode::Ipoib, IPOIB)).unwrap_err();
        assert!(
            matches!(failed.error, Error::NoCarrier { .. }),
            "{:?}",
            failed.error
        );
        let left: Vec<&str> = failed.left.iter().map(|left| left.step.as_str()).collect();
        assert_eq!(left, ["delete the link", "release the addresses"]);
        assert_eq!(bench.ipam.verbs(), ["ADD"]);
        assert_eq!(bench.kernel.state().addresses.len(), 2);
    }
}

#[test]
fn addresses_that_cannot_be_released_are_reported() {
    let script = "[ $CNI_COMMAND = ADD ] || { echo '{\"code\":5,\"msg\":\"disk full\"}'; exit 1; }; echo '{\"ips\":[]}'";
    let mut bench = Bench::new(Mode::Ipoib, Ipam::running(script));
    let before = bench.kernel.state();
    let failed = bench.attach(&plan(Mode::Ipoib, IPOIB)).unwrap_err();
    assert!(matches!(failed.error, Error::NoAddress(_)));
    assert_eq!(
        failed.left[0].to_string(),
        "cannot release the addresses: ranges: disk full"
    );
    assert_eq!(bench.kernel.state(), before);
}

#[test]
fn a_link_whose_name_the_host_uses_is_renamed_in_the_pod() {
    let mut bench = Bench::new(Mode::Macvlan, Ipam::dual_stack());
    bench.kernel.set().names_of_host_count = true;
    bench.kernel.set().state.host.push(ethernet(9, "net1"));
    let plan = plan(Mode::Macvlan, MACVLAN);
    let attached = bench.attach(&plan).unwrap();
    assert_eq!(attached.link.name, "net1");
    let temporary = plan.interface.mark.temporary(0);
    let expected = [
        "create net1 from Host".to_owned(),
        format!("create {temporary} from Host"),
        format!("look up {temporary} in Pod"),
        "rename #101 to net1 in Pod".to_owned(),
        "look up net1 in Pod".to_owned(),
    ];
    assert_eq!(bench.log()[..5], expected);
    assert_eq!(bench.kernel.state().host.len(), 2, "the host's own link remains");
}

#[test]
fn a_name_in_use_in_the_pod_fails_under_the_temporary_name_too() {
    let mut bench = Bench::new(Mode::Macvlan, Ipam::dual_stack());
    let plan = plan(Mode::Macvlan, MACVLAN);
    let temporary = plan.interface.mark.temporary(0);
    bench
        .kernel
        .set()
        .state
        .pod
        .extend([ethernet(7, "net1"), ethernet(8, &temporary)]);
    let error = bench.refused(&plan);
    let text = format!("cannot create net1 on p0 (as {temporary}, since the host has a link net1)");
    assert_eq!((error.code, error.msg), (Code::KERNEL, text));
}

#[test]
fn a_parent_in_the_pod_is_used_there() {
    let mut bench = Bench::new(Mode::Macvlan, Ipam::dual_stack());
    {
        let mut model = bench.kernel.set();
        model.state = State {
            pod: vec![ethernet(4, "p0")],
            ..State::default()
        };
    }
    let mut plan = plan(Mode::Macvlan, MACVLAN);
    plan.child.side = Side::Pod;
    bench.attach(&plan).unwrap();
    assert_eq!(bench.log()[0], "create net1 from Pod");
    assert_eq!(bench.kernel.state().pod.len(), 2);
}

#[test]
fn an_mtu_that_the_kernel_lowers_is_refused() {
    let mut bench = Bench::new(Mode::Ipoib, Ipam::dual_stack());
    bench.kernel.set().mtu_cap = 1300;
    let error = bench.refused(&plan(Mode::Ipoib, IPOIB));
    assert_eq!(error.code, Code::INVALID_CONFIG);
    assert!(
        error.msg.starts_with("net1 has MTU 1300, not 1400: "),
        "{}",
        error.msg
    );
}

#[test]
fn an_ipoib_child_without_carrier_is_refused() {
    let mut bench = Bench::new(Mode::Ipoib, Ipam::dual_stack());
    bench.kernel.set().carrier = false;
    let error = bench.refused(&plan(Mode::Ipoib, IPOIB));
    assert_eq!(error.code, Code::NO_CARRIER);
    assert_eq!(
        error.msg,
        "net1 has no carrier after 10s: it has not joined the broadcast group of partition 0x8001 through p0; if dmesg has \"multicast join failed\", the subnet manager refused: does it know the partition, and is this port a full member? Otherwise the subnet manager did not answer in time: it is gone, or overloaded, as after a power cut; ADD succeeds once it answers"
    );
}

#[test]
fn an_ethernet_child_may_wait_for_its_parents_carrier() {
    let mut bench = Bench::new(Mode::Macvlan, Ipam::dual_stack());
    bench.kernel.set().carrier = false;
    assert!(!bench.attach(&plan(Mode::Macvlan, MACVLAN)).unwrap().link.carrier);
}

#[test]
fn a_failed_announcement_is_no_error() {
    let mut bench = Bench::new(Mode::Ipoib, Ipam::dual_stack());
    bench.kernel.fail(Fault::Every("announce"));
    bench.attach(&plan(Mode::Ipoib, IPOIB)).unwrap();
    assert_eq!(bench.ipam.verbs(), ["ADD"]);
}

#[test]
fn ipv6_is_enabled_only_for_an_ipv6_address() {
    let v4 = Ipam::giving(&json!({"ips": [{"address": "10.0.0.2/24"}]}));
    let mut bench = Bench::new(Mode::Ipoib, v4);
    bench.attach(&plan(Mode::Ipoib, IPOIB)).unwrap();
    assert!(
        !bench
            .log()
            .iter()
            .any(|request| request.starts_with("enable IPv6")),
        "{:?}",
        bench.log()
    );
}

#[test]
fn the_kernel_announces_the_addresses_of_an_ethernet_child() {
    let mut bench = Bench::new(Mode::Macvlan, Ipam::dual_stack());
    bench.attach(&plan(Mode::Macvlan, MACVLAN)).unwrap();
    let place = |start: &str| bench.log().iter().position(|request| request.starts_with(start));
    assert!(
        place("set IPv4 of") < place("enable IPv6 on net1"),
        "{:?}",
        bench.log()
    );
    assert!(place("enable IPv6 on net1") < place("give "), "{:?}", bench.log());
    assert!(place("give ") < place("bring "), "{:?}", bench.log());
    assert_eq!(
        place("announce"),
        None,
        "closing a packet socket costs more than the rest of ADD"
    );
}

#[test]
fn the_address_generation_mode_is_set_before_the_link_comes_up() {
    let mut bench = Bench::new(Mode::Ipoib, Ipam::dual_stack());
    bench.attach(&plan(Mode::Ipoib, IPOIB)).unwrap();
    let log = bench.log();
    let at = |text: &str| log.iter().position(|request| request.starts_with(text)).unwrap();
    assert!(at("change #101") < at("bring #101 up"), "{log:?}");
    assert!(at("bring #101 up") < at("route"), "{log:?}");
}

fn ip(address: &str, gateway: Option<&str>) -> IpConfig {
    IpConfig {
        address: address.parse().unwrap(),
        gateway: gateway.map(|gw| gw.parse().unwrap()),
        interface: None,
        probe: false,
    }
}

fn entry(route: &Route, ips: &[IpConfig]) -> (String, Option<String>, bool) {
    let entry = route_entry(7, route, ips);
    assert_eq!(entry.index, 7);
    (
        entry.dst.to_string(),
        entry.gateway.map(|gw| gw.to_string()),
        entry.onlink,
    )
}

#[test]
fn a_route_without_a_next_hop_uses_the_gateway_of_its_family() {
    let ips = [
        ip("10.0.0.2/24", None),
        ip("10.1.0.2/24", Some("10.1.0.1")),
        ip("10.2.0.2/24", Some("10.2.0.1")),
        ip("fd00::2/64", Some("fe80::1")),
    ];
    let plain = |dst: &str| entry(&Route::new(dst.parse().unwrap(), None), &ips);
    assert_eq!(
        plain("0.0.0.0/0"),
        ("0.0.0.0/0".to_owned(), Some("10.1.0.1".to_owned()), false)
    );
    assert_eq!(
        plain("::/0"),
        ("::/0".to_owned(), Some("fe80::1".to_owned()), false)
    );
    assert_eq!(
        entry(&Route::new("10.9.0.0/16".parse().unwrap(), None), &ips[..1]).1,
        None
    );
}

#[test]
fn a_next_hop_outside_every_subnet_is_onlink() {
    let ips = [ip("10.0.0.2/32", Some("10.0.0.1")), ip("fd00::2/128", None)];
    let to =
        |dst: &str, gw: &str| entry(&Route::new(dst.parse().unwrap(), Some(gw.parse().unwrap())), &ips).2;
    assert!(to("0.0.0.0/0", "10.0.0.1"));
    assert!(to("::/0", "fd00::1"));
    assert!(
        !to("::/0", "fe80::1"),
        "a link-local next hop is on the link by itself"
    );
    assert!(!to("10.7.0.0/16", "10.0.0.2"));
}

#[test]
fn a_route_of_link_scope_has_no_next_hop() {
    let ips = [ip("10.0.0.2/24", Some("10.0.0.1"))];
    let scoped = |scope| Route {
        scope: Some(scope),
        ..Route::new("10.7.0.0/16".parse().unwrap(), None)
    };
    assert_eq!(entry(&scoped(253), &ips).1, None);
    assert_eq!(entry(&scoped(0), &ips).1.as_deref(), Some("10.0.0.1"));
}

#[test]
fn host_bits_of_a_destination_are_cleared() {
    let route = Route::new("10.7.3.9/16".parse().unwrap(), None);
    assert_eq!(entry(&route, &[]).0, "10.7.0.0/16");
}

#[test]
fn metrics_and_table_reach_the_kernel() {
    let routes = json!({
        "cniVersion": "1.1.0",
        "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}],
        "routes": [
            {"dst": "10.7.0.0/16", "mtu": 1300, "advmss": 1200, "priority": 5, "table": 100},
            {"dst": "10.8.0.0/16", "scope": 253},
        ],
    });
    let mut bench = Bench::new(Mode::Ipoib, Ipam::giving(&routes));
    bench.attach(&plan(Mode::Ipoib, IPOIB)).unwrap();
    let made = bench.kernel.state().routes;
    let expected = RouteEntry {
        gateway: Some("10.0.0.1".parse().unwrap()),
        mtu: Some(1300),
        advmss: Some(1200),
        priority: Some(5),
        table: Some(100),
        ..RouteEntry::new("10.7.0.0/16".parse().unwrap(), 101)
    };
    assert_eq!(made[0], expected);
    assert_eq!((made[1].scope, made[1].gateway), (Some(253), None));
    assert_ne!(made[0].table, Some(TABLE_MAIN));
}

#[test]
fn the_error_names_an_unreachable_route() {
    let routes = json!({
        "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}],
        "routes": [{"dst": "10.8.0.0/16", "gw": "10.0.0.1", "scope": 253}],
    });
    let mut bench = Bench::new(Mode::Ipoib, Ipam::giving(&routes));
    let error = bench.refused(&plan(Mode::Ipoib, IPOIB));
    assert_eq!(
        error.msg,
        "cannot add the route to 10.8.0.0/16 via 10.0.0.1 on net1"
    );
    assert_eq!(error.details, "the kernel refused: EINVAL: Invalid argument");
}
