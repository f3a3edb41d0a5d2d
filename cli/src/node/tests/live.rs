// SPDX-License-Identifier: Apache-2.0
//! The findings that only the live node has.

use crate::node::collect::{has_listener, has_no_peermem};
use crate::node::facts::{LiveFacts, NodeFacts};
use crate::node::{advice, check};
use std::fs;
use std::os::unix::net::UnixListener;

/// The finding about `subject` on a node with these facts.
fn described(live: LiveFacts, subject: &str) -> Option<String> {
    let facts = NodeFacts {
        live: Some(live),
        ..NodeFacts::default()
    };
    let findings = check::findings(&facts, &advice::advise(&facts));
    let one = findings.into_iter().find(|finding| finding.subject == subject);
    let words = one?.describe();
    Some(words.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn a_missing_umad_file_is_reported_with_the_device_plugin_that_needs_it() {
    let subject = "/dev/infiniband/umad*";
    let without = LiveFacts {
        has_no_umad: true,
        ..LiveFacts::default()
    };
    let text = described(without, subject).unwrap();
    assert!(
        text.starts_with("INFO") && text.contains("modprobe ib_umad;"),
        "{text}"
    );
    assert_eq!(described(LiveFacts::default(), subject), None);
}

#[test]
fn gpus_without_peermem_are_reported_with_the_missing_module() {
    let without = LiveFacts {
        has_no_peermem: true,
        ..LiveFacts::default()
    };
    let text = described(without, "nvidia_peermem").unwrap();
    assert!(
        text.starts_with("INFO") && text.contains("modprobe nvidia-peermem;"),
        "{text}"
    );
    assert_eq!(described(LiveFacts::default(), "nvidia_peermem"), None);
}

#[test]
fn peermem_is_missed_only_beside_the_gpu_driver() {
    let sys = tempfile::tempdir().unwrap();
    let add = |path: &str| fs::create_dir_all(sys.path().join(path)).unwrap();
    assert!(!has_no_peermem(sys.path()));
    add("module/nvidia");
    assert!(has_no_peermem(sys.path()));
    // The module of the GPU driver, and those of nv_peer_mem.
    for path in [
        "module/nvidia_peermem",
        "kernel/mm/memory_peers/nv_mem",
        "kernel/mm/memory_peers/nv_mem_nc",
    ] {
        add(path);
        assert!(!has_no_peermem(sys.path()), "{path}");
        fs::remove_dir(sys.path().join(path)).unwrap();
    }
}

/// An agent that is killed by signal 9 or for lack of memory removes nothing.
#[test]
fn an_agent_that_was_killed_is_missing_although_its_socket_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    assert!(!has_listener(&path));
    let agent = UnixListener::bind(&path).unwrap();
    assert!(has_listener(&path));
    drop(agent);
    assert!(path.exists() && !has_listener(&path));
    let missing = LiveFacts {
        agent_is_missing: true,
        ..LiveFacts::default()
    };
    let text = described(missing, "rdmanet-agent").unwrap();
    assert!(
        text.starts_with("WARN") && text.contains("no process listens"),
        "{text}"
    );
}
