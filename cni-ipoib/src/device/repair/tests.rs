// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::device::fixture::{WAYS, fixture};
use crate::device::snapshot;
use crate::kernel::Side;
use std::path::PathBuf;

fn snapshot_of(name: &str, directory: &str) -> Snapshot {
    let mut kernel = fixture(WAYS[0]).kernel.clone();
    let link = kernel.link(Side::Host, name).unwrap().unwrap();
    snapshot::take(&mut kernel, &link, Some(directory.into()), Vec::new()).unwrap()
}

#[test]
fn a_returned_link_matches_by_its_former_identity() {
    let ens1 = snapshot_of("ens1", "/sys/devices/pci0000:3a/0000:17:00.0");
    let ib0 = snapshot_of("ib0", "/sys/devices/pci0000:3a/0000:3b:00.0");
    let named = |name: &str| ResolvedMaster::Named(name.to_owned());
    let device = |id: &str| ResolvedMaster::Device(id.to_owned());
    let directory = |path: &str| ResolvedMaster::KernelPath(PathBuf::from(path));
    let address = |text: &str| ResolvedMaster::Address(text.parse().unwrap());
    let table = [
        (named("ens1"), true, false),
        (named("ens1np0"), true, false),
        (named("rail0"), false, true),
        (named("net1"), false, false),
        (device("0000:17:00.0"), true, false),
        (device("0000:3b:00.0"), false, true),
        (device("17:00.0"), false, false),
        (directory("/sys/devices/pci0000:3a/0000:17:00.0"), true, false),
        (address("b8:3f:d2:00:00:06"), true, false),
        (address("02:00:00:00:00:06"), true, false),
        (address("b8:3f:d2:00:00:07"), false, false),
        (
            address("00:00:00:00:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e"),
            false,
            true,
        ),
        (ResolvedMaster::DefaultRoute, false, false),
        (ResolvedMaster::Unset, false, false),
    ];
    for (master, is_ens1, is_ib0) in table {
        assert_eq!(
            (means(&master, &ens1), means(&master, &ib0)),
            (is_ens1, is_ib0),
            "{master:?}"
        );
    }
}

#[test]
fn a_journal_that_cannot_be_read_names_no_returned_link() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join("whole"), "").unwrap();
    assert!(Owners::read(state.path()).is_empty());
}
