// SPDX-License-Identifier: Apache-2.0
//! Data directories that cannot exist: ADD refuses them, and DEL has nothing to do.

use crate::testing::Fixture;
use common::cni::Code;
use serde_json::json;
use std::path::Path;

#[test]
fn del_succeeds_for_every_data_directory_that_add_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let loops = scratch.path().join("loop");
    std::os::unix::fs::symlink(&loops, &loops).unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    // Short enough for the directory of the boot, too long for the files in it (PATH_MAX is 4,096).
    let mut nearly = scratch.path().display().to_string();
    while nearly.len() < 4038 {
        nearly.push_str("/d");
    }
    let places = [
        format!("/{}", "a".repeat(300)),
        format!("/{}", vec!["directory"; 512].join("/")),
        loops.display().to_string(),
        file.display().to_string(),
        "/tmp/a\0b".to_owned(),
        nearly,
    ];
    for (name, pool) in [("ranges", false), ("pool", true)] {
        for place in &places {
            let mut fixture = Fixture::new(&json!(if pool {
                json!({"pool": "rail0"})
            } else {
                json!({"subnet": "10.0.0.0/24"})
            }));
            fixture.ipam["dataDir"] = json!(place);
            let start: String = place.chars().take(40).collect();
            if !pool {
                let error = fixture.add_in("a", Path::new("/netns")).unwrap_err();
                assert_eq!(error.code, Code::IO, "{name} {start}: {error}");
            }
            fixture
                .del("a")
                .unwrap_or_else(|e| panic!("{name} {start}: {e:?}"));
            fixture
                .del("a")
                .unwrap_or_else(|e| panic!("{name} {start}: {e:?}"));
            fixture
                .gc(&[])
                .unwrap_or_else(|e| panic!("{name} {start}: {e:?}"));
        }
    }
}
