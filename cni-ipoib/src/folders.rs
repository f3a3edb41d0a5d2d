// SPDX-License-Identifier: Apache-2.0
//! The folders below the state directory, with modes that do not depend on the umask.
//!
//! Invariant: no other user can open a folder that a lock of ours lies on. flock(2) needs no more than a descriptor that
//! was opened for reading, so read permission is permission to stop ADD and DEL.
//!
//! | folder | mode | reader |
//! | --- | --- | --- |
//! | the state directory itself | 0711 if the plugin makes it | programs that know the path of a record |
//! | `attachments` and below | 0700 | the plugin, and the agent's installer as root |
//! | `whole` and below | 0700 | the plugin |
//! | `rdma` | 0755, files 0444 | programs that set `NCCL_IB_HCA`, without privileges |

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Nobody else lists, opens or enters it.
const PRIVATE: u32 = 0o700;

/// Others enter it, and neither list nor lock it.
const PASSAGE: u32 = 0o711;

/// Others list it.
const PUBLIC: u32 = 0o755;

/// Makes the folder of the attachments below `state`, which also has the lock of the calls that choose a link.
///
/// # Errors
/// The folder cannot be made, or its mode cannot be corrected.
pub(crate) fn attachments(state: &Path) -> io::Result<PathBuf> {
    make(state, PASSAGE)?;
    let dir = state.join("attachments");
    private(&dir)?;
    Ok(dir)
}

/// Makes a folder for root alone, and takes the permissions away that an earlier version or a umask gave to others.
///
/// # Errors
/// As [`attachments`].
pub(crate) fn private(dir: &Path) -> io::Result<()> {
    make(dir, PRIVATE)?;
    let mode = fs::metadata(dir)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(dir, Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

/// Makes a folder that others may list, with all that is missing above it.
///
/// # Errors
/// A folder cannot be made.
pub(crate) fn public(dir: &Path) -> io::Result<()> {
    make(dir, PUBLIC)
}

/// Makes `dir` with exactly `mode`, and what is missing above it so that others may list it. One that is there stays as it is.
fn make(dir: &Path, mode: u32) -> io::Result<()> {
    let one = || match DirBuilder::new().mode(mode).create(dir) {
        // mkdir(2) takes the umask's bits away.
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(mode)),
        Err(_) if dir.is_dir() => Ok(()),
        Err(e) => Err(e),
    };
    match (one(), dir.parent()) {
        (Err(e), Some(above)) if e.kind() == ErrorKind::NotFound && !above.is_dir() => {
            make(above, PUBLIC)?;
            one()
        }
        (outcome, _) => outcome,
    }
}

#[cfg(test)]
mod tests;
