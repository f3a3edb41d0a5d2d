// SPDX-License-Identifier: Apache-2.0
//! The directory of a test's node.

use nix::mount::{MsFlags, mount};
use std::fs;
use tests::Node;

#[test]
fn removing_a_test_node_keeps_the_contents_of_its_mounts() {
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("somebody-elses");
    fs::write(&file, "").unwrap();
    let mut directory = None;
    Node::run(|node| {
        let inside = node.path("inside");
        fs::create_dir(&inside).unwrap();
        for _ in 0..2 {
            mount(
                Some(outside.path()),
                &inside,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )
            .unwrap();
        }
        assert!(inside.join("somebody-elses").exists());
        directory = Some(node.path(""));
    });
    assert!(file.exists(), "removed through a mount");
    assert!(!directory.unwrap().exists());
}
