// SPDX-License-Identifier: Apache-2.0
//! The few file operations that the store is made of. Each is one system call that takes effect or does not,
//! except [`Disk::create`], whose file is of no account until it is linked or renamed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file, whatever its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its inode.
    pub inode: u64,
    /// How many names it has.
    pub names: u64,
    /// Whether it is a regular file.
    pub regular: bool,
}

/// A file system, or one that fails where a test wants it to.
pub trait Disk {
    /// The content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// What file a name stands for.
    fn identity(&self, path: &Path) -> io::Result<Identity>;
    /// Names in a directory, in the order the file system has them; `most` bounds the work.
    fn list(&self, path: &Path, most: usize) -> io::Result<Vec<OsString>>;
    /// The name of the network file system `path` lies on, if it is one.
    fn shared(&self, path: &Path) -> io::Result<Option<&'static str>>;
    /// Writes a file anew.
    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Writes over the start of a file, which may be there already. Unlike truncating, this costs ext4 no early write-out
    /// (ext4(5), `auto_da_alloc`).
    fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Adds to the end of a file.
    fn append(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Gives a file one more name; fails if there is something of that name.
    fn link(&self, file: &Path, name: &Path) -> io::Result<()>;
    /// Changes a name; replaces what had the new one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory and those above it.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all in it.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;
    /// Waits until a file or directory is on the disk as it is now (fsync(2)).
    fn sync(&self, path: &Path) -> io::Result<()>;
}

/// The node's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeDisk;

impl Disk for NodeDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn identity(&self, path: &Path) -> io::Result<Identity> {
        let meta = fs::symlink_metadata(path)?;
        Ok(Identity {
            inode: meta.ino(),
            names: meta.nlink(),
            regular: meta.is_file(),
        })
    }

    fn list(&self, path: &Path, most: usize) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?
            .take(most)
            .map(|entry| entry.map(|e| e.file_name()))
            .collect()
    }

    fn shared(&self, path: &Path) -> io::Result<Option<&'static str>> {
        let magic = nix::sys::statfs::statfs(path)?.filesystem_type().0;
        Ok(NETWORK_FILE_SYSTEMS
            .iter()
            .find(|(number, _)| i128::from(*number) == i128::from(magic))
            .map(|(_, name)| *name))
    }

    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        File::create(path)?.write_all(content)
    }

    fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?
            .write_all(content)
    }

    fn append(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(path)?.write_all(content)
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
        fs::create_dir_all(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// `f_type` of statfs(2) for file systems that several nodes may have mounted
/// (include/uapi/linux/magic.h; Lustre and GPFS from their own headers).
const NETWORK_FILE_SYSTEMS: [(u32, &str); 8] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB2"),
    (0xff53_4d42, "CIFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
];
