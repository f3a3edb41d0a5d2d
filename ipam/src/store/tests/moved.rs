// SPDX-License-Identifier: Apache-2.0
//! A container that restarts under its id in another network namespace.

use super::{dual, single};
use crate::testing::{Fault, Fixture};
use common::cni::Code;
use nix::libc::{EIO, ENOSPC};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Two files that represent two namespaces.
fn namespaces() -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::write(&old, "").unwrap();
    fs::write(&new, "").unwrap();
    (dir, old, new)
}

/// The current namespace in the lease of `id`, read as an administrator reads it: the last line that contains one.
fn netns_in(fixture: &Fixture, id: &str) -> String {
    let text = fs::read_to_string(fixture.file(&format!("leases/{id}@eth0"))).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut paths = lines.filter_map(|line| Some(line["netns"]["path"].as_str()?.to_owned()));
    paths.next_back().unwrap()
}

fn lines_of(fixture: &Fixture, id: &str) -> usize {
    let text = fs::read_to_string(fixture.file(&format!("leases/{id}@eth0"))).unwrap();
    text.lines().count()
}

#[test]
fn a_repeated_add_in_another_namespace_moves_the_lease_there() {
    let fixture = dual(3);
    let (_dir, old, new) = namespaces();
    let first = fixture.add_in("a", &old).unwrap();
    assert_eq!(fixture.add_in("a", &old).unwrap(), first);
    assert_eq!(lines_of(&fixture, "a"), 1);
    assert_eq!(
        fixture.add_in("a", &new).unwrap(),
        first,
        "the addresses are the same"
    );
    assert_eq!(netns_in(&fixture, "a"), new.display().to_string());
    assert_eq!(fixture.add_in("a", &new).unwrap(), first);
    assert_eq!(lines_of(&fixture, "a"), 2);
    fixture.assert_sound("after the move");
    fixture.check("a", &first).unwrap();
    fixture.del("a").unwrap();
    fixture.assert_sound("after DEL of a moved lease");
    assert_eq!(fixture.names("resting").len(), 2);
}

#[test]
fn a_moved_lease_is_younger_than_a_gc_that_began_before() {
    let fixture = single("10.0.0.0/24");
    let (_dir, old, new) = namespaces();
    fixture.add_in("a", &old).unwrap();
    fixture.pass(std::time::Duration::from_secs(5));
    fixture.add_in("a", &new).unwrap();
    let lease = fixture.with_store(|store| store.lease(&crate::testing::attachment("a")).unwrap().unwrap());
    assert_eq!(lease.since_boot, std::time::Duration::from_secs(1005));
}

/// The agent has evaluated the old namespace, and ADD is repeated before the agent takes the lock.
#[test]
fn the_end_of_the_old_namespace_does_not_end_a_moved_lease() {
    let fixture = single("10.0.0.0/24");
    let (_dir, old, new) = namespaces();
    fixture.add_in("a", &old).unwrap();
    fixture.with_store(|store| {
        let seen = store.leases().unwrap().intact.remove(0);
        fixture.add_in("a", &new).unwrap();
        let locked = store.enter_existing().unwrap().unwrap();
        assert!(!locked.release_unchanged(&seen).unwrap());
        drop(locked);
        let seen = store.leases().unwrap().intact.remove(0);
        let locked = store.enter_existing().unwrap().unwrap();
        assert!(locked.release_unchanged(&seen).unwrap());
    });
}

#[test]
fn a_failed_or_killed_move_leaves_the_lease_intact() {
    let faults = [
        Fault::Fail { at: 0, errno: EIO },
        Fault::Fail { at: 0, errno: ENOSPC },
        Fault::Die { at: 0, torn: false },
        Fault::Die { at: 0, torn: true },
        Fault::ReadOnly,
    ];
    for fault in faults {
        let fixture = dual(3);
        let (_dir, old, new) = namespaces();
        let first = fixture.add_in("a", &old).unwrap();
        fixture.fault(fault);
        // An address whose lease names a dead namespace could be released, so ADD must not succeed.
        let error = fixture.add_in("a", &new).unwrap_err();
        assert_eq!(error.code, Code::IO, "{fault:?}: {error}");
        fixture.fault(Fault::None);
        assert_eq!(netns_in(&fixture, "a"), old.display().to_string(), "{fault:?}");
        assert_eq!(fixture.add_in("a", &new).unwrap(), first, "{fault:?}");
        assert_eq!(netns_in(&fixture, "a"), new.display().to_string(), "{fault:?}");
        fixture.assert_sound(&format!("{fault:?}"));
        fixture.fault(Fault::Die { at: 1, torn: true });
        let _ = fixture.del("a");
        fixture.fault(Fault::None);
        fixture.del("a").unwrap();
        assert_eq!(
            fixture.names("resting").len(),
            2,
            "{fault:?}: the end of the lease is known"
        );
        fixture.assert_sound(&format!("{fault:?}"));
    }
}

#[test]
fn a_missing_namespace_is_dropped_from_the_lease() {
    let fixture = single("10.0.0.0/24");
    let (_dir, old, _) = namespaces();
    fixture.add_in("a", &old).unwrap();
    fixture.add_in("a", Path::new("/no/such/netns")).unwrap();
    let text = fs::read_to_string(fixture.file("leases/a@eth0")).unwrap();
    assert!(!text.lines().last().unwrap().contains("netns"), "{text}");
}
