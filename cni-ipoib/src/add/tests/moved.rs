// SPDX-License-Identifier: Apache-2.0
//! The child of a parent with its own data path, such as mlx5's: created on the host, moved into the pod.

use super::{a_failure_leaves_nothing, after_a_kill, assert_clean, with_failing_del};
use crate::mark::Mark;
use crate::model::{Fault, Fixture, attachment, ethernet, ipoib};
use common::cni::Code;
use common::netlink::Link;

fn mark() -> Mark {
    Mark::new("fabric", &attachment("c1"))
}

/// A link of the host after an ADD of `c1` that was killed between creation and move.
fn in_between(index: u32) -> Link {
    Link {
        parent: Some(4),
        group: mark().group,
        up: false,
        ..ipoib(index, &mark().temporary(0), 0xffff)
    }
}

/// The fixture itself, or its variant whose master is a bond.
fn of(fixture: Fixture, bonded: bool) -> Fixture {
    if bonded { fixture.on_bond() } else { fixture }
}

fn requests(fixture: &Fixture, starts: &[&str]) -> Vec<String> {
    let wanted = |request: &&String| starts.iter().any(|start| request.starts_with(start));
    fixture.kernel.get().log.iter().filter(wanted).cloned().collect()
}

#[test]
fn a_child_is_created_on_the_host_and_moved_into_the_pod_in_one_request() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let temporary = mark().temporary(0);
    let expected = [
        format!("create {temporary} from Host"),
        "move #101 from Host as net1".to_owned(),
    ];
    assert_eq!(requests(&fixture, &["create", "move", "rename"]), expected);
    let pod = fixture.kernel.state().pod;
    assert_eq!(
        (pod[0].name.as_str(), &pod[0].alias),
        ("net1", &Some(mark().alias))
    );
}

#[test]
fn a_child_of_a_safe_driver_is_created_in_the_pod() {
    let fixture = Fixture::new().plain();
    fixture.add("c1").unwrap();
    assert_eq!(
        requests(&fixture, &["create", "move", "rename"]),
        ["create net1 from Host"]
    );
}

#[test]
fn a_pods_link_with_the_index_of_the_parent_is_not_used_as_parent() {
    for bonded in [false, true] {
        let fixture = of(Fixture::new(), bonded);
        let eth0 = ethernet(4, "eth0");
        fixture.kernel.set().state.pod.push(eth0.clone());
        fixture.add("c1").unwrap();
        fixture.del("c1").unwrap();
        assert_eq!(fixture.kernel.state().pod, [eth0]);
    }
}

#[test]
fn the_child_may_be_renamed_and_brought_up_before_its_move() {
    let fixture = Fixture::new();
    fixture.kernel.set().udev = Some("ibs3f0");
    a_failure_leaves_nothing(&fixture, Fault::Refused);
    fixture.add("c1").unwrap();
    assert_eq!(fixture.kernel.state().pod[0].name, "net1");
}

#[test]
fn after_a_kill_and_a_rename_by_udev_del_and_gc_find_the_child() {
    let fixture = with_failing_del();
    fixture.kernel.set().udev = Some("ibs3f0");
    after_a_kill(&fixture, |fixture, case| fixture.del("c1").expect(case));
    after_a_kill(&fixture, |fixture, case| fixture.gc(&[]).expect(case));
}

#[test]
fn a_temporary_name_in_use_is_replaced_by_another_one() {
    let fixture = Fixture::new();
    let foreign = ethernet(9, &mark().temporary(0));
    let other = Link {
        group: mark().group,
        alias: Some("uplink".to_owned()),
        ..ipoib(10, &mark().temporary(1), 0xffff)
    };
    fixture.kernel.set().state.host.extend([foreign, other]);
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    assert_eq!(fixture.kernel.state().host, before.host);
    fixture.del("c1").unwrap();
    assert_clean(&fixture, &before, "after DEL");
}

#[test]
fn when_every_temporary_name_is_in_use_add_lists_them() {
    let fixture = Fixture::new();
    for attempt in 0..Mark::TEMPORARY_NAMES {
        let link = ethernet(10 + u32::try_from(attempt).unwrap(), &mark().temporary(attempt));
        fixture.kernel.set().state.host.push(link);
    }
    let before = fixture.kernel.state();
    let error = fixture.add("c1").unwrap_err();
    assert_eq!(error.code, Code::KERNEL);
    assert!(error.msg.contains(&mark().temporary(3)), "{}", error.msg);
    assert_clean(&fixture, &before, "no name is free");
}

#[test]
fn a_child_that_a_killed_add_left_is_replaced_without_a_journal_entry() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.kernel.set().state.host.push(in_between(50));
    fixture.add("c1").unwrap();
    assert_eq!(fixture.kernel.state().host, before.host);
    fixture.del("c1").unwrap();
    assert_clean(&fixture, &before, "after DEL");
}

#[test]
fn the_child_is_deleted_if_the_pod_takes_its_name_meanwhile() {
    for bonded in [false, true] {
        let fixture = of(Fixture::new(), bonded);
        let name = if bonded { "net1p1" } else { "net1" };
        let theirs = ethernet(7, name);
        fixture.kernel.set().pod_adds = Some(theirs.clone());
        let mut before = fixture.kernel.state();
        before.pod.push(theirs);
        let error = fixture.add("c1").unwrap_err();
        assert_eq!(error.code, Code::KERNEL);
        let step = format!("into the pod as {name}");
        assert!(error.msg.contains(&step), "{}", error.msg);
        assert_clean(&fixture, &before, name);
    }
}

#[test]
fn the_child_gets_another_index_if_the_pod_uses_its_index() {
    let fixture = Fixture::new();
    fixture.kernel.set().state.pod.push(ethernet(101, "eth0"));
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    assert_ne!(fixture.kernel.state().pod[1].index, 101);
    fixture.del("c1").unwrap();
    assert_clean(&fixture, &before, "after DEL");
}

#[test]
fn gc_deletes_an_unmoved_child_only_if_it_is_in_the_journal() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.kernel.set().state.host.push(in_between(50));
    fixture.gc(&[]).unwrap();
    assert_eq!(
        fixture.kernel.state().host.len(),
        2,
        "no evidence that its ADD has ended"
    );
    drop(fixture.entry("c1"));
    fixture.gc(&[]).unwrap();
    assert_clean(&fixture, &before, "after GC");
}

#[test]
fn attachments_with_the_same_group_keep_their_unmoved_children() {
    let fixture = Fixture::new();
    let other = Link {
        name: Mark::new("fabric", &attachment("c2")).temporary(0),
        ..in_between(50)
    };
    fixture.kernel.set().state.host.push(other.clone());
    fixture.entry("c1").begin(fixture.intent()).unwrap();
    fixture.del("c1").unwrap();
    assert!(fixture.kernel.state().host.contains(&other));
}

#[test]
fn a_failure_or_a_kill_at_any_step_of_direct_creation_leaves_nothing() {
    for bonded in [false, true] {
        let fixture = of(Fixture::new(), bonded).plain();
        a_failure_leaves_nothing(&fixture, Fault::Refused);
        a_failure_leaves_nothing(&fixture, Fault::AnswerLost);
        drop(fixture);
        let fixture = of(with_failing_del(), bonded).plain();
        after_a_kill(&fixture, |fixture, case| fixture.del("c1").expect(case));
        after_a_kill(&fixture, |fixture, case| fixture.gc(&[]).expect(case));
        after_a_kill(&fixture, |fixture, case| {
            fixture.kernel.set().state.pod_dies();
            fixture.del_without_netns("c1").expect(case);
        });
    }
}
