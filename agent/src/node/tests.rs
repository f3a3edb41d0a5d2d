// SPDX-License-Identifier: Apache-2.0
use super::*;
use api::accepted_pool::Writer;
use api::testing::small_pool;
use ipam::clock::Clock;
use ipam::store::Identity;
use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The node's disk with one failing operation: the one that reduces `left` to 0.
struct Failing {
    left: AtomicI64,
}

impl Failing {
    fn count(&self) -> io::Result<NodeDisk> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(io::Error::from_raw_os_error(28)),
            _ => Ok(NodeDisk),
        }
    }
}

impl Disk for Failing {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.count()?.read(path)
    }
    fn identity(&self, path: &Path) -> io::Result<Identity> {
        NodeDisk.identity(path)
    }
    fn list(&self, path: &Path, most: usize) -> io::Result<Vec<OsString>> {
        self.count()?.list(path, most)
    }
    fn shared(&self, path: &Path) -> io::Result<Option<String>> {
        NodeDisk.shared(path)
    }
    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        // A full disk writes only a part of the file.
        self.count().inspect_err(|_| {
            let _ = NodeDisk.create(path, &content[..content.len() / 2]);
        })?;
        NodeDisk.create(path, content)
    }
    fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.count()?.overwrite(path, content)
    }
    fn append(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.count()?.append(path, content)
    }
    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        self.count()?.link(file, name)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.count()?.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.count()?.unlink(path)
    }
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.count()?.make_directory(path)
    }
    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.count()?.remove_tree(path)
    }
    fn sync(&self, path: &Path) -> io::Result<()> {
        self.count()?.sync(path)
    }
}

fn file(blocks: &[&str]) -> PoolFile {
    let writer = Writer {
        owner: block::Owner {
            node: "a".into(),
            uid: "uid-a".into(),
        },
        boot_id: KernelClock.boot_id().unwrap(),
        quarantine: Duration::from_secs(600),
    };
    let local = LocalBlock {
        epoch: 1,
        mode: Mode::Active,
    };
    PoolFile {
        blocks: blocks
            .iter()
            .map(|cidr| entry(&format!("block-{cidr}"), cidr.parse().unwrap(), local))
            .collect(),
        ..small_pool().file(&writer, None, ipam::pool::Counters::default())
    }
}

async fn write(stores: &Stores, wanted: PoolFile) -> Result<bool, Error> {
    let pool = wanted.pool.clone();
    stores.edit(&pool, move |_, _| Ok(Some(wanted))).await
}

#[tokio::test]
async fn a_disk_error_at_any_step_leaves_the_old_or_the_new_pool_file() {
    let (before, after) = (file(&["10.1.0.0/28"]), file(&["10.1.0.0/28", "10.1.0.16/28"]));
    let mut failures = 0;
    for step in 0..100 {
        let dir = tempfile::tempdir().unwrap();
        let good = Stores::new(dir.path().to_owned());
        write(&good, before.clone()).await.unwrap();
        let bad = Stores {
            disk: Arc::new(Failing {
                left: AtomicI64::new(step),
            }),
            ..good.clone()
        };
        let written = write(&bad, after.clone()).await;
        let there = good
            .holdings(&before.pool, Vec::new())
            .await
            .unwrap()
            .file
            .unwrap();
        assert!(there == before || there == after, "after step {step}: {there:?}");
        match written {
            Ok(_) => assert_eq!(there, after, "reported as written at step {step}"),
            Err(error) => {
                failures += 1;
                assert!(!error.msg.is_empty());
            }
        }
        write(&good, after.clone()).await.unwrap();
        assert_eq!(
            good.holdings(&before.pool, Vec::new())
                .await
                .unwrap()
                .file
                .unwrap(),
            after
        );
        if step > 3 * (failures + 1) {
            break;
        }
    }
    // At least these operations failed: write, sync, rename, and sync of the directory.
    assert!(failures >= 4, "only {failures} operations failed");
}

#[tokio::test]
async fn a_cancelled_edit_of_the_pool_file_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let stores = Stores::new(dir.path().to_owned());
    let before = file(&["10.1.0.0/28"]);
    assert!(write(&stores, before.clone()).await.unwrap());
    assert!(
        !write(&stores, before.clone()).await.unwrap(),
        "it is there already"
    );
    assert!(!stores.edit(&before.pool, |_, _| Ok(None)).await.unwrap());
    let there = stores.holdings(&before.pool, Vec::new()).await.unwrap();
    assert_eq!(
        local_block(there.file.as_ref(), "block-10.1.0.0/28")
            .unwrap()
            .mode,
        Mode::Active
    );
    assert_eq!(local_block(there.file.as_ref(), "another"), None);
}
