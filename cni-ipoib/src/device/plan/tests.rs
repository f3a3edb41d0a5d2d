// SPDX-License-Identifier: Apache-2.0
#![expect(clippy::too_many_lines, reason = "a table")]

use super::moved;
use crate::config::{Config, HostAddresses};
use crate::device::Facts;
use crate::host::{Drivers, Host, Port};
use crate::intent::Function;
use crate::kernel::Side;
use crate::model::{call, ipoib};
use common::cni;
use common::netlink::{Carried, Link};
use common::rdma::{Guid, PortState};
use serde_json::json;

fn config() -> Config {
    Config::read(&call(json!({"mode": "device", "master": "ib0"}))).unwrap()
}

fn host(master: Link) -> Host {
    let port = Port {
        device: "mlx5_0".to_owned(),
        number: 1,
        state: PortState::Active,
        phys_state: "LinkUp".to_owned(),
        pkeys: Vec::new(),
    };
    Host {
        side: Side::Host,
        root: master.clone(),
        port: master.address.port_guid().map(|_| port),
        master,
        pci: None,
        drivers: Drivers::default(),
        bond: None,
        enslaved_to: None,
    }
}

fn ethernet(index: u32, name: &str) -> Link {
    Link {
        perm_address: "b8:3f:d2:00:00:01".parse().ok(),
        ..crate::model::ethernet(index, name)
    }
}

fn facts() -> Facts {
    Facts {
        path: Some("/sys/devices/a".into()),
        ..Facts::default()
    }
}

#[track_caller]
fn refused(config: &Config, host: &Host, facts: &Facts) -> String {
    cni::Error::from(moved(config, host, facts).unwrap_err()).msg
}

#[test]
fn an_unused_link_may_leave_the_host() {
    for link in [ipoib(4, "ib0", 0xffff), ethernet(4, "ens1")] {
        assert_eq!(
            moved(&config(), &host(link.clone()), &facts()).unwrap().link,
            link
        );
    }
}

#[test]
fn a_link_in_use_stays_on_the_host() {
    let address = || vec!["10.0.0.7/24 of ib0".to_owned()];
    let cases = [
        (
            Facts {
                software: Some("a link of kind bond".to_owned()),
                ..facts()
            },
            "it is a link of kind bond, which the kernel deletes with the pod's namespace",
        ),
        (
            Facts {
                path: None,
                ..facts()
            },
            "it has no hardware device",
        ),
        (
            Facts {
                enslaved_to: Some("bond0".to_owned()),
                ..facts()
            },
            "it is a port of bond0;",
        ),
        (
            Facts {
                enslaved_to: Some("bond0".to_owned()),
                addresses: vec!["10.0.0.7/24 of bond0".to_owned()],
                default_route: Some("bond0".to_owned()),
                ..facts()
            },
            "it is a port of bond0 and takes part in 10.0.0.7/24 of bond0, the default route over bond0;",
        ),
        (
            Facts {
                addresses: address(),
                ..facts()
            },
            "this node has the address 10.0.0.7/24 of ib0; name another; if the node can",
        ),
        (
            Facts {
                default_route: Some("ib0".to_owned()),
                ..facts()
            },
            "the default route of this node leads over ib0",
        ),
        (
            Facts {
                uppers: vec!["ib0.8001".to_owned(), "vlan7".to_owned()],
                ..facts()
            },
            "it has links on top of it (ib0.8001, vlan7)",
        ),
        (
            Facts {
                functions: 4,
                ..facts()
            },
            "it has 4 virtual functions",
        ),
        (
            Facts {
                last_active: true,
                ..facts()
            },
            "it is the last active InfiniBand port of this node",
        ),
        (
            Facts {
                holder: Some("a/net1".to_owned()),
                ..facts()
            },
            "ib0 belongs to a/net1",
        ),
        (
            Facts {
                carried: Carried {
                    shared: vec!["route to 10.1.0.0/16".to_owned()],
                    ..Carried::default()
                },
                ..facts()
            },
            "route to 10.1.0.0/16 leads over other links too",
        ),
    ];
    for (facts, expected) in cases {
        let text = refused(&config(), &host(ipoib(4, "ib0", 0xffff)), &facts);
        assert!(text.contains(expected), "{expected:?} is not in {text:?}");
    }
}

#[test]
fn some_refusals_can_be_waived_but_never_the_default_route() {
    let host = host(ipoib(4, "ib0", 0xffff));
    let waiving = Config {
        host_addresses: HostAddresses::Restore,
        keep_last: false,
        ..config()
    };
    let used = Facts {
        addresses: vec!["10.0.0.7/24 of ib0".to_owned()],
        last_active: true,
        ..facts()
    };
    moved(&waiving, &host, &used).unwrap();
    let connecting = Facts {
        default_route: Some("ib0".to_owned()),
        ..used
    };
    assert!(refused(&waiving, &host, &connecting).contains("default route"));
}

#[test]
fn a_link_without_traffic_is_refused() {
    let mut infiniband = host(ipoib(4, "ib0", 0xffff));
    for (state, expected) in [
        (
            PortState::Down,
            "down (LinkUp); check cable, switch port and subnet manager",
        ),
        (
            PortState::Init,
            "initializing (LinkUp); no subnet manager has configured it; start one that reaches this port: opensm, or one in a switch or in UFM",
        ),
    ] {
        if let Some(port) = &mut infiniband.port {
            port.state = state;
        }
        let expected = format!("ib0 carries nothing: mlx5_0 port 1 is {expected}");
        assert_eq!(refused(&config(), &infiniband, &facts()), expected);
    }
    let unplugged = |up| Link {
        up,
        carrier: false,
        ..ethernet(4, "ens1")
    };
    assert!(refused(&config(), &host(unplugged(true)), &facts()).contains("has no carrier"));
    // The state is unknown before the link is up.
    moved(&config(), &host(unplugged(false)), &facts()).unwrap();
}

#[test]
fn values_that_the_link_does_not_support_are_refused() {
    let read = |keys| Config::read(&call(keys)).unwrap();
    let on = |keys, link: Link| refused(&read(keys), &host(link), &facts());
    let ib0 = || Link {
        max_mtu: Some(4092),
        ..ipoib(4, "ib0", 0xffff)
    };
    let text = on(json!({"mode": "device", "mtu": 9000}), ib0());
    assert!(
        text.contains("mtu 9000 is more than ib0 carries in any mode: 4092"),
        "{text}"
    );
    let guid = json!({"mode": "device", "runtimeConfig": {"infinibandGUID": "00:02:c9:03:00:00:00:01"}});
    assert!(on(guid.clone(), ib0()).contains("the port's own GUID"));
    assert!(on(guid, ethernet(4, "ens1")).contains("infinibandGUID is for mode ipoib"));
    let long = "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5f";
    assert!(on(json!({"mode": "device", "mac": long}), ib0()).contains("mac is"));
    assert!(on(json!({"mode": "device", "mac": long}), ethernet(4, "ens1")).contains("6 bytes"));
    let inside = Host {
        side: Side::Pod,
        ..host(ib0())
    };
    assert!(refused(&config(), &inside, &facts()).contains("linkInContainer"));
}

#[test]
fn a_virtual_function_without_a_guid_is_refused() {
    let link = Link {
        address: "00:00:10:49:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:00"
            .parse()
            .unwrap(),
        ..ipoib(4, "ib0", 0xffff)
    };
    let text = refused(&config(), &host(link), &facts());
    assert!(text.contains("its port has no GUID"), "{text}");
}

#[test]
fn a_guid_that_another_attachment_has_is_refused() {
    let function = Function {
        path: "/sys/devices/a".into(),
        physical: "/sys/devices/b".into(),
        number: 1,
        driver: "/sys/bus/pci/drivers/mlx5_core".into(),
        node_guid: Guid(1),
        port_guid: Guid(1),
        link_state: None,
    };
    let facts = Facts {
        function: Some(function),
        guids: vec![(Guid(0x21), "fabric/net1 of container c2".to_owned())],
        ..facts()
    };
    let asks = |guid: u64| {
        let keys = json!({"mode": "device", "master": "ib0", "guid": Guid(guid).to_string()});
        Config::read(&call(keys)).unwrap()
    };
    let link = Link {
        device: Some("pci/0000:3b:00.2".to_owned()),
        ..ipoib(4, "ib0", 0xffff)
    };
    let at = |state| Host {
        port: Some(Port {
            state,
            ..host(link.clone()).port.unwrap()
        }),
        ..host(link.clone())
    };
    let text = refused(&config(), &at(PortState::Down), &facts);
    assert!(text.contains("ip link set PF vf 1 state auto"), "{text}");
    let text = refused(&config(), &at(PortState::Init), &facts);
    assert!(
        !text.contains("PF"),
        "the physical function keeps no port in this state: {text}"
    );
    let text = refused(&asks(0x21), &host(link.clone()), &facts);
    assert!(text.contains("fabric/net1 of container c2 has it"), "{text}");
    moved(&asks(0x22), &host(link), &facts).unwrap();
}

#[test]
fn keys_of_other_modes_are_refused() {
    for (keys, expected) in [
        (
            json!({"mode": "device", "pkey": "0x8001"}),
            "pkey is for mode ipoib, but the mode is device",
        ),
        (
            json!({"mode": "macvlan", "keepLast": false}),
            "keepLast is for mode device, but the mode is macvlan",
        ),
        (
            json!({"mode": "device", "hostAddresses": "keep"}),
            "hostAddresses is \"keep\", want refuse or restore",
        ),
        (
            json!({"mode": "device", "hwaddr": "1:2"}),
            "hwaddr is 1:2, want 6 or 20 bytes",
        ),
        (
            json!({"mode": "device", "master": "ib0", "hwaddr": "b8:3f:d2:00:00:01"}),
            "either hwaddr or master",
        ),
    ] {
        let error = Config::read(&call(keys)).unwrap_err();
        assert!(
            error.msg.contains(expected),
            "{expected:?} is not in {:?}",
            error.msg
        );
    }
}
