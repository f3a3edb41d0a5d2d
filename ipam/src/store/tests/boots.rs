// SPDX-License-Identifier: Apache-2.0
//! Directories of other boots: those that are removed, foreign ones, and ones in use.

use super::single;
use crate::testing::{BOOT_ID, Fixture, assert_error};
use common::cni::Code;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A namespace that exists as long as this test runs.
const LIVING: &str = "/proc/self/ns/net";

const OTHER: &str = "b0071111-0000-4000-8000-000000000002";

/// From here on calls read another boot id.
fn read_another_boot_id(fixture: &Fixture) {
    OTHER.clone_into(&mut fixture.plugin.clock.boot.borrow_mut());
}

/// `boot-important-backup` in a foreign dataDir was removed with all in it.
#[test]
fn a_directory_that_only_looks_like_a_boots_is_kept() {
    let fixture = single("10.0.0.0/24");
    let foreign = [
        "boot-important-backup/file",
        "boot-0f0f0f0f-0000-4000-8000-000000000003/file",
        "boot-0f0f0f0f-0000-4000-8000-000000000004/leases",
        "boot-0F0F0F0F/leases/x",
    ];
    for path in foreign {
        let path = fixture.network().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "precious").unwrap();
    }
    fixture.add("a");
    for path in foreign {
        assert_eq!(
            fs::read(fixture.network().join(path)).unwrap(),
            b"precious",
            "{path}"
        );
    }
}

#[test]
fn a_foreign_directory_in_place_of_ours_is_refused_and_kept() {
    let fixture = single("10.0.0.0/24");
    let file = fixture.network().join("boot-unfinished/leases/file");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "precious").unwrap();
    let error = fixture.try_add("a").unwrap_err();
    assert_error(&error, Code::STORE_CORRUPT, &["boot-unfinished", "move it away"]);
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    fs::remove_file(file).unwrap();
    fixture.add("a");
}

#[test]
fn another_boot_id_does_not_free_the_address_of_a_living_namespace() {
    let fixture = single("10.0.0.4/32");
    fixture.add_in("a", Path::new(LIVING)).unwrap();
    let (lease, address) = (fixture.file("leases/a@eth0"), fixture.file("addresses/10.0.0.4"));
    read_another_boot_id(&fixture);
    for error in [
        fixture.try_add("b").map(drop).unwrap_err(),
        fixture.del("a").unwrap_err(),
        fixture.gc(&[]).unwrap_err(),
    ] {
        assert_eq!(error.code, Code::STORE_CORRUPT, "{error}");
        for part in [
            LIVING,
            OTHER,
            "LXC",
            "/proc/sys/kernel/random/boot_id",
            "remove that directory",
        ] {
            assert!(error.msg.contains(part), "{error} lacks {part:?}");
        }
    }
    assert_eq!(fixture.status().unwrap_err().code, Code::NOT_AVAILABLE);
    assert!(lease.exists() && address.exists());
    fixture
        .del("unknown")
        .expect("DEL of an attachment without a lease has nothing to do");
    BOOT_ID.clone_into(&mut fixture.plugin.clock.boot.borrow_mut());
    fixture.del("a").unwrap();
}

#[test]
fn the_agent_sees_living_leases_of_another_boot_id() {
    let fixture = single("10.0.0.0/24");
    fixture.add_in("a", Path::new(LIVING)).unwrap();
    read_another_boot_id(&fixture);
    fixture.with_store(|store| {
        assert_eq!(store.leases().unwrap_err().code, Code::STORE_CORRUPT);
        assert_eq!(store.owners().unwrap_err().code, Code::STORE_CORRUPT);
        assert!(store.enter_existing().is_err());
    });
}

#[test]
fn a_lease_from_the_future_proves_another_kernel() {
    let fixture = single("10.0.0.4/32");
    fixture.add_in("a", Path::new(LIVING)).unwrap();
    read_another_boot_id(&fixture);
    fixture.plugin.clock.since_boot.set(Duration::from_secs(20));
    assert_eq!(fixture.add("b"), ["10.0.0.4"]);
}

#[test]
fn leases_of_an_earlier_boot_without_namespaces_are_removed() {
    let fixture = single("10.0.0.4/32");
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("cni-1");
    fs::write(&gone, "").unwrap();
    fixture.add_in("a", &gone).unwrap();
    fs::remove_file(&gone).unwrap();
    read_another_boot_id(&fixture);
    fixture.del("a").unwrap();
    assert_eq!(fixture.add("b"), ["10.0.0.4"]);
}
