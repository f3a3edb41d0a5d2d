// SPDX-License-Identifier: Apache-2.0
//! The file operations of the store. Each is one system call, which takes effect or does not. The exception
//! is [`Disk::create`], whose file has no meaning until it is linked or renamed.
//!
//! Invariant: the plugin's files and directories are open only to their owner. A lease names pods, and
//! flock(2) needs only the right to read the file.
//!
//! Invariant: no operation follows a symbolic link that has the name of a file. The agent has no capability
//! and may write the store, and the plugin is root of the node. A link in place of a directory is followed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The identity of a file, whatever its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its inode.
    pub inode: u64,
    /// How many names it has.
    pub names: u64,
    /// Whether it is a regular file.
    pub regular: bool,
    /// Whether it is a directory.
    pub directory: bool,
}

/// The largest file that is read, in bytes. A lease has some hundred, `pool.json` a hundred per block and
/// exclusion.
const LARGEST: u64 = 16 << 20;

/// The mode of every file that the plugin creates.
pub(super) const FILE_MODE: u32 = 0o600;

/// The mode of every directory that the plugin creates. libcni creates `/var/lib/cni` with the same mode (cni
/// `libcni/api.go`, `cacheAdd`).
pub(super) const DIRECTORY_MODE: u32 = 0o700;

/// A file system, or a test's file system with faults.
pub trait Disk {
    /// The content of a regular file of at most 16 MiB. Never waits for the writer of a FIFO.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The file behind a name.
    fn identity(&self, path: &Path) -> io::Result<Identity>;
    /// Names in a directory, in the file system's order, at most `most`.
    fn list(&self, path: &Path, most: usize) -> io::Result<Vec<OsString>>;
    /// The kind of file system of `path`; `None` if it is one that belongs to a single node.
    fn shared(&self, path: &Path) -> io::Result<Option<String>>;
    /// Creates a file, or replaces its content.
    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Writes over the start of a file, which may exist. Unlike truncating, this causes no early write-out on
    /// ext4 (ext4(5), `auto_da_alloc`).
    fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Appends to a file.
    fn append(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Adds a name to a file. Fails if the name exists.
    fn link(&self, file: &Path, name: &Path) -> io::Result<()>;
    /// Renames a file or directory. Replaces the file that had the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory and its parents.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and its content.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;
    /// Waits until the current content of a file or directory is on the disk (fsync(2)).
    fn sync(&self, path: &Path) -> io::Result<()>;
}

/// The node's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeDisk;

impl Disk for NodeDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW)
            .open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidData, "it is not a regular file"));
        }
        let mut content = Vec::with_capacity(usize::try_from(meta.len().min(LARGEST)).unwrap_or_default());
        file.take(LARGEST + 1).read_to_end(&mut content)?;
        if content.len() as u64 > LARGEST {
            return Err(io::Error::new(ErrorKind::InvalidData, "it is larger than 16 MiB"));
        }
        Ok(content)
    }

    fn identity(&self, path: &Path) -> io::Result<Identity> {
        let meta = fs::symlink_metadata(path)?;
        Ok(Identity {
            inode: meta.ino(),
            names: meta.nlink(),
            regular: meta.is_file(),
            directory: meta.is_dir(),
        })
    }

    fn list(&self, path: &Path, most: usize) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?
            .take(most)
            .map(|entry| entry.map(|e| e.file_name()))
            .collect()
    }

    fn shared(&self, path: &Path) -> io::Result<Option<String>> {
        // The width and sign of the field depend on the architecture. The magic numbers have 32 bits.
        let magic = i128::from(nix::sys::statfs::statfs(path)?.filesystem_type().0) & 0xffff_ffff;
        let named = |list: &[(u32, &'static str)]| {
            let found = list.iter().find(|(number, _)| i128::from(*number) == magic);
            found.map(|(_, name)| *name)
        };
        if named(&LOCAL_FILE_SYSTEMS).is_some() {
            return Ok(None);
        }
        Ok(Some(named(&OTHER_FILE_SYSTEMS).map_or_else(
            || format!("a file system of type {magic:#x}"),
            str::to_owned,
        )))
    }

    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        writer().truncate(true).open(path)?.write_all(content)
    }

    fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        writer().truncate(false).open(path)?.write_all(content)
    }

    fn append(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(nix::libc::O_NOFOLLOW);
        options.open(path)?.write_all(content)
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        fs::hard_link(file, name)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

fn writer() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(FILE_MODE);
    options.custom_flags(nix::libc::O_NOFOLLOW);
    options
}

/// Closes a directory and the lock in it to other users. Earlier versions made them readable to all.
///
/// # Errors
/// Those of chmod(2). The directory is closed first: if the process dies in between, the next call still
/// finds the lock open.
pub(super) fn close_to_others(directory: &Path, lock: &File) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_DIRECTORY);
    let opened = options.open(directory)?;
    opened.set_permissions(fs::Permissions::from_mode(DIRECTORY_MODE))?;
    lock.set_permissions(fs::Permissions::from_mode(FILE_MODE))
}

/// `f_type` of statfs(2) for file systems of a single node: on its own disk or in its memory
/// (include/uapi/linux/magic.h; ZFS and bcachefs from their own headers). A cluster file system on a shared
/// disk has its own number. FUSE does not reveal the file system behind it.
const LOCAL_FILE_SYSTEMS: [(u32, &str); 14] = [
    (0xef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0xf2f5_2010, "F2FS"),
    (0x2fc1_2fc1, "ZFS"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "JFS"),
    (0x5265_4973, "ReiserFS"),
    (0x3434, "NILFS2"),
    (0x2405_1905, "UBIFS"),
    (0x6175_6673, "aufs"),
];

/// Names for the message: file systems that several nodes may have mounted, or that do not reveal it.
const OTHER_FILE_SYSTEMS: [(u32, &str); 13] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB2"),
    (0xff53_4d42, "CIFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x1983_0326, "BeeGFS"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x6573_5546, "FUSE"),
];

#[cfg(test)]
mod tests;
