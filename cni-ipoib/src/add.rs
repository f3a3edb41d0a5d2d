// SPDX-License-Identifier: Apache-2.0
//! ADD: gives a container an interface on an RDMA network.

use crate::attach::{AttachContext, Attached, attach};
use crate::config::{Config, Identity, Mode};
use crate::del::DetachTarget;
use crate::device_info::Hardware;
use crate::error::Error;
use crate::host::observe;
use crate::journal::{Entry, Intent, NodeLock};
use crate::kernel::{Kernel, pod_link};
use crate::mark::Mark;
use crate::netns::pod;
use crate::plan::{self, Plan};
use crate::rdma::{Sources, grant_for, interface};
use crate::select::resolve;
use crate::{CniIpoib, device_info, policy};
use common::cni::dispatch::Call;
use common::cni::{self, Attachment, CniResult, Delegate, IfName, IpConfig, PROBES, Version};
use common::netns::Netns;
use common::rdma::{PciAddress, Sysfs};
use std::path::Path;

impl CniIpoib {
    /// Attaches a container.
    ///
    /// # Expected flow
    /// Read the configuration. Read the state of the node. Plan. Write the intent to the journal. Then:
    /// allocate addresses, create and configure the link, add addresses and routes, wait for carrier,
    /// announce. Mark the intent as done. Answer.
    ///
    /// # Guarantees
    /// On error nothing is left: no link, no address, no file. After a kill at any point DEL or GC finds
    /// everything. Every check that can be made in advance comes before the first change.
    ///
    /// # Assumptions
    /// None about the runtime: a second call at the same time waits. A repeated call first removes what the
    /// earlier one left.
    pub(crate) fn add(
        &self,
        call: &Call,
        attachment: &Attachment,
        path: &Path,
    ) -> Result<CniResult, cni::Error> {
        let config = Config::read(call)?;
        let prev = call.conf.prev_result()?.unwrap_or_default();
        require_room(call, &prev)?;
        let netns = pod(path, call.netns_override)?;
        let mut kernel = self.open_kernel(Some(&netns))?;
        let mut entry = self.journal(call).admit(attachment)?;
        let mut to = AddContext {
            attachment,
            kernel: &mut *kernel,
            netns: &netns,
            path,
        };
        self.clear_earlier(call, &mut to, &mut entry)?;
        match self.add_of_mode(call, &config, &mut to, &mut entry) {
            Ok((made, attached)) => Ok(result(prev, &made, attached, &config, path)),
            Err(Refused { error, clean }) => {
                // The journal keeps the entry if something could not be undone, so that DEL finds it.
                if clean
                    && !entry.done
                    && let Err(e) = entry.remove()
                {
                    tracing::warn!(error = %e, "cannot remove the attachment's journal entry");
                }
                Err(error)
            }
        }
    }

    /// Removes what an earlier, interrupted ADD left, or one for a namespace that is no longer the
    /// container's.
    ///
    /// A complete attachment stays: its interface name makes this ADD fail. The exception is a DEL that was
    /// killed after it began to return hardware; without this removal the attachment would keep that hardware
    /// forever.
    fn clear_earlier(
        &self,
        call: &Call,
        to: &mut AddContext<'_>,
        entry: &mut Entry,
    ) -> Result<(), cni::Error> {
        let Some(intent) = entry.intent.clone() else {
            return Ok(());
        };
        let attachment = to.attachment;
        let hardware =
            intent.device.is_some() || intent.rdma.as_ref().is_some_and(|grant| grant.moved().is_some());
        let complete = entry.done && intent.netns_id == to.netns.id();
        if complete && !(hardware && pod_link(to.kernel, attachment.ifname.as_str())?.is_none()) {
            return Ok(());
        }
        tracing::info!(%attachment, "removing what an interrupted call left");
        let target = DetachTarget {
            attachment,
            netns: None,
            ipam: intent.ipam.clone(),
            intent: Some(intent),
            done: entry.done,
            by_name: false,
            answered: None,
            notes: entry.notes().ok(),
            gone: None,
        };
        self.take_down(call, &Identity::read(call), &target)?;
        Ok(entry.clear()?)
    }

    fn add_of_mode(
        &self,
        call: &Call,
        config: &Config,
        to: &mut AddContext<'_>,
        entry: &mut Entry,
    ) -> Result<(Interface, Attached), Refused> {
        device_info::require_place(config.device_info_file.as_deref(), &self.paths.device_info)?;
        self.sweep_links(to.kernel)?;
        match config.mode {
            Some(Mode::Device) => self.add_device(call, config, to, entry),
            _ => self.add_locked(call, config, to, entry),
        }
    }

    fn add_locked(
        &self,
        call: &Call,
        config: &Config,
        to: &mut AddContext<'_>,
        entry: &mut Entry,
    ) -> Result<(Interface, Attached), Refused> {
        let sysfs = Sysfs::at(&self.paths.sysfs);
        let ipam = delegate(call, config)?;
        require_free_name(to.kernel, to.attachment.ifname.as_str())?;
        let resolved = resolve(to.kernel, &sysfs, &self.paths.state, config)?;
        let config = &*resolved.config;
        let host = observe(to.kernel, &sysfs, config)?;
        let child = plan::child(config, &host)?;
        // Two ADDs that decide at the same time could take the last device of the host.
        let lock = resolved.lock.or_else(|| {
            config
                .rdma
                .as_ref()
                .and_then(|_| NodeLock::attempt(&self.paths.state))
        });
        let from = &mut Sources {
            kernel: &mut *to.kernel,
            sysfs: &sysfs,
            state: &self.paths.state,
        };
        let rdma = grant_for(from, config.rdma.as_ref(), interface(&host, child.mode))?;
        tracing::debug!(?child, ?rdma, "plan");
        let mark = Mark::new(&call.conf.network, to.attachment);
        let plan = Plan {
            child,
            rdma,
            ifname: to.attachment.ifname.clone(),
            policy_table: config.policy_routing.then(|| policy::table(&mark)),
            mark,
        };
        require_free_port_names(to.kernel, &plan)?;
        // A missing IPAM plugin allocates nothing, and could not release anything either.
        if let Some(ipam) = &ipam {
            ipam.program()?;
        }
        let device_info = device_info::to_write(
            config.device_info_file.as_deref(),
            plan.child.pci.as_ref().map(Hardware::ChildOf),
            plan.rdma.as_ref(),
        );
        entry.begin(Intent {
            device_info: device_info.as_ref().map(|(file, _)| file.clone()),
            rdma: plan.rdma.clone(),
            ..to.intent(config, host.master.name, resolved.why)
        })?;
        // The choice is in the journal now, so the next ADD counts it.
        drop(lock);
        let notes = entry.notes()?;
        let note = |pid| notes.running(pid);
        let ipam = ipam.map(|ipam| ipam.telling(&note));
        let mut context = AttachContext {
            kernel: to.kernel,
            ipam,
            attachment: to.attachment,
            netns: to.path,
            network: &call.conf.network,
            state: &self.paths.state,
            device_info,
            diary: entry,
            made: Vec::new(),
            link_may_live: false,
        };
        let attached = attach(&mut context, &plan)?;
        Ok((Interface::child(plan.ifname), attached))
    }
}

/// The IPAM plugin, if there is one. Its configuration declares that this plugin probes the addresses it
/// marks ([`PROBES`]).
pub(crate) fn delegate<'c>(call: &'c Call, config: &Config) -> Result<Option<Delegate<'c>>, cni::Error> {
    let plugin = config.ipam.as_deref();
    plugin
        .map(|plugin| {
            let delegate = Delegate::new(plugin, call, config.delegate_timeout)?;
            Ok(delegate.with(PROBES, true.into()))
        })
        .transpose()
}

/// The attachment and its namespace.
pub(crate) struct AddContext<'a> {
    pub(crate) attachment: &'a Attachment,
    pub(crate) kernel: &'a mut dyn Kernel,
    pub(crate) netns: &'a Netns,
    pub(crate) path: &'a Path,
}

impl AddContext<'_> {
    /// The part of the intent that every attachment writes before the first effect.
    pub(crate) fn intent(&self, config: &Config, master: String, why: Option<String>) -> Intent {
        Intent {
            netns: self.path.to_owned(),
            netns_id: self.netns.id(),
            master,
            why,
            ipam: config.ipam.clone(),
            device_info: None,
            rdma: None,
            device: None,
            made: Vec::new(),
        }
    }
}

/// The properties of the interface that the result reports besides its link.
pub(crate) struct Interface {
    pub(crate) ifname: IfName,
    /// The PCI function, if the pod has the whole function.
    pub(crate) pci: Option<PciAddress>,
}

impl Interface {
    /// A child, which is not a PCI function.
    fn child(ifname: IfName) -> Self {
        Self { ifname, pci: None }
    }
}

/// A refused ADD.
pub(crate) struct Refused {
    error: cni::Error,
    /// Whether ADD left nothing behind.
    clean: bool,
}

impl<E: Into<cni::Error>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            clean: true,
        }
    }
}

impl From<crate::attach::Failed> for Refused {
    fn from(failed: crate::attach::Failed) -> Self {
        let clean = failed.left.is_empty();
        let mut error = cni::Error::from(failed.error);
        let cause = (!error.details.is_empty()).then_some(error.details);
        let left = failed
            .left
            .iter()
            .map(|left| format!("not taken back: {left} (DEL will try again)"));
        error.details = cause.into_iter().chain(left).collect::<Vec<_>>().join("; ");
        Self { error, clean }
    }
}

/// The specification requires ADD to fail if the name is in use, before it changes anything.
pub(crate) fn require_free_name(kernel: &mut dyn Kernel, name: &str) -> Result<(), Error> {
    match pod_link(kernel, name)? {
        Some(_) => Err(Error::IfnameInUse(name.to_owned())),
        None => Ok(()),
    }
}

/// The same check for the ports of a bond.
fn require_free_port_names(kernel: &mut dyn Kernel, plan: &Plan) -> Result<(), Error> {
    plan.port_names()
        .try_for_each(|port| require_free_name(kernel, &port))
}

/// A result of 0.2.0 and older holds one address of each family. In a chain the runtime would get the earlier
/// plugin's address and lose ours.
fn require_room(call: &Call, prev: &CniResult) -> Result<(), Error> {
    if call.conf.version > Version::V0_2_0 || prev.ips.is_empty() {
        return Ok(());
    }
    Err(Error::Unsupported {
        key: "cniVersion",
        value: call.conf.version.to_string(),
        remedy: "in a chain its result has no room for a second address; set cniVersion to 0.3.1 or newer",
    })
}

/// The previous plugin's result, if any, with ours appended.
fn result(prev: CniResult, made: &Interface, attached: Attached, config: &Config, netns: &Path) -> CniResult {
    let mut result = prev;
    let index = result.interfaces.len();
    result.interfaces.push(cni::Interface {
        name: made.ifname.to_string(),
        mac: attached.link.address.to_string(),
        mtu: Some(attached.link.mtu),
        sandbox: netns.display().to_string(),
        socket_path: String::new(),
        pci_id: made.pci.as_ref().map(ToString::to_string).unwrap_or_default(),
    });
    result
        .ips
        .extend(attached.ipam.ips.into_iter().map(|ip| IpConfig {
            interface: Some(index),
            // The mark is for this plugin, not for the runtime.
            probe: false,
            ..ip
        }));
    result.routes.extend(attached.ipam.routes);
    let dns = if config.dns.is_empty() {
        attached.ipam.dns
    } else {
        config.dns.clone()
    };
    if !dns.is_empty() {
        result.dns = dns;
    }
    result
}

#[cfg(test)]
mod tests;
