// SPDX-License-Identifier: Apache-2.0
//! ADD's choice: least loaded first, so one ADD at a time counts what lives on each link and writes down its own.

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

/// How long an ADD waits for its turn. Another one's lasts milliseconds, since it ends before any plugin is called, but
/// a node that starts may have hundreds in front of it.
const TURN_TIMEOUT: Duration = Duration::from_secs(20);

/// A configuration whose master is known.
pub(crate) struct Settled<'c> {
    /// The same configuration, with the chosen master's name.
    pub(crate) config: Cow<'c, Config>,
    /// Why that one; none if there was nothing to choose.
    pub(crate) why: Option<String>,
    /// No other ADD chooses before this is dropped.
    pub(crate) turn: Option<File>,
}

/// Chooses the master if `config` leaves a choice.
///
/// # Errors
/// [`Error::NoMaster`], or the node cannot be looked at.
pub(crate) fn settle<'c>(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    state: &Path,
    config: &'c Config,
) -> Result<Settled<'c>, Error> {
    let Master::Preferred(preferences) = &config.master else {
        return Ok(Settled {
            config: Cow::Borrowed(config),
            why: None,
            turn: None,
        });
    };
    let turn = turn(state);
    let choice = chosen(kernel, sysfs, preferences, &loads(state)?)?;
    tracing::info!(master = %choice.name, why = %choice.why, "chosen");
    Ok(Settled {
        config: Cow::Owned(Config {
            master: Master::Named(choice.name),
            ..config.clone()
        }),
        why: Some(choice.why),
        turn,
    })
}

/// The choice on this node.
///
/// # Errors
/// [`Error::NoMaster`], or the node cannot be looked at.
pub(crate) fn chosen(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    preferences: &Preferences,
    loads: &Loads,
) -> Result<Choice, Error> {
    let candidates = candidates(kernel, sysfs, preferences, loads)?;
    choose(preferences, &candidates).map_err(|passed| Error::NoMaster { passed })
}

/// Waits for the turn to choose: a lock on the folder of the attachments, which leaves no file. A call that does not
/// get it chooses all the same: the worst is an uneven load.
pub(crate) fn turn(state: &Path) -> Option<File> {
    turn_within(state, TURN_TIMEOUT)
}

fn turn_within(state: &Path, patience: Duration) -> Option<File> {
    let directory = match folders::attachments(state).and_then(File::open) {
        Ok(directory) => directory,
        Err(error) => {
            tracing::warn!(%error, path = %state.display(), "cannot take turns in choosing a master");
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
                tracing::warn!(%error, %holder, path = %state.display(), "choosing a master without waiting for others");
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
