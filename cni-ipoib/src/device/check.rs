// SPDX-License-Identifier: Apache-2.0
//! CHECK and STATUS of a whole link.

use super::{Facts, moved};
use crate::CniIpoib;
use crate::config::Config;
use crate::error::{DeviceError, Error};
use crate::host::observe;
use crate::journal::{Journal, written};

use common::cni::Attachment;
use common::netlink::Link;
use common::rdma::Sysfs;

impl CniIpoib {
    /// Compares the link in the pod with the journal.
    pub(crate) fn compare_device(
        &self,
        (network, attachment): (&str, &Attachment),
        link: &Link,
        findings: &mut Vec<String>,
    ) {
        let written = Journal::new(&self.paths.state, network).peek(attachment);
        let Some(was) = written.and_then(|intent| intent.device) else {
            findings.push("nothing is written down about it, so that DEL could not put it back".to_owned());
            return;
        };
        if !was.hardware.is(link) {
            findings.push(format!("it is not {} of the host", was.name));
        }
        if !link.up {
            findings.push("it is down".to_owned());
        }
    }

    /// Fails if the link could not be moved. A link that is already in a pod is not a failure of the node.
    ///
    /// # Errors
    /// Those of ADD.
    pub(crate) fn judge_device(&self, config: &Config) -> Result<(), Error> {
        let mut kernel = self.open_kernel(None)?;
        let sysfs = Sysfs::at(&self.paths.sysfs);
        let all = written(&self.paths.state)?;
        let given = all.iter().any(|of| of.intent.device.is_some());
        let host =
            match observe(&mut *kernel, &sysfs, config) {
                Err(
                    Error::MasterMissing { .. } | Error::DeviceWithoutLink { .. } | Error::NoMaster { .. },
                ) if given => return Ok(()),
                host => host?,
            };
        let facts = Facts::read(&mut *kernel, &sysfs, &host, &all)?;
        match moved(config, &host, &facts) {
            Err(Error::Device(DeviceError::Taken { .. })) => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests;
