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

/// An agent that was taken over has no capability, but may write the store. The plugin is root of the node.
#[test]
fn no_operation_follows_a_symbolic_link_with_the_name_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (outside, link) = (dir.path().join("outside"), dir.path().join("link"));
    fs::write(&outside, "of the node").unwrap();
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    let refused = |done: io::Result<()>| {
        assert_eq!(done.unwrap_err().raw_os_error(), Some(nix::libc::ELOOP));
    };
    refused(NodeDisk.create(&link, b"x"));
    refused(NodeDisk.overwrite(&link, b"x"));
    refused(NodeDisk.append(&link, b"x"));
    refused(NodeDisk.read(&link).map(drop));
    assert_eq!(fs::read_to_string(&outside).unwrap(), "of the node");

    let (directory, link) = (dir.path().join("directory"), dir.path().join("other"));
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    let lock = File::create(dir.path().join("lock")).unwrap();
    assert!(close_to_others(&link, &lock).is_err());
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o755);
    close_to_others(&directory, &lock).unwrap();
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
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
