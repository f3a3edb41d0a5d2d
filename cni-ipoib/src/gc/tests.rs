// SPDX-License-Identifier: Apache-2.0
use crate::detach::tests::{looks_of_one_wait, wait_longer};
use crate::journal::{Journal, loads};
use crate::model::{Fault, Fixture, Ipam, Pod, attachment};
use common::cni::dispatch::Plugin as _;
use common::cni::{Attachment, Code};
use common::lock::wait_until_awaited;
use serde_json::json;
use std::fs;
use std::thread;
use std::time::Duration;

/// The containers that GC of the IPAM plugin must keep.
fn kept(fixture: &Fixture) -> Vec<String> {
    let conf = fixture.ipam.conf_of("GC");
    let list = conf["cni.dev/valid-attachments"].as_array().unwrap();
    list.iter()
        .map(|of| of["containerID"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn gc_removes_invalid_attachments_and_keeps_valid_ones() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    fixture.gc(&["c1"]).unwrap();
    assert_eq!(fixture.kernel.state().pod.len(), 1);
    assert_eq!(
        (fixture.ipam.verbs(), kept(&fixture)),
        (vec!["ADD".to_owned(), "GC".to_owned()], vec!["c1".to_owned()])
    );
    fixture.gc(&["c2"]).unwrap();
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.written_down(), [""; 0]);
    assert_eq!(fixture.ipam.calls()[2..], ["DEL c1 net1", "GC"]);
    assert_eq!(kept(&fixture), ["c2"]);
}

/// A release that keeps no loads ran DEL.
#[test]
fn gc_corrects_the_loads_after_an_older_release() {
    let fixture = Fixture::new();
    for container in ["c1", "c2"] {
        fixture.entry(container).begin(fixture.intent()).unwrap();
    }
    let state = fixture.state.path();
    fs::remove_file(state.join("attachments/fabric/c1@net1")).unwrap();
    assert_eq!(loads(state, None)["ib0"].all, 2);
    fixture.gc(&["c2"]).unwrap();
    assert_eq!(loads(state, None)["ib0"].all, 1);
    fixture.gc(&[]).unwrap();
    assert_eq!(loads(state, None)["ib0"].all, 0);
}

#[test]
fn gc_skips_an_attachment_that_another_call_works_on() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let before = fixture.kernel.state();
    let at_work = fixture.entry("c1");
    fixture.gc(&[]).unwrap();
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.ipam.verbs(), ["ADD", "GC"]);
    assert_eq!(
        kept(&fixture),
        ["c1"],
        "nor may the IPAM plugin take its addresses"
    );
    drop(at_work);
    fixture.gc(&[]).unwrap();
    assert!(fixture.kernel.state().pod.is_empty());
    assert_eq!(kept(&fixture), [""; 0]);
}

#[test]
fn gc_keeps_the_attachment_of_an_add_that_ends_meanwhile() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let before = fixture.kernel.state();
    let at_work = fixture.entry("c1");
    // GC lists the links after it has skipped the attachment, and before it waits for ADDs to end.
    fixture.kernel.set().ends_at_list = Some(Box::new(at_work));
    fixture.gc(&[]).unwrap();
    assert!(fixture.kernel.get().ends_at_list.is_none());
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.written_down(), ["c1"]);
}

#[test]
fn gc_leaves_a_returned_link_to_the_call_that_works_on_it() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    fixture.kernel.set().state.pod_dies();
    let at_work = fixture.entry("c1");
    fixture.gc(&[]).unwrap();
    assert_eq!(fixture.kernel.state().host.len(), 2);
    drop(at_work);
}

#[test]
fn gc_removes_a_returned_link_without_a_journal_entry() {
    for with_file in [true, false] {
        let fixture = Fixture::new();
        let before = fixture.kernel.state();
        fixture.add("c1").unwrap();
        fixture.kernel.set().state.pod_dies();
        if !with_file {
            fs::remove_dir_all(fixture.state.path().join("attachments")).unwrap();
        }
        fixture.gc(&[]).unwrap();
        assert_eq!(fixture.kernel.state(), before);
        assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL", "GC"]);
    }
}

#[test]
fn gc_waits_once_for_many_dead_namespaces() {
    const DEAD: usize = 12;
    let mut fixture = Fixture::new();
    let journal = Journal::new(fixture.state.path(), "fabric");
    for number in 0..DEAD {
        let of = attachment(&format!("c{number}"));
        journal.open(&of).unwrap().begin(fixture.intent()).unwrap();
    }
    fixture.pod = Pod::new();
    fixture.gc(&[]).unwrap();
    assert_eq!(fixture.written_down(), [""; 0]);
    let looks = fixture.kernel.get().log.len();
    let most = looks_of_one_wait() + DEAD;
    assert!(looks <= most, "{looks} looks at the host's links, {most} at most");
}

#[test]
fn gc_deletes_each_link_that_the_kernel_returns_while_gc_waits() {
    let _longer = wait_longer();
    for changed in [false, true] {
        let mut fixture = Fixture::new();
        let before = fixture.kernel.state();
        for ifname in ["net1", "net2", "net3"] {
            let of = Attachment {
                ifname: ifname.parse().unwrap(),
                ..attachment("c1")
            };
            let (call, netns) = (fixture.call(&json!({})), fixture.pod.path());
            fixture.plugin().add(&call, &of, &netns).unwrap();
        }
        fixture.pod = Pod::new();
        {
            let mut model = fixture.kernel.set();
            let mut links = std::mem::take(&mut model.state.pod);
            model.state.pod_dies();
            for link in links.iter_mut().filter(|_| changed) {
                (link.alias, link.group) = (Some("mine".to_owned()), 7);
            }
            // The first attachment's link returns last, and the third's while GC handles the second.
            model.late = [9, 14, 5].into_iter().zip(links).collect();
        }
        fixture.ipam.forget_calls();
        fixture.gc(&[]).unwrap();
        assert!(
            fixture.kernel.get().late.is_empty(),
            "changed by the pod: {changed}"
        );
        assert_eq!(fixture.kernel.state(), before, "changed by the pod: {changed}");
        assert_eq!(fixture.written_down(), [""; 0]);
        assert_eq!(fixture.ipam.verbs(), ["DEL", "DEL", "DEL", "GC"]);
    }
}

#[test]
fn a_link_that_cannot_be_deleted_keeps_its_addresses() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    fixture.kernel.fail(Fault::Every("delete"));
    let error = fixture.gc(&[]).unwrap_err();
    assert_eq!(
        (error.code, error.msg.as_str()),
        (Code::KERNEL, "cannot delete net1 in the pod")
    );
    assert_eq!(fixture.ipam.verbs(), ["ADD", "GC"]);
    assert_eq!(kept(&fixture), ["c1"]);
    assert_eq!(fixture.written_down(), ["c1"]);
}

#[test]
fn gc_reports_every_error_and_continues() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let second = fixture.add("c2");
    assert_eq!(second.unwrap_err().code, Code::IFNAME_IN_USE);
    let journal = Journal::new(fixture.state.path(), "fabric");
    let written = fixture.entry("c1").intent.clone().unwrap();
    journal.open(&attachment("c0")).unwrap().begin(written).unwrap();
    fixture.ipam.fail(true);
    let error = fixture.gc(&[]).unwrap_err();
    assert_eq!(
        (error.code, error.msg.as_str()),
        (Code(99), "ranges: no; ranges: no; ranges: no")
    );
    assert!(fixture.kernel.state().pod.is_empty(), "both links were tried");
    assert_eq!(fixture.written_down(), ["c0", "c1"]);
}

#[test]
fn attachments_of_other_networks_stay() {
    let fixture = Fixture::new();
    fixture.add_with("c1", &json!({"name": "other"})).unwrap();
    let before = fixture.kernel.state();
    fixture.gc(&[]).unwrap();
    assert_eq!(fixture.kernel.state(), before);
    fixture.kernel.set().state.pod_dies();
    fixture.gc(&[]).unwrap();
    assert_eq!(fixture.kernel.state().host.len(), 2);
    let other = Journal::new(fixture.state.path(), "other");
    assert_eq!(other.attachments().unwrap(), [attachment("c1")]);
    assert_eq!(fixture.ipam.verbs(), ["ADD", "GC", "GC"]);
}

#[test]
fn gc_succeeds_without_a_state_directory() {
    let fixture = Fixture::new();
    fixture.gc(&[]).unwrap();
    assert_eq!(fixture.ipam.verbs(), ["GC"]);
    assert_eq!(fixture.written_down(), [""; 0]);
}

#[test]
fn with_an_unreadable_state_directory_no_address_is_collected() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    fs::remove_dir_all(fixture.state.path().join("attachments")).unwrap();
    fs::write(fixture.state.path().join("attachments"), "in the way").unwrap();
    let error = fixture.gc(&[]).unwrap_err();
    assert_eq!(error.code, Code::IO);
    assert_eq!(
        fixture.ipam.verbs(),
        ["ADD"],
        "the owners of the addresses are unknown"
    );
}

#[test]
fn no_add_begins_while_the_ipam_plugin_collects() {
    let fixture = Fixture::with(Ipam::running(
        "[ $CNI_COMMAND = GC ] && until [ -e end ]; do sleep 0.01; done && touch collected; exit 0",
    ));
    let (journal, ipam) = (
        Journal::new(fixture.state.path(), "fabric"),
        fixture.ipam.dir().to_owned(),
    );
    let add = thread::spawn({
        let ipam = ipam.clone();
        move || {
            while !ipam.join("conf.GC").exists() {
                thread::sleep(Duration::from_millis(2));
            }
            let _entry = journal.admit(&attachment("c2")).unwrap();
            ipam.join("collected").exists()
        }
    });
    let gate = fixture.state.path().join("attachments/fabric");
    thread::spawn(move || {
        while !ipam.join("conf.GC").exists() {
            thread::sleep(Duration::from_millis(2));
        }
        wait_until_awaited(&gate);
        fs::write(ipam.join("end"), "").unwrap();
    });
    fixture.gc(&[]).unwrap();
    assert!(
        add.join().unwrap(),
        "the ADD began before the IPAM plugin had ended"
    );
}

#[test]
fn del_does_not_wait_for_gc() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let journal = Journal::new(fixture.state.path(), "fabric");
    let _shut = journal.shut().unwrap();
    fixture.del("c1").unwrap();
}
