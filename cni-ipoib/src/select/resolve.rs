// SPDX-License-Identifier: Apache-2.0
//! Resolves the master of a configuration to one link.

use super::candidates::Loads;
use super::{candidates, choose};
use crate::config::{Master, ResolvedMaster};
use crate::error::Error;
use crate::kernel::Kernel;
use common::rdma::Sysfs;

/// The link that a configuration means.
pub(crate) struct Resolved {
    /// The link.
    pub(crate) master: ResolvedMaster,
    /// The reason of the choice; `None` if there was no choice.
    pub(crate) why: Option<String>,
}

/// Chooses the master if the configuration leaves a choice. Only then `loads` is called: the number of
/// attachments on each link. An ADD that counts them holds the lock of the node.
///
/// # Errors
/// [`Error::NoMaster`], or the node cannot be read.
pub(crate) fn resolve(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    master: &Master,
    loads: impl FnOnce() -> Loads,
) -> Result<Resolved, Error> {
    let preferences = match master {
        Master::Resolved(master) => {
            return Ok(Resolved {
                master: master.clone(),
                why: None,
            });
        }
        Master::Preferred(preferences) => preferences,
    };
    let candidates = candidates(kernel, sysfs, preferences, &loads())?;
    let choice = choose(preferences, &candidates).map_err(|passed| Error::NoMaster { passed })?;
    tracing::info!(master = %choice.name, why = %choice.why, "chose the master");
    Ok(Resolved {
        master: ResolvedMaster::Named(choice.name),
        why: Some(choice.why),
    })
}
