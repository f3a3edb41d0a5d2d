// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn a_directory_on_a_local_disk_or_in_memory_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(NodeDisk.shared(dir.path()).unwrap(), None);
    if Path::new("/dev/shm").exists() {
        assert_eq!(NodeDisk.shared(Path::new("/dev/shm")).unwrap(), None, "tmpfs");
    }
}

/// FUSE, `BeeGFS`, OCFS2 and 9p passed when the list named network file systems instead.
#[test]
fn a_file_system_that_is_not_known_to_be_local_is_refused() {
    let kind = NodeDisk.shared(Path::new("/proc")).unwrap();
    assert_eq!(kind.as_deref(), Some("a file system of type 0x9fa0"));
    for (number, name) in OTHER_FILE_SYSTEMS {
        assert!(
            LOCAL_FILE_SYSTEMS.iter().all(|(local, _)| *local != number),
            "{name} is in both lists"
        );
    }
}

#[test]
fn files_and_directories_are_open_to_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("a/b");
    NodeDisk.make_directory(&directory).unwrap();
    NodeDisk.create(&directory.join("created"), b"x").unwrap();
    NodeDisk.overwrite(&directory.join("overwritten"), b"x").unwrap();
    let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("a"), mode("a/b")), (0o700, 0o700));
    assert_eq!((mode("a/b/created"), mode("a/b/overwritten")), (0o600, 0o600));
}

#[test]
fn an_endless_or_silent_file_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let large = dir.path().join("large");
    File::create(&large).unwrap().set_len(LARGEST + 1).unwrap();
    for (path, expected) in [
        (fifo.as_path(), "not a regular file"),
        (Path::new("/dev/zero"), "not a regular file"),
        (large.as_path(), "larger than 16 MiB"),
    ] {
        let error = NodeDisk.read(path).unwrap_err();
        assert!(
            error.to_string().contains(expected),
            "{}: {error}",
            path.display()
        );
    }
    File::options()
        .write(true)
        .open(&large)
        .unwrap()
        .set_len(5)
        .unwrap();
    assert_eq!(NodeDisk.read(&large).unwrap(), [0; 5]);
}
