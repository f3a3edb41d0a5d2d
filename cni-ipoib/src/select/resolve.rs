// SPDX-License-Identifier: Apache-2.0
//! ADD's choice of a master. It prefers the least loaded link, so one ADD at a time counts the loads and
//! records its choice.

use super::candidates::Loads;
use super::{Choice, Preferences, candidates, choose};
use crate::config::{Config, Master};
use crate::error::Error;
use crate::folders;
use crate::journal::loads;
use crate::kernel::Kernel;
use common::lock::holder;
use common::rdma::Sysfs;
use std::borrow::Cow;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long an ADD waits for the lock. Another ADD holds it for milliseconds, since it releases the lock
/// before it calls any plugin. But hundreds may wait when a node starts.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// A configuration with a resolved master.
pub(crate) struct Resolved<'c> {
    /// The same configuration, with the chosen master's name.
    pub(crate) config: Cow<'c, Config>,
    /// The reason of the choice; `None` if there was no choice.
    pub(crate) why: Option<String>,
    /// The lock: no other ADD chooses before it is dropped.
    pub(crate) lock: Option<File>,
}

/// Chooses the master if `config` leaves a choice.
///
/// # Errors
/// [`Error::NoMaster`], or the node cannot be read.
pub(crate) fn resolve<'c>(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    state: &Path,
    config: &'c Config,
) -> Result<Resolved<'c>, Error> {
    let Master::Preferred(preferences) = &config.master else {
        return Ok(Resolved {
            config: Cow::Borrowed(config),
            why: None,
            lock: None,
        });
    };
    let lock = choice_lock(state);
    let choice = chosen(kernel, sysfs, preferences, &loads(state)?)?;
    tracing::info!(master = %choice.name, why = %choice.why, "chose the master");
    Ok(Resolved {
        config: Cow::Owned(Config {
            master: Master::Named(choice.name),
            ..config.clone()
        }),
        why: Some(choice.why),
        lock,
    })
}

/// The choice on this node.
///
/// # Errors
/// [`Error::NoMaster`], or the node cannot be read.
pub(crate) fn chosen(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    preferences: &Preferences,
    loads: &Loads,
) -> Result<Choice, Error> {
    let candidates = candidates(kernel, sysfs, preferences, loads)?;
    choose(preferences, &candidates).map_err(|passed| Error::NoMaster { passed })
}

/// Takes the lock for choosing: on the folder of the attachments, so that no lock file is left. Without the
/// lock the call chooses anyway; at worst the load is uneven.
pub(crate) fn choice_lock(state: &Path) -> Option<File> {
    choice_lock_within(state, LOCK_TIMEOUT)
}

fn choice_lock_within(state: &Path, patience: Duration) -> Option<File> {
    let directory = match folders::attachments(state).and_then(File::open) {
        Ok(directory) => directory,
        Err(error) => {
            tracing::warn!(%error, path = %state.display(), "cannot lock the choice of a master; choosing without the lock");
            return None;
        }
    };
    let deadline = Instant::now() + patience;
    loop {
        match directory.try_lock() {
            Ok(()) => return Some(directory),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(Duration::from_millis(5)),
            Err(error) => {
                let holder = holder(&directory);
                tracing::warn!(%error, %holder, path = %state.display(), "lock on the choice of a master timed out; choosing without the lock");
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
