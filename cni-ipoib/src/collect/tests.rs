// SPDX-License-Identifier: Apache-2.0
use super::serve::serve_client;
use super::*;
use crate::device::fixture::{WAYS, add as add_device, fixture as device_fixture, host};
use crate::model::{Fixture, attachment, call_with};
use common::cni::dispatch::Plugin as _;
use common::collector::PodId;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;

const ALL: Reach = Reach {
    sysctls: true,
    drivers: true,
};

const ARGS: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=train-0;K8S_POD_UID=u-1";

fn pod() -> PodId {
    PodId {
        namespace: "default".to_owned(),
        name: "train-0".to_owned(),
        uid: "u-1".to_owned(),
    }
}

/// ADD for a container, as the kubelet's runtime calls it or, without `args`, as cnitool does.
fn add(fixture: &Fixture, container: &str, args: &str, ipam: &str) {
    let keys = json!({ "master": fixture.master, "mtu": 2000 });
    let mut keys = keys.as_object().unwrap().clone();
    if ipam == "ranges" {
        keys.insert("ipam".to_owned(), json!({ "type": ipam }));
    }
    let call = Call {
        path: vec![fixture.ipam.dir().to_owned()],
        ..call_with("cni-ipoib", Value::Object(keys), args)
    };
    fixture
        .plugin()
        .add(&call, &attachment(container), &fixture.pod.path())
        .unwrap();
}

/// Moves the path of the namespace. The model's is below `/proc`, that of a runtime is not.
fn move_to(fixture: &Fixture, container: &str, name: &str) {
    let path = fixture.state.path().join(name);
    fixture.amend_intent(container, |intent| intent.netns = path);
}

/// The namespace of the container ends without DEL.
fn die(fixture: &Fixture, container: &str) {
    move_to(fixture, container, "ended");
    fixture.kernel.set().state.pod_dies();
}

/// A node whose pod has the whole link `link` and an address of `rdma-ipam`.
fn with_device(link: &str) -> Fixture {
    let fixture = device_fixture(WAYS[0]);
    add_device(&fixture, link).unwrap();
    fixture.amend_intent("c1", |intent| {
        intent.pod = Some(pod());
        intent.ipam = Some(OWN_IPAM.to_owned());
    });
    fixture
}

fn listed(fixture: &Fixture) -> Vec<DeadAttachment> {
    match answer(&fixture.plugin().node, ALL, &Request::List) {
        Reply::Dead(dead) => dead,
        other => panic!("{other:?}"),
    }
}

fn ask(fixture: &Fixture, reach: Reach, dead: &DeadAttachment) -> Reply {
    ask_after(fixture, reach, dead, 0)
}

/// The same, `seconds` after the agent has first seen it unused.
fn ask_after(fixture: &Fixture, reach: Reach, dead: &DeadAttachment, seconds: u64) -> Reply {
    let request = Request::Collect {
        dead: dead.clone(),
        seconds,
    };
    answer(&fixture.plugin().node, reach, &request)
}

/// The attachment of container c1 as the agent names it.
fn dead(fixture: &Fixture) -> DeadAttachment {
    DeadAttachment {
        network: "fabric".to_owned(),
        attachment: attachment("c1"),
        netns_id: fixture.pod.id(),
        pod: pod(),
        replaced: false,
    }
}

fn is_kept(reply: &Reply, why: &str) {
    assert!(
        matches!(reply, Reply::Kept(text) if text.contains(why)),
        "{reply:?}"
    );
}

#[test]
fn a_link_that_the_kernel_returned_to_the_host_is_collected() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    add(&fixture, "c1", ARGS, "");
    die(&fixture, "c1");
    assert_ne!(fixture.kernel.state(), before);
    assert_eq!(listed(&fixture), [dead(&fixture)]);
    assert_eq!(ask(&fixture, ALL, &dead(&fixture)), Reply::Collected);
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.written_down(), [""; 0]);
    assert_eq!(listed(&fixture), []);
    // The DEL that comes after all finds nothing.
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(ask(&fixture, ALL, &dead(&fixture)), Reply::Collected);
}

/// A process holds the namespace open, as CRI-O does: the path is gone, and the kernel returns the link later.
#[test]
fn a_link_that_the_kernel_has_not_returned_is_awaited() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    add(&fixture, "c1", ARGS, "");
    move_to(&fixture, "c1", "ended");
    is_kept(&ask_after(&fixture, ALL, &dead(&fixture), 30), "has not returned");
    assert_eq!(listed(&fixture), [dead(&fixture)]);
    fixture.kernel.set().state.pod_dies();
    assert_eq!(ask(&fixture, ALL, &dead(&fixture)), Reply::Collected);
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.written_down(), [""; 0]);
}

/// A DEL that was killed may have deleted the link, so none returns.
#[test]
fn a_link_that_does_not_return_is_awaited_for_ten_minutes() {
    let fixture = Fixture::new();
    add(&fixture, "c1", ARGS, "");
    move_to(&fixture, "c1", "ended");
    is_kept(
        &ask_after(&fixture, ALL, &dead(&fixture), 599),
        "has not returned",
    );
    assert_eq!(ask_after(&fixture, ALL, &dead(&fixture), 600), Reply::Collected);
    assert_eq!(fixture.written_down(), [""; 0]);
}

#[test]
fn a_whole_link_of_a_dead_pod_is_restored() {
    for link in ["ib0", "ens1"] {
        let before = host(&device_fixture(WAYS[0]));
        let fixture = with_device(link);
        die(&fixture, "c1");
        assert_ne!(host(&fixture), before, "{link}");
        assert_eq!(ask(&fixture, ALL, &dead(&fixture)), Reply::Collected, "{link}");
        assert_eq!(host(&fixture), before, "{link}");
        assert_eq!(fixture.written_down(), [""; 0]);
    }
}

/// The DEL that releases the address awaits no child of that link.
#[test]
fn the_entry_of_a_restored_link_records_that_it_is_restored() {
    let fixture = device_fixture(WAYS[0]);
    add_device(&fixture, "ib0").unwrap();
    fixture.amend_intent("c1", |intent| intent.pod = Some(pod()));
    die(&fixture, "c1");
    assert_eq!(ask(&fixture, ALL, &dead(&fixture)), Reply::Collected);
    fixture.amend_intent("c1", |intent| assert!(intent.restored));
}

#[test]
fn a_link_with_sysctls_waits_for_the_runtime_where_the_collector_cannot_write_them() {
    let fixture = with_device("ens1");
    die(&fixture, "c1");
    let after = host(&fixture);
    let reach = Reach {
        sysctls: false,
        ..ALL
    };
    is_kept(&ask(&fixture, reach, &dead(&fixture)), "sysctls");
    assert_eq!((host(&fixture), fixture.written_down().len()), (after, 1));
}

#[test]
fn a_living_attachment_is_neither_listed_nor_removed() {
    let fixture = Fixture::new();
    add(&fixture, "c1", ARGS, "");
    symlink(fixture.pod.path(), fixture.state.path().join("alive")).unwrap();
    move_to(&fixture, "c1", "alive");
    let before = fixture.kernel.state();
    assert_eq!(listed(&fixture), []);
    is_kept(&ask(&fixture, ALL, &dead(&fixture)), "not proven gone");
    assert_eq!(
        (fixture.kernel.state(), fixture.written_down()),
        (before, vec!["c1".to_owned()])
    );
}

#[test]
fn a_namespace_that_the_collector_cannot_see_proves_nothing() {
    let fixture = Fixture::new();
    add(&fixture, "c1", ARGS, "");
    fs::write(fixture.state.path().join("not-propagated"), "").unwrap();
    for unseen in ["not-propagated", "no-directory/ended"] {
        move_to(&fixture, "c1", unseen);
        assert_eq!(listed(&fixture), [], "{unseen}");
        is_kept(&ask(&fixture, ALL, &dead(&fixture)), "not proven gone");
    }
    assert_eq!(fixture.written_down(), ["c1"]);
}

#[test]
fn an_attachment_without_a_pod_is_never_removed() {
    let fixture = Fixture::new();
    add(&fixture, "c1", "", "");
    die(&fixture, "c1");
    let after = fixture.kernel.state();
    assert_eq!(listed(&fixture), []);
    is_kept(&ask(&fixture, ALL, &dead(&fixture)), "another pod");
    assert_eq!((fixture.kernel.state(), fixture.written_down().len()), (after, 1));
}

#[test]
fn an_attachment_that_was_added_again_is_not_removed() {
    let fixture = Fixture::new();
    add(&fixture, "c1", ARGS, "");
    die(&fixture, "c1");
    let before = DeadAttachment {
        netns_id: (1, 1),
        ..dead(&fixture)
    };
    is_kept(&ask(&fixture, ALL, &before), "another pod or namespace");
    let of_another = DeadAttachment {
        pod: PodId {
            uid: "u-2".to_owned(),
            ..pod()
        },
        ..dead(&fixture)
    };
    is_kept(&ask(&fixture, ALL, &of_another), "another pod or namespace");
    assert_eq!(fixture.written_down(), ["c1"]);
}

#[test]
fn an_attachment_that_a_runtime_works_on_is_left_to_it() {
    let fixture = Fixture::new();
    add(&fixture, "c1", ARGS, "");
    die(&fixture, "c1");
    let at_work = fixture.entry("c1");
    is_kept(&ask(&fixture, ALL, &dead(&fixture)), "another call");
    drop(at_work);
    assert_eq!(ask(&fixture, ALL, &dead(&fixture)), Reply::Collected);
}

#[test]
fn a_pod_with_a_living_sandbox_is_marked_as_replaced() {
    let fixture = Fixture::new();
    add(&fixture, "c1", ARGS, "");
    die(&fixture, "c1");
    let mut entry = fixture.entry("c2");
    entry
        .begin(Intent {
            pod: Some(pod()),
            ..fixture.intent()
        })
        .unwrap();
    drop(entry);
    let replaced = DeadAttachment {
        replaced: true,
        ..dead(&fixture)
    };
    assert_eq!(listed(&fixture), [replaced]);
}

#[test]
fn the_address_of_another_ipam_plugin_waits_for_del() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    add(&fixture, "c1", ARGS, "ranges");
    die(&fixture, "c1");
    assert_eq!(ask(&fixture, ALL, &dead(&fixture)), Reply::Collected);
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.ipam.verbs(), ["ADD"]);
    assert_eq!(
        (fixture.written_down(), listed(&fixture)),
        (vec!["c1".to_owned()], vec![])
    );
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
    assert_eq!(fixture.written_down(), [""; 0]);
}

#[test]
fn an_interrupted_add_waits_while_another_ipam_plugin_may_run() {
    let fixture = Fixture::new();
    let intent = Intent {
        netns: fixture.state.path().join("ended"),
        ipam: Some("ranges".to_owned()),
        pod: Some(pod()),
        made: vec![],
        device_info: Some(fixture.info_file()),
        ..fixture.intent()
    };
    fixture.entry("c1").begin(intent).unwrap();
    is_kept(&ask(&fixture, ALL, &dead(&fixture)), "ADD was interrupted");
    assert_eq!(fixture.written_down(), ["c1"]);
}

#[test]
fn a_failure_leaves_the_attachment_in_the_journal_for_the_next_request() {
    let before = host(&device_fixture(WAYS[0]));
    let fixture = with_device("ens1");
    move_to(&fixture, "c1", "ended");
    let away = std::mem::take(&mut fixture.kernel.set().state.pod);
    let reply = ask(&fixture, ALL, &dead(&fixture));
    assert!(
        matches!(&reply, Reply::Failed(why) if why.contains("did not come back")),
        "{reply:?}"
    );
    assert_eq!(listed(&fixture).len(), 1);
    fixture.kernel.set().state.pod = away;
    fixture.kernel.set().state.pod_dies();
    assert_eq!(ask(&fixture, ALL, &dead(&fixture)), Reply::Collected);
    assert_eq!(host(&fixture), before);
}

#[test]
fn a_network_that_is_a_path_reaches_no_other_directory() {
    let fixture = Fixture::new();
    let of_a_path = DeadAttachment {
        network: "../fabric".to_owned(),
        ..dead(&fixture)
    };
    let reply = ask(&fixture, ALL, &of_a_path);
    assert!(matches!(reply, Reply::Failed(_)), "{reply:?}");
}

/// A request that an agent of another version or a stolen agent sends. Each gets one reply, which is one line.
#[test]
fn no_request_removes_a_living_attachment() {
    let fixture = Fixture::new();
    add(&fixture, "c1", ARGS, "");
    symlink(fixture.pod.path(), fixture.state.path().join("alive")).unwrap();
    move_to(&fixture, "c1", "alive");
    let before = fixture.kernel.state();
    let node = fixture.plugin().node;
    common::mutate::cases("collector requests", 20_000, |case, random| {
        let requests = [
            Request::List,
            Request::Collect {
                dead: dead(&fixture),
                seconds: 0,
            },
        ];
        let mut request = serde_json::to_value(random.pick(&requests)).unwrap();
        if !random.one_in(8) {
            common::mutate::json(random, &mut request);
        }
        let mut line = request.to_string().into_bytes();
        if random.one_in(2) {
            common::mutate::bytes(random, &mut line);
        }
        let reply = served(&node, &line);
        assert!(reply.ends_with(b"\n"), "{case}");
        let reply: Reply = serde_json::from_slice(&reply).unwrap_or_else(|e| panic!("{case}: {e}"));
        // An attachment that does not exist counts as collected.
        assert!(
            !matches!(&reply, Reply::Dead(dead) if !dead.is_empty()),
            "{case}: {reply:?}"
        );
        assert_eq!(fixture.kernel.state(), before, "{case}");
        assert_eq!(fixture.written_down(), ["c1"], "{case}");
    });
}

/// What the collector replies to the line of a client, which sends nothing else.
fn served(node: &Node, line: &[u8]) -> Vec<u8> {
    let (mut client, server) = UnixStream::pair().unwrap();
    client.write_all(line).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    serve_client(node, ALL, &server).unwrap();
    let mut reply = Vec::new();
    BufReader::new(client).read_until(b'\n', &mut reply).unwrap();
    reply
}
