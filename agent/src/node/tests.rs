// SPDX-License-Identifier: Apache-2.0
use super::*;
use api::accepted_pool::Writer;
use api::testing::small_pool;
use ipam::clock::Clock;
use ipam::store::Identity;
use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// The node's disk with one failing operation: the one that reduces `left` to 0.
#[derive(Default)]
struct Failing {
    left: AtomicI64,
    /// Whether a file was renamed since the last sync of a directory. A power loss may restore the old file.
    unsynced: AtomicBool,
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
        self.count()?.rename(from, to)?;
        self.unsynced.store(true, Ordering::Relaxed);
        Ok(())
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
        self.count()?.sync(path)?;
        if path.is_dir() {
            self.unsynced.store(false, Ordering::Relaxed);
        }
        Ok(())
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
                ..Failing::default()
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

/// A write of the pool's file that failed after the rename and before the sync of the directory, by this process. Returns the stores
/// and their disk.
async fn unsynced_write(dir: &Path) -> (Stores, Arc<Failing>) {
    let disk = Arc::new(Failing::default());
    let stores = Stores {
        disk: disk.clone(),
        ..Stores::new(dir.to_owned())
    };
    for step in 0..100 {
        disk.left.store(-1, Ordering::Relaxed);
        write(&stores, file(&["10.1.0.0/28"])).await.unwrap();
        disk.left.store(step, Ordering::Relaxed);
        let written = write(&stores, file(&["10.1.0.16/28"])).await;
        disk.left.store(-1, Ordering::Relaxed);
        if written.is_err() && disk.unsynced.load(Ordering::Relaxed) {
            return (stores, disk);
        }
    }
    panic!("no step leaves the rename without its sync")
}

/// Otherwise the agent would delete or share a block that the file has after a power loss.
#[tokio::test]
async fn a_pool_file_is_read_only_after_its_directory_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let (stores, disk) = unsynced_write(dir.path()).await;
    let pool = file(&[]).pool;
    stores.holdings(&pool, Vec::new()).await.unwrap();
    assert!(!disk.unsynced.load(Ordering::Relaxed), "by the same process");

    let (stores, disk) = unsynced_write(dir.path()).await;
    let next = Stores {
        disk: disk.clone(),
        ..Stores::new(dir.path().to_owned())
    };
    drop(stores);
    disk.left.store(0, Ordering::Relaxed);
    next.holdings(&pool, Vec::new()).await.unwrap_err();
    assert!(disk.unsynced.load(Ordering::Relaxed), "the sync failed again");
    assert!(!write(&next, file(&["10.1.0.16/28"])).await.unwrap());
    assert!(!disk.unsynced.load(Ordering::Relaxed), "by the next process");
}
