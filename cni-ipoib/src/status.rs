// SPDX-License-Identifier: Apache-2.0
//! STATUS: reports whether ADD could succeed now.

use crate::config::{Config, Master, Mode, ResolvedMaster};
use crate::device::{Facts, moved};
use crate::error::{DeviceError, Error};
use crate::host::{Host, observe, side_of};
use crate::journal::Attachments;
use crate::kernel::Kernel;
use crate::node::Node;
use crate::plan::{self, rdma_interface};
use crate::rdma::{Sources, require_likely};
use crate::select::{require_unused, resolve};
use common::cni::dispatch::Call;
use common::cni::{self, Code, Delegate};
use common::rdma::Sysfs;

/// Reads the node as ADD would, and calls STATUS of the IPAM plugin.
///
/// # Errors
/// Code 51 if the parent carries no traffic, since pods on it are cut off too; 50 for anything else that
/// would make ADD fail. The message is ADD's own.
///
/// # Caveats
/// A parent inside the pod (`linkInContainer`), or one that a device plugin has yet to choose, is not
/// checked.
pub(crate) fn status(node: &Node, call: &Call) -> Result<(), cni::Error> {
    let config = Config::read(call).map_err(|e| cni::Error {
        code: Code::NOT_AVAILABLE,
        ..e
    })?;
    if !config.link_in_container && config.master != Master::Resolved(ResolvedMaster::Unset) {
        judge(node, &config)?;
    }
    match &config.ipam {
        Some(plugin) => Delegate::new(plugin, call, config.delegate_timeout)
            .and_then(|ipam| ipam.status())
            .map_err(unavailable),
        None => Ok(()),
    }
}

fn judge(node: &Node, config: &Config) -> Result<(), cni::Error> {
    let likely = if config.mode == Some(Mode::Device) {
        judge_device(node, config)
    } else {
        judge_child(node, config)
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

fn judge_child(node: &Node, config: &Config) -> Result<(), Error> {
    let mut kernel = node.kernel(None)?;
    let sysfs = node.sysfs();
    let host = host(&mut *kernel, &sysfs, config)?;
    let child = plan::child(config, &host)?;
    if child.takes_frames_of_host() {
        require_unused(&mut *kernel, &host.master)?;
    }
    let from = &mut Sources {
        kernel: &mut *kernel,
        sysfs: &sysfs,
        state: node.state(),
    };
    require_likely(from, config.rdma.as_ref(), rdma_interface(&host, child.mode))
}

/// Fails if the link could not be moved. A link that is already in a pod is not a failure of the node.
fn judge_device(node: &Node, config: &Config) -> Result<(), Error> {
    let mut kernel = node.kernel(None)?;
    let sysfs = node.sysfs();
    let all = Attachments::read(node.state())?;
    let given = all.written.iter().any(|of| of.intent.device.is_some());
    let host = match host(&mut *kernel, &sysfs, config) {
        Err(Error::MasterMissing { .. } | Error::DeviceWithoutLink { .. } | Error::NoMaster { .. })
            if given =>
        {
            return Ok(());
        }
        host => host?,
    };
    let damaged = all.damaged_on(node.state(), &host.master.name);
    let facts = Facts::read(&mut *kernel, &sysfs, &host, &all.written, &damaged)?;
    match moved(config, &host, &facts) {
        Err(Error::Device(DeviceError::Taken { .. })) => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

/// The node as it is for an ADD that counts no attachments.
fn host(kernel: &mut dyn Kernel, sysfs: &Sysfs, config: &Config) -> Result<Host, Error> {
    let resolved = resolve(kernel, sysfs, &config.master)?;
    observe(kernel, sysfs, side_of(config), &resolved.master)
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
