// SPDX-License-Identifier: Apache-2.0
use crate::device::fixture::{WAYS, add, fixture, host};
use crate::intent::{Intent, Made};
use crate::mark::Mark;
use crate::model::{Fault, Fixture, attachment, ethernet, ipoib};
use common::cni::Code;
use common::netlink::{AddrGenMode, HwAddress, Link, XdpMode};
use common::rdma::Guid;
use serde_json::json;
use std::fs;

#[test]
fn del_gc_and_the_next_add_restore_the_link_of_a_dead_pod() {
    for way in WAYS {
        for link in ["ib0", "ens1"] {
            let fixture = fixture(way);
            let before = host(&fixture);
            add(&fixture, link).unwrap();
            fixture.kernel.set().state.pod_dies();
            fixture.del_without_netns("c1").unwrap();
            assert_eq!(host(&fixture), before, "{way:?} {link} DEL");
            add(&fixture, link).unwrap();
            fixture.kernel.set().state.pod_dies();
            fixture.gc(&[]).unwrap();
            assert_eq!(host(&fixture), before, "{way:?} {link} GC");
        }
    }
}

/// Changes what a pod with the right to change its links can change. Below 1280 bytes a link has no IPv6.
fn change_by_pod(fixture: &Fixture) {
    let state = &mut fixture.kernel.set().state;
    for link in &mut state.pod {
        state.left.tcx.push(link.index);
        (link.mtu, link.addr_gen_mode) = (1000, None);
        (link.flags, link.tx_queue) = (0x380, 77);
        (link.link_mode, link.limits.gso_max_size) = (1, Some(4000));
        link.xdp = vec![XdpMode::Generic, XdpMode::Driver];
        link.group = 7;
        link.broadcast = "02:00:00:00:00:01".parse().unwrap();
    }
}

#[test]
fn a_link_that_its_pod_changed_is_restored() {
    for way in WAYS {
        for link in ["ib0", "ens1"] {
            for dies in [false, true] {
                let fixture = fixture(way);
                let before = host(&fixture);
                add(&fixture, link).unwrap();
                change_by_pod(&fixture);
                if dies {
                    fixture.kernel.set().state.pod_dies();
                    fixture.del_without_netns("c1").unwrap();
                } else {
                    fixture.del("c1").unwrap();
                }
                assert_eq!(host(&fixture), before, "{way:?} {link} {dies}");
            }
        }
    }
}

#[test]
fn a_link_that_its_pod_changed_is_restored_after_a_kill_at_any_request() {
    let killed = |number: usize| {
        let fixture = fixture(WAYS[0]);
        let before = host(&fixture);
        add(&fixture, "ens1").unwrap();
        change_by_pod(&fixture);
        fixture.kernel.fail(Fault::From(number));
        // A failure of one of the last requests is only logged.
        let killed = fixture.del("c1").is_err();
        if killed {
            fixture.kernel.fail(Fault::None);
            fixture.del("c1").unwrap();
            assert_eq!(host(&fixture), before, "{:?}", Fault::From(number));
        }
        killed
    };
    let number = (0..60).find(|number| !killed(*number)).unwrap();
    assert!(number > 10, "DEL makes {number} requests");
}

/// Children as a pod may create them on its link 4: with a plain name, with a temporary name of the plugin, and with the
/// whole mark of an attachment.
fn children_of_pod() -> [Link; 3] {
    let mark = Mark::new("fabric", &attachment("c9"));
    let child = |index, name: &str| Link {
        parent: Some(4),
        up: false,
        ..ipoib(index, name, 0x8001)
    };
    let marked = Link {
        group: mark.group,
        alias: Some(mark.alias.clone()),
        ..child(52, "net9")
    };
    [child(50, "own"), child(51, &mark.temporary(0)), marked]
}

#[test]
fn children_that_the_pod_created_on_its_link_are_deleted() {
    for child in children_of_pod() {
        for dies in [false, true] {
            let fixture = fixture(WAYS[0]);
            let before = host(&fixture);
            add(&fixture, "ib0").unwrap();
            fixture.kernel.set().state.pod.push(child.clone());
            if dies {
                fixture.kernel.set().state.pod_dies();
                fixture.del_without_netns("c1").unwrap();
            } else {
                fixture.del("c1").unwrap();
                fixture.kernel.set().state.pod_dies();
            }
            assert_eq!(host(&fixture), before, "{child:?} {dies}");
        }
    }
}

/// A pod that gets an interface while it runs may do that before ADD fails.
#[test]
fn a_failed_add_deletes_children_that_the_pod_created_on_its_link() {
    for child in children_of_pod() {
        let fixture = fixture(WAYS[0]);
        fixture.kernel.set().state.pod.push(child.clone());
        fixture.kernel.set().carrier = false;
        add(&fixture, "ib0").unwrap_err();
        assert!(fixture.kernel.state().pod.is_empty(), "{child:?}");
    }
}

#[test]
fn the_next_add_deletes_children_that_a_dead_pod_created_on_its_link() {
    for child in children_of_pod() {
        let fixture = fixture(WAYS[0]);
        let before = host(&fixture);
        add(&fixture, "ib0").unwrap();
        fixture.kernel.set().state.pod.push(child.clone());
        fixture.kill_pod("c1");
        let keys = serde_json::json!({"mode": "device", "master": "ib0"});
        fixture
            .add_with("c2", &keys)
            .unwrap_or_else(|e| panic!("{child:?}: {e:?}"));
        fixture.del("c2").unwrap();
        assert_eq!(host(&fixture), before, "{child:?}");
    }
}

/// Those of the node's administrator are up. The journal has those that an ADD is creating.
#[test]
fn other_children_of_a_returned_link_stay() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ib0").unwrap();
    fixture.kernel.set().state.pod_dies();
    fixture.entry("c2").begin(fixture.intent()).unwrap();
    let mark = Mark::new("fabric", &attachment("c2"));
    let child = |index, name: &str| Link {
        parent: Some(4),
        ..ipoib(index, name, 0x8001)
    };
    let administrators = child(60, "ib0.8001");
    let on_its_way = Link {
        group: mark.group,
        up: false,
        ..child(61, &mark.temporary(0))
    };
    let others = [administrators, on_its_way];
    fixture.kernel.set().state.host.extend(others.clone());
    fixture.del_without_netns("c1").unwrap();
    let after = fixture.kernel.state().host;
    for other in &others {
        assert!(after.contains(other), "{other:?}");
    }
}

/// The kernel does not report that the parent of an `IPoIB` child is in another namespace. The child has a parent on the
/// host, with the number that the whole link has in the pod.
#[test]
fn the_child_of_another_attachment_in_the_pod_stays() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ib0").unwrap();
    let child = Link {
        parent: Some(4),
        ..ipoib(50, "net2", 0x8001)
    };
    let made = vec![Made::of(&child)];
    let intent = fixture.intent();
    fixture.entry("c2").begin(Intent { made, ..intent }).unwrap();
    fixture.kernel.set().state.pod.push(child.clone());
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state().pod, [child]);
}

/// The kernel may start without IPv6 while the snapshot of a link has an IPv6 setting.
#[test]
fn a_link_is_restored_without_its_ipv6_setting_if_ipv6_is_gone() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ib0").unwrap();
    {
        let state = &mut fixture.kernel.set().state;
        state.without_ipv6 = true;
        for link in &mut state.pod {
            link.addr_gen_mode = None;
        }
    }
    fixture.del("c1").unwrap();
    let state = fixture.kernel.state();
    let ib0 = state.host.iter().find(|link| link.name == "ib0").unwrap();
    assert!(ib0.up && ib0.mtu == 65520 && ib0.group == 7, "{ib0:?}");
    assert_eq!(fixture.written_down(), [""; 0]);
}

#[test]
fn a_dead_pods_link_gets_its_name_back() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ens1").unwrap();
    fixture.kernel.set().state.host.push(ethernet(40, "net1"));
    let before = fixture.kernel.state().host.len();
    fixture.kernel.set().state.pod_dies();
    fixture.del_without_netns("c1").unwrap();
    let names: Vec<String> = fixture
        .kernel
        .state()
        .host
        .into_iter()
        .map(|link| link.name)
        .collect();
    assert!(
        names.contains(&"ens1".to_owned()) && names.len() == before + 1,
        "{names:?}"
    );
}

#[test]
fn a_pod_is_removed_though_another_link_has_the_name() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ens1").unwrap();
    fixture.kernel.set().state.host.push(ethernet(40, "ens1"));
    fixture.del("c1").unwrap();
    let state = fixture.kernel.state();
    let ours = state.host.iter().find(|link| link.index == 6).unwrap();
    assert!(ours.name.starts_with("rn") && ours.up, "{ours:?}");
    assert!(state.left.sysctls.iter().any(|(of, _)| *of == ours.name));
}

/// A child reports no parent if its index is that of the parent on the host. A DEL that was killed after the link had left the pod
/// is repeated.
#[test]
fn del_of_a_whole_link_leaves_the_child_of_another_attachment_in_the_same_pod() {
    let fixture = fixture(WAYS[0]);
    let before = host(&fixture);
    add(&fixture, "ib0").unwrap();
    let child = {
        let state = &mut fixture.kernel.set().state;
        let whole = state.pod.remove(0);
        let pair: HwAddress = "00:00:20:77:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e"
            .parse()
            .unwrap();
        let child = Link {
            index: 9,
            name: "net2".to_owned(),
            address: pair,
            ..whole.clone()
        };
        state.host.push(Link { up: false, ..whole });
        state.pod.push(child.clone());
        child
    };
    let made = vec![Made::of(&child)];
    fixture
        .entry("c2")
        .begin(Intent {
            made,
            ..fixture.intent()
        })
        .unwrap();
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state().pod, [child]);
    assert_eq!(host(&fixture), before);
}

/// The kernel returns the child of a dead pod under the name that it had there.
#[test]
fn a_link_gets_its_name_back_from_a_child_that_another_pod_called_so() {
    for link in ["ib0", "ens1"] {
        let fixture = fixture(WAYS[0]);
        let before = host(&fixture);
        add(&fixture, link).unwrap();
        let child = Link {
            parent: Some(5),
            up: false,
            ..ipoib(40, link, 0xffff)
        };
        fixture.kernel.set().state.host.push(child);
        fixture.del("c1").unwrap();
        fixture.kernel.set().state.host.retain(|link| link.index != 40);
        assert_eq!(host(&fixture), before, "{link}");
    }
}

/// A pod may give its child another link's name as an altname, or one of that link's altnames. The host may bring the returned
/// child up.
#[test]
fn a_link_gets_its_names_back_from_a_child_that_another_pod_gave_them() {
    type Change = fn(&mut Link);
    let changes: [Change; 3] = [
        |child| child.altnames = vec!["ib0".to_owned()],
        |child| child.altnames = vec!["rail0".to_owned()],
        |child| (child.name, child.up) = ("ib0".to_owned(), true),
    ];
    for change in changes {
        let fixture = fixture(WAYS[0]);
        {
            let state = &mut fixture.kernel.set().state;
            let ib0 = state.host.iter_mut().find(|link| link.name == "ib0").unwrap();
            ib0.altnames = vec!["rail0".to_owned()];
        }
        let before = host(&fixture);
        add(&fixture, "ib0").unwrap();
        let mut child = Link {
            parent: Some(5),
            up: false,
            alias: Some(Mark::new("another", &attachment("c9")).alias),
            ..ipoib(40, "net1", 0xffff)
        };
        change(&mut child);
        fixture.kernel.set().state.host.push(child);
        fixture.del("c1").unwrap();
        fixture.kernel.set().state.host.retain(|link| link.index != 40);
        assert_eq!(host(&fixture), before);
        assert_eq!(fixture.written_down(), [""; 0]);
    }
}

#[test]
fn the_secret_of_ipv6_addresses_is_restored_before_the_mode_that_needs_it() {
    for mode in [AddrGenMode::StablePrivacy, AddrGenMode::None] {
        for link in ["ib0", "ens1"] {
            let fixture = fixture(WAYS[0]);
            {
                let state = &mut fixture.kernel.set().state;
                let of_link = state.left.sysctls.iter_mut().find(|(of, _)| of == link);
                let secret = ("ipv6/conf/stable_secret".to_owned(), "fd00::1".to_owned());
                of_link.unwrap().1.extend([secret]);
                let of_host = state.host.iter_mut().find(|of| of.name == link);
                of_host.unwrap().addr_gen_mode = Some(mode);
            }
            let before = host(&fixture);
            add(&fixture, link).unwrap();
            fixture.del("c1").unwrap();
            assert_eq!(host(&fixture), before, "{link} {mode}");
        }
    }
}

#[test]
fn a_refused_mode_of_ipv6_addresses_does_not_keep_the_pod() {
    let fixture = fixture(WAYS[0]);
    let of_host = |fixture: &Fixture| {
        let mut host = fixture.kernel.state().host.into_iter();
        host.find(|link| link.name == "ens1").unwrap()
    };
    {
        let state = &mut fixture.kernel.set().state;
        let ens1 = state.host.iter_mut().find(|link| link.name == "ens1").unwrap();
        ens1.addr_gen_mode = Some(AddrGenMode::StablePrivacy);
    }
    add(&fixture, "ens1").unwrap();
    // The secret was the namespace's, and is gone.
    fixture.del("c1").unwrap();
    assert_eq!(of_host(&fixture).addr_gen_mode, Some(AddrGenMode::Eui64));
    assert_eq!(fixture.written_down(), [""; 0]);
}

/// Replaces the link of a dead pod by one with another GUID and permanent address, as a driver does that is bound again
/// after its physical function changed these. Returns it.
fn succeed(fixture: &Fixture, link: &str) -> Link {
    let state = &mut fixture.kernel.set().state;
    state.pod.clear();
    let (bytes, of) = if link == "ib0" {
        let mut bytes = ipoib(4, "ib0", 0xffff).address.as_bytes().to_vec();
        bytes[12..].fill(0xab);
        (bytes, "pci/0000:3b:00.0")
    } else {
        (vec![2, 0, 0, 0, 0, 0xab], "pci/0000:17:00.0")
    };
    let base = if link == "ib0" {
        let gid = "fe80:0000:0000:0000:abab:abab:abab:abab";
        fixture.node.write("class/infiniband/mlx5_0/ports/1/gids/0", gid);
        ipoib(4, "ib0", 0xffff)
    } else {
        ethernet(6, "ens1")
    };
    let successor = Link {
        device: Some(of.to_owned()),
        perm_address: (link == "ens1").then(|| HwAddress::new(bytes.clone())),
        address: HwAddress::new(bytes),
        ..base
    };
    state.host.push(successor.clone());
    successor
}

/// A pod may change the GUID in the address of its link. That of the port stays.
#[test]
fn a_link_with_another_guid_is_restored_if_its_port_has_the_recorded_one() {
    // Linux before 5.14 does not report the device of a link.
    for (dies, reported) in [(false, true), (true, true), (false, false), (true, false)] {
        let fixture = fixture(WAYS[0]);
        if !reported {
            let state = &mut fixture.kernel.set().state;
            state.host.iter_mut().for_each(|link| link.device = None);
        }
        let directory = "devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0";
        fixture.node.follow(directory, "class/infiniband/mlx5_0");
        // The kernel returns a link under the name that it had in the pod.
        fixture.node.netdev("net1", 4, "0000:3b:00.0");
        let before = host(&fixture);
        add(&fixture, "ib0").unwrap();
        {
            let state = &mut fixture.kernel.set().state;
            for link in &mut state.pod {
                link.address = link.address.with_port_guid(Guid(7)).unwrap();
            }
        }
        if dies {
            fixture.kernel.set().state.pod_dies();
            fixture.del_without_netns("c1").unwrap();
        } else {
            fixture.del("c1").unwrap();
        }
        assert_eq!(host(&fixture), before, "{dies} {reported}");
    }
}

#[test]
fn del_ends_if_the_driver_created_another_link_for_the_device() {
    for link in ["ib0", "ens1"] {
        let fixture = fixture(WAYS[0]);
        add(&fixture, link).unwrap();
        let successor = succeed(&fixture, link);
        fixture.del_without_netns("c1").unwrap();
        assert!(fixture.kernel.state().host.contains(&successor), "{link}");
        assert_eq!(fixture.written_down(), [""; 0], "{link}");
    }
}

#[test]
fn del_ends_if_a_pod_has_the_link_that_the_driver_created_for_the_port() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ens1").unwrap();
    succeed(&fixture, "ens1");
    let keys = json!({"mode": "device", "master": "ens1", "mtu": 2000, "hostAddresses": "restore"});
    fixture.add_with("c2", &keys).unwrap();
    let pod = fixture.kernel.state().pod;
    assert_eq!(pod.len(), 1);
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(fixture.kernel.state().pod, pod);
}

/// An adapter with two ports on one function, and without a driver for RDMA.
#[test]
fn del_waits_for_the_link_of_a_port_though_another_port_of_the_device_has_one() {
    let fixture = fixture(WAYS[0]);
    fixture.node.netdev("ens3", 9, "0000:17:00.0");
    fixture.node.write("class/net/ens3/dev_port", "1");
    let second = Link {
        device: Some("pci/0000:17:00.0".to_owned()),
        perm_address: Some(HwAddress::new([2, 0, 0, 0, 0, 9])),
        ..ethernet(9, "ens3")
    };
    fixture.kernel.set().state.host.push(second);
    add(&fixture, "ens1").unwrap();
    fixture.kernel.set().state.pod.clear();
    let error = fixture.del_without_netns("c1").unwrap_err();
    assert_eq!(error.code, Code::TRY_AGAIN, "{error:?}");
}

#[test]
fn del_restores_no_other_link_of_the_device_without_a_permanent_address() {
    let fixture = fixture(WAYS[0]);
    fixture.node.netdev("rep0", 3, "0000:17:00.0");
    let other = Link {
        device: Some("pci/0000:17:00.0".to_owned()),
        ..ethernet(3, "rep0")
    };
    fixture.kernel.set().state.host.insert(0, other);
    let before = host(&fixture);
    add(&fixture, "ens1").unwrap();
    fixture.del("c1").unwrap();
    assert_eq!(host(&fixture), before);
}

/// The first DEL fails after it has restored the link. Then the node uses the link again.
#[test]
fn a_repeated_del_leaves_a_link_that_it_has_restored_unchanged() {
    for way in WAYS {
        let fixture = fixture(way);
        add(&fixture, "ib0").unwrap();
        fixture.ipam.fail(true);
        fixture.del("c1").unwrap_err();
        fixture.ipam.fail(false);
        {
            let state = &mut fixture.kernel.set().state;
            let ib0 = state.host.iter_mut().find(|link| link.name == "ib0").unwrap();
            (ib0.mtu, ib0.alias) = (4000, Some("used by the node".to_owned()));
            let child = Link {
                parent: Some(ib0.index),
                up: false,
                ..ipoib(60, "ib0.8002", 0x8002)
            };
            state.host.push(child);
        }
        let before = host(&fixture);
        fixture.del("c1").unwrap();
        assert_eq!(host(&fixture), before, "{way:?}");
        assert_eq!(fixture.written_down(), [""; 0], "{way:?}");
    }
}

/// The link is the host's, so another pod may have it before the DEL is repeated.
#[test]
fn another_pod_gets_a_restored_link_before_its_del_is_repeated() {
    let fixture = fixture(WAYS[0]);
    let before = host(&fixture);
    add(&fixture, "ib0").unwrap();
    fixture.ipam.fail(true);
    fixture.del("c1").unwrap_err();
    fixture.ipam.fail(false);
    let keys = json!({"mode": "device", "master": "ib0"});
    fixture.add_with("c2", &keys).unwrap();
    fixture.del("c1").unwrap();
    fixture.del("c2").unwrap();
    assert_eq!(host(&fixture), before);
    assert_eq!(fixture.written_down(), [""; 0]);
}

#[test]
fn del_does_not_end_before_the_link_is_back() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ens1").unwrap();
    let in_pod = std::mem::take(&mut fixture.kernel.set().state.pod);
    let error = fixture.del_without_netns("c1").unwrap_err();
    assert_eq!(error.code, Code::TRY_AGAIN, "{error:?}");
    assert!(error.msg.contains("ens1 did not come back"), "{}", error.msg);
    assert!(
        !fixture.ipam.verbs().contains(&"DEL".to_owned()),
        "its addresses may be in use"
    );
    fixture.kernel.set().state.pod = in_pod;
    fixture.del("c1").unwrap();
    assert!(fixture.written_down().is_empty());
}

#[test]
fn a_pod_is_removed_though_its_card_was_unplugged() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ens1").unwrap();
    fixture.kernel.set().state.pod.clear();
    fs::remove_dir_all(fixture.node.path().join("devices/pci0000:3a/0000:17:00.0/driver")).unwrap();
    fixture.del_without_netns("c1").unwrap();
    assert!(fixture.written_down().is_empty());
}

/// The driver of RDMA was unloaded or another one was bound, and the function has no link any more.
#[test]
fn a_pod_is_removed_though_its_function_lost_its_links() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ib0").unwrap();
    fixture.kernel.set().state.pod.clear();
    let functions = fixture.node.path().join("devices/pci0000:3a");
    for function in fs::read_dir(functions).unwrap() {
        let links = function.unwrap().path().join("net");
        if links.exists() {
            fs::remove_dir_all(links).unwrap();
        }
    }
    fixture.del_without_netns("c1").unwrap();
    assert!(fixture.written_down().is_empty());
    assert!(fixture.ipam.verbs().contains(&"DEL".to_owned()));
}

#[test]
fn after_a_reboot_nothing_is_restored() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ens1").unwrap();
    {
        let mut model = fixture.kernel.set();
        model.state.pod_dies();
        model.state.host.retain(|link| link.index != 6);
        model.state.host.push(ethernet(6, "renamed"));
    }
    let before = host(&fixture);
    fixture.amend_intent("c1", |intent| {
        intent.device.as_mut().unwrap().boot = "another".to_owned();
    });
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(host(&fixture), before);
}

#[test]
fn a_late_del_does_not_take_a_link_from_the_next_pod() {
    for way in WAYS {
        let fixture = fixture(way);
        let before = host(&fixture);
        add(&fixture, "ib0").unwrap();
        fixture.kill_pod("c1");
        let keys = serde_json::json!({"mode": "device", "master": "ib0"});
        fixture
            .add_with("c2", &keys)
            .unwrap_or_else(|e| panic!("{way:?}: {e:?}"));
        fixture.del_without_netns("c1").unwrap();
        assert_eq!(fixture.kernel.state().pod.len(), 1, "{way:?}");
        fixture.del("c2").unwrap();
        assert_eq!(host(&fixture), before, "{way:?}");
        assert!(fixture.written_down().is_empty(), "{:?}", attachment("c1"));
    }
}
