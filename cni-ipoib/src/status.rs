// SPDX-License-Identifier: Apache-2.0
//! STATUS: reports whether ADD could succeed now.

use crate::CniIpoib;
use crate::config::{Config, Master, Mode};
use crate::error::Error;
use crate::host::observe;
use crate::plan;
use crate::rdma::{Sources, interface, require_likely};
use common::cni::dispatch::Call;
use common::cni::{self, Code, Delegate};
use common::rdma::Sysfs;

impl CniIpoib {
    /// Reads the node as ADD would, and calls STATUS of the IPAM plugin.
    ///
    /// # Errors
    /// Code 51 if the parent carries no traffic, since pods on it are cut off too; 50 for anything else that
    /// would make ADD fail. The message is ADD's own.
    ///
    /// # Caveats
    /// A parent inside the pod (`linkInContainer`), or one that a device plugin has yet to choose, is not
    /// checked.
    pub(crate) fn status(&self, call: &Call) -> Result<(), cni::Error> {
        let config = Config::read(call).map_err(|e| cni::Error {
            code: Code::NOT_AVAILABLE,
            ..e
        })?;
        if !config.link_in_container && config.master != Master::Unset {
            self.judge(&config)?;
        }
        match &config.ipam {
            Some(plugin) => Delegate::new(plugin, call, config.delegate_timeout)
                .and_then(|ipam| ipam.status())
                .map_err(unavailable),
            None => Ok(()),
        }
    }

    fn judge(&self, config: &Config) -> Result<(), cni::Error> {
        let likely = if config.mode == Some(Mode::Device) {
            self.judge_device(config)
        } else {
            self.judge_child(config)
        };
        likely.map_err(|error| {
            let code = if error.is_down() {
                Code::LIMITED
            } else {
                Code::NOT_AVAILABLE
            };
            cni::Error { code, ..error.into() }
        })
    }

    fn judge_child(&self, config: &Config) -> Result<(), Error> {
        let mut kernel = self.open_kernel(None)?;
        let sysfs = Sysfs::at(&self.paths.sysfs);
        let host = observe(&mut *kernel, &sysfs, config)?;
        let child = plan::child(config, &host)?;
        let from = &mut Sources {
            kernel: &mut *kernel,
            sysfs: &sysfs,
            state: &self.paths.state,
        };
        require_likely(from, config.rdma.as_ref(), interface(&host, child.mode))
    }
}

/// STATUS has two codes. Any other code of a delegate becomes "not available".
fn unavailable(error: cni::Error) -> cni::Error {
    match error.code {
        Code::NOT_AVAILABLE | Code::LIMITED => error,
        _ => cni::Error {
            code: Code::NOT_AVAILABLE,
            ..error
        },
    }
}

#[cfg(test)]
mod tests;
