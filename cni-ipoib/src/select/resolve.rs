// SPDX-License-Identifier: Apache-2.0
//! Resolves the master of a configuration to one link.

use super::candidates::Loads;
use super::{Aside, candidates, choose};
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

/// Chooses the master if the configuration leaves a choice, whatever attachments the node has.
///
/// # Errors
/// [`Error::NoMaster`], or the node cannot be read.
pub(crate) fn resolve(kernel: &mut dyn Kernel, sysfs: &Sysfs, master: &Master) -> Result<Resolved, Error> {
    resolve_for_add(kernel, sysfs, master, Loads::new, |_, _| Ok(()))
}

/// As [`resolve`], for an ADD, which holds the lock of the node. If there is a choice, `loads` counts the attachments on
/// each link, and a link of which `require` refuses the name is passed over.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn resolve_for_add(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    master: &Master,
    loads: impl FnOnce() -> Loads,
    require: impl Fn(&mut dyn Kernel, &str) -> Result<(), Error>,
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
    let mut candidates = candidates(kernel, sysfs, preferences, &loads())?;
    for candidate in &mut candidates {
        let excluded = matches!(candidate.aside, Some(Aside::Always(_)));
        if !excluded && let Err(error) = require(kernel, &candidate.name) {
            candidate.aside = Some(Aside::Always(error.to_string()));
        }
    }
    let choice = choose(preferences, &candidates).map_err(|passed| Error::NoMaster { passed })?;
    tracing::info!(master = %choice.name, why = %choice.why, "chose the master");
    Ok(Resolved {
        master: ResolvedMaster::Named(choice.name),
        why: Some(choice.why),
    })
}
