// SPDX-License-Identifier: Apache-2.0
use super::{Fate, NetnsFile, Sandbox};
use common::cni::Args;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const OWN: &str = "/proc/self/ns/net";

/// The namespace at `path` before another process got the path.
fn former(path: &Path) -> NetnsFile {
    let now = NetnsFile::at(path).unwrap();
    NetnsFile {
        inode: now.inode + 1,
        ..now
    }
}

#[test]
fn a_namespace_is_identified_by_path_and_file() {
    let open = File::open(OWN).unwrap();
    // A path of the namespace that is not below /proc.
    let path = PathBuf::from(format!("/dev/fd/{}", open.as_raw_fd()));
    assert_eq!(NetnsFile::at(&path).unwrap().fate(), Fate::There);
    assert_eq!(former(&path).fate(), Fate::Replaced);
}

#[test]
fn a_process_id_proves_only_that_a_namespace_exists() {
    assert_eq!(NetnsFile::at(Path::new(OWN)).unwrap().fate(), Fate::There);
    let mut ended = former(Path::new(OWN));
    assert!(matches!(ended.fate(), Fate::Unseen(_)), "{:?}", ended.fate());
    // The process still runs and has no such namespace.
    ended.path = "/proc/self/ns/none".into();
    assert!(matches!(ended.fate(), Fate::Unseen(_)), "{:?}", ended.fate());
}

#[test]
fn a_missing_namespace_is_evidence_only_if_its_directory_exists() {
    let dir = tempfile::tempdir().unwrap();
    let file = |path: &Path| NetnsFile {
        path: path.to_owned(),
        device: 4,
        inode: 1,
        born: None,
    };
    assert_eq!(file(&dir.path().join("cni-1")).fate(), Fate::Gone);
    let unseen = file(&dir.path().join("absent/cni-1")).fate();
    assert!(
        matches!(&unseen, Fate::Unseen(why) if why.contains("absent is not there")),
        "{unseen:?}"
    );
    // An unmounted namespace leaves an empty file.
    std::fs::write(dir.path().join("cni-2"), "").unwrap();
    let unseen = file(&dir.path().join("cni-2")).fate();
    assert!(
        matches!(&unseen, Fate::Unseen(why) if why.contains("no namespace")),
        "{unseen:?}"
    );
}

#[test]
fn a_sandbox_comes_from_the_runtimes_arguments() {
    let args = Args::parse("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=a;K8S_POD_UID=u-1").unwrap();
    let sandbox = Sandbox::of(&args, Path::new(OWN));
    assert_eq!(
        (sandbox.pod.as_deref(), sandbox.namespace()),
        (Some("ns/a"), Some("ns"))
    );
    assert_eq!(sandbox.uid.as_deref(), Some("u-1"));
    assert_eq!(sandbox.netns.unwrap().path, Path::new(OWN));
    let bare = Sandbox::of(&Args::default(), Path::new("/no/such/netns"));
    assert_eq!(bare, Sandbox::default());
}
