// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::{Fault, ModelKernel, attachment, ethernet, ipoib, of_kind};
use common::cni::Interface;
use common::netlink::LinkInfo;
use std::cell::Cell;

thread_local! {
    static WITHIN: Cell<Duration> = const { Cell::new(Duration::from_millis(60)) };
}

pub(crate) fn within() -> Duration {
    WITHIN.get()
}

/// While it exists, this thread waits longer for links that the model returns late, so that a busy machine
/// does not end the wait.
pub(crate) struct Longer(Duration);

pub(crate) fn wait_longer() -> Longer {
    Longer(WITHIN.replace(CHILDREN_RETURN_WITHIN * 60))
}

impl Drop for Longer {
    fn drop(&mut self) {
        WITHIN.set(self.0);
    }
}

/// The maximum number of searches on the host in one wait: two per pause, and one at the end.
pub(crate) fn looks_of_one_wait() -> usize {
    let pauses = within().as_millis() / PAUSE.as_millis();
    usize::try_from(2 * pauses + 1).unwrap()
}

fn mark(container: &str) -> Mark {
    Mark::new("fabric", &attachment(container))
}

fn returned_of(kernel: &mut ModelKernel, known: &Known<'_>, master: &str, gone: Instant) -> ReturnedChildren {
    delete_returned(kernel, known, master, gone).unwrap()
}

fn marked(link: Link, mark: &Mark) -> Link {
    Link {
        group: mark.group,
        alias: Some(mark.alias.clone()),
        ..link
    }
}

fn with_pod(pod: Vec<Link>) -> ModelKernel {
    let kernel = ModelKernel::new(Vec::new());
    kernel.set().state.pod = pod;
    kernel
}

fn left(links: &[Link]) -> Vec<u32> {
    links.iter().map(|link| link.index).collect()
}

#[test]
fn only_links_with_the_mark_are_deleted() {
    let mark = mark("c1");
    let kind = |kind: &str, index| of_kind(kind, ethernet(index, &format!("l{index}")));
    let pod = vec![
        marked(ipoib(2, "net1", 1), &mark),
        ipoib(3, "net1.8001", 1),
        marked(kind("macvlan", 4), &Mark::new("fabric", &attachment("c2"))),
        Link {
            alias: None,
            ..marked(kind("ipvlan", 5), &mark)
        },
        Link {
            alias: Some("uplink".to_owned()),
            ..marked(kind("macvlan", 6), &mark)
        },
        marked(kind("veth", 7), &mark),
        marked(ethernet(8, "eth0"), &mark),
    ];
    let mut kernel = with_pod(pod);
    assert_eq!(delete(&mut kernel, Side::Pod, &Known::marked(&mark)).unwrap(), 2);
    assert_eq!(left(&kernel.state().pod), [3, 4, 6, 7, 8]);
    assert_eq!(
        delete(&mut kernel, Side::Pod, &Known::marked(&mark)).unwrap(),
        0,
        "again"
    );
}

#[test]
fn each_namespace_is_searched_separately() {
    let mark = mark("c1");
    let mut kernel = ModelKernel::new(vec![marked(ipoib(2, "net1", 1), &mark)]);
    assert_eq!(delete(&mut kernel, Side::Pod, &Known::marked(&mark)).unwrap(), 0);
    assert_eq!(delete(&mut kernel, Side::Host, &Known::marked(&mark)).unwrap(), 1);
    assert_eq!(kernel.state().host, []);
}

#[test]
fn the_error_of_a_refused_deletion_names_the_link() {
    let mark = mark("c1");
    let mut kernel = with_pod(vec![marked(ipoib(2, "net1", 1), &mark)]);
    kernel.fail(Fault::Every("delete"));
    let error = delete(&mut kernel, Side::Pod, &Known::marked(&mark)).unwrap_err();
    assert_eq!(error.to_string(), "cannot delete net1 in the pod");
    kernel.fail(Fault::Every("list"));
    let error = delete(&mut kernel, Side::Pod, &Known::marked(&mark)).unwrap_err();
    assert_eq!(error.to_string(), "cannot list the links");
}

fn prev(name: &str, sandbox: &str, mac: &str) -> CniResult {
    CniResult {
        interfaces: vec![Interface {
            name: name.to_owned(),
            sandbox: sandbox.to_owned(),
            mac: mac.to_owned(),
            ..Interface::default()
        }],
        ..CniResult::default()
    }
}

#[test]
fn a_link_of_another_plugin_is_deleted_if_the_result_proves_it() {
    let link = of_kind("macvlan", ethernet(2, "net1"));
    let mac = link.address.to_string();
    let ours = Link {
        group: mark("c1").group,
        ..link.clone()
    };
    let cases = [
        (
            "as answered",
            link.clone(),
            prev("net1", "/ns", &mac.to_uppercase()),
            true,
        ),
        (
            "another address",
            link.clone(),
            prev("net1", "/ns", "02:00:00:00:00:99"),
            false,
        ),
        ("no address", link.clone(), prev("net1", "/ns", ""), false),
        ("another name", link.clone(), prev("net2", "/ns", &mac), false),
        (
            "an interface of the host",
            link.clone(),
            prev("net1", "", &mac),
            false,
        ),
        (
            "somebody's alias",
            Link {
                alias: Some("x".to_owned()),
                ..link.clone()
            },
            prev("net1", "/ns", &mac),
            false,
        ),
        (
            "born for another attachment",
            ours,
            prev("net1", "/ns", &mac),
            false,
        ),
        ("no child", ethernet(2, "net1"), prev("net1", "/ns", &mac), false),
        ("no result", link, CniResult::default(), false),
    ];
    for (case, link, prev, deleted) in cases {
        let mut kernel = with_pod(vec![link]);
        let name = "net1".parse().unwrap();
        assert_eq!(
            delete_answered(&mut kernel, &name, &prev).unwrap(),
            deleted,
            "{case}"
        );
        assert_eq!(kernel.state().pod.is_empty(), deleted, "{case}");
    }
}

#[test]
fn returned_links_are_found_by_their_alias() {
    let other_network = Mark::new("other", &attachment("c3"));
    let kernel = ModelKernel::new(vec![
        ipoib(2, "ib0", 0xffff),
        marked(ipoib(3, "net1", 1), &mark("c1")),
        marked(ipoib(4, "eth1", 1), &mark("c2")),
        marked(ipoib(5, "net9", 1), &other_network),
        Link {
            group: 7,
            ..marked(ipoib(6, "copy", 1), &mark("c1"))
        },
        marked(of_kind("bridge", ethernet(7, "br0")), &mark("c1")),
        Link {
            alias: None,
            ..marked(ipoib(8, "born", 1), &mark("c1"))
        },
        Link {
            info: LinkInfo::Other,
            ..marked(of_kind("macvlan", ethernet(9, "mv")), &mark("c4"))
        },
    ]);
    let found = returned_children(&mut kernel.clone(), "fabric").unwrap();
    let found: Vec<(u32, String)> = found
        .into_iter()
        .map(|(link, of)| (link.index, of.container_id.to_string()))
        .collect();
    let expected = [(3, "c1"), (4, "c2"), (9, "c4")].map(|(index, of)| (index, of.to_owned()));
    assert_eq!(found, expected);
}

#[test]
fn del_waits_for_a_returning_ipoib_child_and_for_no_ethernet_child() {
    let host = || ModelKernel::new(vec![ipoib(2, "ib0", 0xffff), ethernet(3, "eth0")]);
    for (master, waits) in [("ib0", true), ("gone", true), ("eth0", false)] {
        let (mut host, start) = (host(), Instant::now());
        assert_eq!(
            returned_of(&mut host, &Known::marked(&mark("c1")), master, start),
            ReturnedChildren {
                deleted: 0,
                more: waits
            },
            "{master}"
        );
        if waits {
            assert!(start.elapsed() >= within(), "{master}");
        } else {
            assert_eq!(host.get().log.len(), 1, "{master}: one look for mark and master");
        }
    }
}

#[test]
fn a_namespace_that_ended_long_ago_costs_one_search() {
    let mut kernel = ModelKernel::new(vec![ipoib(2, "ib0", 0xffff)]);
    let (mark, gone) = (mark("c1"), Instant::now());
    sleep(within());
    let known = Known::marked(&mark);
    let returned = returned_of(&mut kernel, &known, "ib0", gone);
    assert_eq!(
        returned,
        ReturnedChildren {
            deleted: 0,
            more: true
        }
    );
    assert_eq!(kernel.get().log, ["list links in Host"]);
}

#[test]
fn a_child_that_returned_already_is_deleted_at_once() {
    let mut kernel = ModelKernel::new(vec![
        ipoib(2, "ib0", 0xffff),
        marked(ipoib(3, "net1", 1), &mark("c1")),
        marked(ipoib(4, "net1", 1), &mark("c2")),
    ]);
    assert_eq!(
        returned_of(&mut kernel, &Known::marked(&mark("c1")), "ib0", Instant::now()),
        ReturnedChildren {
            deleted: 1,
            more: false
        }
    );
    assert_eq!(kernel.state().host.len(), 2);
}

#[test]
fn our_bond_is_deleted_before_its_ports_and_no_other_bond() {
    let mark = mark("c1");
    let port = |index| marked(crate::model::port_of(9, ipoib(index, "net1p0", 1)), &mark);
    let pod = vec![
        port(2),
        port(3),
        marked(of_kind("bond", ethernet(9, "net1")), &mark),
        of_kind("bond", ethernet(10, "bond0")),
    ];
    let mut kernel = with_pod(pod);
    assert_eq!(delete(&mut kernel, Side::Pod, &Known::marked(&mark)).unwrap(), 3);
    assert_eq!(left(&kernel.state().pod), [10]);
    assert_eq!(
        kernel.get().log[1..],
        ["delete #9 in Pod", "delete #2 in Pod", "delete #3 in Pod"]
    );
}

fn outside(link: Link) -> Link {
    Link {
        parent: Some(2),
        parent_netnsid: Some(0),
        ..link
    }
}

#[test]
fn a_name_proves_only_an_unmarked_child_of_an_outside_parent() {
    let macvlan = of_kind("macvlan", ethernet(2, "net1"));
    let cases = [
        ("a child of the host's", outside(macvlan.clone()), true),
        ("a child of InfiniBand", ipoib(2, "net1", 1), true),
        (
            "with a foreign alias",
            Link {
                alias: Some("x".to_owned()),
                ..outside(macvlan.clone())
            },
            true,
        ),
        ("a child of the pod's own link", macvlan.clone(), false),
        (
            "another name",
            outside(of_kind("macvlan", ethernet(2, "net2"))),
            false,
        ),
        ("no child", outside(ethernet(2, "net1")), false),
        ("a bond", of_kind("bond", ethernet(2, "net1")), false),
        (
            "another attachment's",
            marked(outside(macvlan), &mark("c2")),
            false,
        ),
    ];
    let is_others = |link: &Link| mark("c2").is_on(link);
    for (case, link, deleted) in cases {
        let mut kernel = with_pod(vec![link]);
        let name = "net1".parse().unwrap();
        assert_eq!(
            delete_named(&mut kernel, &name, is_others).unwrap(),
            deleted,
            "{case}"
        );
        assert_eq!(kernel.state().pod.is_empty(), deleted, "{case}");
    }
}

#[test]
fn the_journal_identifies_a_link_that_returns_during_the_wait() {
    let child = Link {
        parent: Some(2),
        up: false,
        ..ipoib(30, "net1", 1)
    };
    let back = Link {
        name: "mine".to_owned(),
        alias: Some("mine".to_owned()),
        group: 7,
        ..child.clone()
    };
    let mut kernel = ModelKernel::new(vec![ipoib(2, "ib0", 0xffff), back]);
    let made = [Made::of(&child)];
    let mark = mark("c1");
    let known = Known {
        mark: &mark,
        recorded: Some(Recorded {
            made: &made,
            netns: (4, 1),
            state: Path::new("/nonexistent"),
            network: "fabric",
            attachment: &attachment("c1"),
        }),
    };
    assert_eq!(
        returned_of(&mut kernel, &known, "ib0", Instant::now()),
        ReturnedChildren {
            deleted: 1,
            more: false
        }
    );
    assert_eq!(left(&kernel.state().host), [2]);
}
