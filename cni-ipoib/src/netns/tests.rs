// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::Pod;
use common::cni::{self, Code};

fn refused(path: &str, own_allowed: bool) -> (Code, String) {
    let error = cni::Error::from(pod(Path::new(path), own_allowed).unwrap_err());
    (error.code, error.msg)
}

#[test]
fn the_plugins_own_namespace_is_no_pod() {
    let there = Pod::new();
    assert_eq!(pod(&there.path(), false).unwrap().id(), there.id());
    let file = tempfile::NamedTempFile::new().unwrap();
    let file = file.path().to_str().unwrap();
    let expected = "want the path of the container's network namespace";
    for (path, code, text) in [
        (
            "/nowhere",
            Code::UNKNOWN_CONTAINER,
            "CNI_NETNS /nowhere does not exist: the container is gone".to_owned(),
        ),
        (
            file,
            Code::INVALID_ENVIRONMENT,
            format!("CNI_NETNS {file} is no network namespace; {expected}"),
        ),
        (
            "/tmp",
            Code::INVALID_ENVIRONMENT,
            format!("CNI_NETNS /tmp is no network namespace; {expected}"),
        ),
        (
            "/proc/self/ns/mnt",
            Code::INVALID_ENVIRONMENT,
            format!("CNI_NETNS /proc/self/ns/mnt is no network namespace; {expected}"),
        ),
        (
            "/proc/self/ns/net",
            Code::INVALID_ENVIRONMENT,
            format!(
                "CNI_NETNS /proc/self/ns/net is the namespace of the plugin itself, the host's; {expected}"
            ),
        ),
    ] {
        assert_eq!(refused(path, false), (code, text));
    }
    assert!(
        pod(Path::new("/proc/self/ns/net"), true).is_ok(),
        "CNI_NETNS_OVERRIDE"
    );
}

#[test]
fn a_gone_or_reused_namespace_is_none() {
    let there = Pod::new();
    let found = |path: &Path, id| pod_if_there(path, id).unwrap().map(|netns| netns.id());
    assert_eq!(found(&there.path(), None), Some(there.id()));
    assert_eq!(found(&there.path(), Some(there.id())), Some(there.id()));
    assert_eq!(found(&there.path(), Some(Pod::new().id())), None);
    for path in [
        "/nowhere",
        "/etc/passwd",
        "/etc/passwd/x",
        "/tmp",
        "/proc/self/ns/net",
        "/proc/self/ns/mnt",
    ] {
        assert_eq!(found(Path::new(path), None), None, "{path}");
    }
    let loops = tempfile::tempdir().unwrap();
    let knot = loops.path().join("knot");
    std::os::unix::fs::symlink(&knot, &knot).unwrap();
    assert_eq!(
        found(&knot, None),
        None,
        "ADD refuses the name, so DEL accepts it"
    );
}

#[test]
fn a_passing_failure_does_not_mean_that_a_pod_is_gone() {
    let of = |errno: Errno| is_passing(&io::Error::from_raw_os_error(errno as i32));
    for errno in [
        Errno::EACCES,
        Errno::EPERM,
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::ENOMEM,
    ] {
        assert!(of(errno), "{errno}");
    }
    for errno in [Errno::ELOOP, Errno::ENAMETOOLONG, Errno::ENXIO] {
        assert!(!of(errno), "{errno}");
    }
    assert!(!is_passing(&io::Error::other("no number")));
}

#[test]
fn a_namespace_is_proven_gone_only_by_its_own_directory() {
    let (dir, there) = (tempfile::tempdir().unwrap(), Pod::new());
    let path = |name: &str| dir.path().join(name);
    std::os::unix::fs::symlink(there.path(), path("alive")).unwrap();
    std::fs::write(path("not-propagated"), "").unwrap();
    let other = (there.id().0, there.id().1 + 1);
    assert!(is_gone(&path("removed"), there.id()));
    assert!(is_gone(&path("alive"), other), "the path has another one now");
    assert!(!is_gone(&path("alive"), there.id()));
    assert!(!is_gone(&path("not-propagated"), there.id()));
    assert!(!is_gone(&path("no-directory/removed"), there.id()));
    for of_a_process in ["/proc/0/ns/net", "/proc/self/ns/net"] {
        assert!(!is_gone(Path::new(of_a_process), there.id()), "{of_a_process}");
    }
}
