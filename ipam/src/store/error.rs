// SPDX-License-Identifier: Apache-2.0
//! Errors of file operations for a person: the operation, the file, the cause, the remedy.

use common::cni::{Code, Error};
use std::io;
use std::path::Path;

/// `action` on `path` failed.
pub(super) fn failed(action: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(
        Code::IO,
        format!("cannot {action} {}: {error}; {}", path.display(), remedy(error)),
    )
}

/// `path` has content that this plugin did not write.
pub(super) fn corrupt(path: &Path, what: &str, remedy: &str) -> Error {
    Error::new(
        Code::STORE_CORRUPT,
        format!("{} is damaged or foreign: {what}; {remedy}", path.display()),
    )
}

/// Whether the disk, or the user's quota, is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Whether an error means that the path does not exist. ADD can have made nothing at a path that cannot
/// exist.
pub(crate) fn is_nowhere(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidFilename
    ) || error.raw_os_error() == Some(nix::libc::ELOOP)
}

fn remedy(error: &io::Error) -> &'static str {
    if error.raw_os_error() == Some(nix::libc::ELOOP) {
        return "it is a symbolic link, and the plugin follows none: remove it";
    }
    match error.kind() {
        io::ErrorKind::StorageFull => "free space or inodes on that file system (df, df -i)",
        io::ErrorKind::QuotaExceeded => "raise the quota of that file system or free space",
        io::ErrorKind::ReadOnlyFilesystem => {
            "remount it writable; the kernel makes a file system read-only after I/O errors (dmesg)"
        }
        io::ErrorKind::PermissionDenied => {
            "run as root on a file system that has hard links; look for SELinux or AppArmor denials as well"
        }
        io::ErrorKind::NotADirectory => {
            "the path is a file and must be a directory: move it away or set ipam.dataDir"
        }
        io::ErrorKind::IsADirectory => "the path is a directory and must be a file: move it away",
        io::ErrorKind::FileTooLarge => "the process may not write files of this size (ulimit -f)",
        io::ErrorKind::NotFound => "it was removed while it was in use; try again",
        _ => "look into dmesg for errors of the disk",
    }
}
