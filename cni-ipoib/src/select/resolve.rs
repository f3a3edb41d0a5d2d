// SPDX-License-Identifier: Apache-2.0
//! ADD's choice of a master. It prefers the least loaded link, so one ADD at a time counts the loads and
//! records its choice.

use super::candidates::Loads;
use super::{Choice, Preferences, candidates, choose};
use crate::config::{Config, Master};
use crate::error::Error;
use crate::journal::{NodeLock, loads};
use crate::kernel::Kernel;
use common::rdma::Sysfs;
use std::borrow::Cow;
use std::path::Path;

/// A configuration with a resolved master.
pub(crate) struct Resolved<'c> {
    /// The same configuration, with the chosen master's name.
    pub(crate) config: Cow<'c, Config>,
    /// The reason of the choice; `None` if there was no choice.
    pub(crate) why: Option<String>,
    /// The lock: no other ADD chooses before it is dropped.
    pub(crate) lock: Option<NodeLock>,
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
    let lock = NodeLock::attempt(state);
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
