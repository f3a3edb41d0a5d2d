// SPDX-License-Identifier: Apache-2.0
//! The directories below the state directory, with modes that do not depend on the umask.
//!
//! Invariant: no other user can open a directory that the plugin locks. flock(2) needs only a descriptor that
//! was opened for reading, so read permission would be permission to block ADD and DEL.
//!
//! | directory | mode | reader |
//! | --- | --- | --- |
//! | the state directory itself | 0711 if the plugin makes it | programs that know the path of a record |
//! | `attachments` and below | 0700 | the plugin, and the agent's installer as root |
//! | `whole`, `moved`, `parents` and below | 0700 | the plugin |
//! | `rdma` | 0755, files 0444 | programs that set `NCCL_IB_HCA`, without privileges |

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Only root lists, opens or enters it.
const PRIVATE: u32 = 0o700;

/// Others may enter it, but neither list nor lock it.
const PASSAGE: u32 = 0o711;

/// Others may list it.
const PUBLIC: u32 = 0o755;

/// Creates the directory of the attachments below `state`. Calls that choose a link lock this directory.
///
/// # Errors
/// The directory cannot be made, or its mode cannot be corrected.
pub(crate) fn attachments(state: &Path) -> io::Result<PathBuf> {
    make(state, PASSAGE)?;
    let dir = state.join("attachments");
    private(&dir)?;
    Ok(dir)
}

/// Creates a directory for root alone. Removes the permissions that an earlier version or a umask gave to
/// others.
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

/// Creates a directory that others may list, with its missing parents.
///
/// # Errors
/// A directory cannot be made.
pub(crate) fn public(dir: &Path) -> io::Result<()> {
    make(dir, PUBLIC)
}

/// Creates `dir` with exactly `mode`, and its missing parents with permission to list. Existing directories are
/// unchanged.
fn make(dir: &Path, mode: u32) -> io::Result<()> {
    let one = || match DirBuilder::new().mode(mode).create(dir) {
        // mkdir(2) applies the umask.
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
