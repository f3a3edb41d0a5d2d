// SPDX-License-Identifier: Apache-2.0
//! ADD: gives a container an interface on an RDMA network.

mod child;
mod device;
mod planned;
mod repair;
mod siblings;

use crate::attach::{AttachContext, Attached, Failed, attach};
use crate::config::{Config, Identity, Master, Mode};
use crate::device_info;
use crate::error::Error;
use crate::intent::{Grant, Intent};
use crate::journal::{Entry, NodeLock};
use crate::kernel::{Kernel, pod_link};
use crate::mark::Mark;
use crate::netns::pod;
use crate::node::Node;
use crate::plan::PodInterface;
use crate::policy;
use crate::teardown::{Caller, DetachTarget, take_down};
use common::cni::dispatch::Call;
use common::cni::{self, Attachment, CniResult, Delegate, IpConfig, PROBES, Version};
use common::netns::Netns;
use common::rdma::PciAddress;
use planned::{Kind, Planned};
use std::path::Path;

/// Attaches a container.
///
/// # Expected flow
/// Read the configuration. Read the state of the node. Plan. Write the intent to the journal. Then: allocate
/// addresses, create and configure the link, add addresses and routes, wait for carrier, announce. Mark the
/// intent as done. Answer.
///
/// # Guarantees
/// On error nothing is left: no link, no address, no file. After a kill at any point DEL or GC finds
/// everything. Every check that can be made in advance comes before the first change. Nothing of another pod
/// is changed, except a link or RDMA device that a dead pod left and that this ADD asks for. After its caller has ended,
/// ADD makes nothing.
///
/// # Assumptions
/// None about the runtime: a second call at the same time waits. A repeated call first removes what the
/// earlier one left.
pub(crate) fn add(
    node: &Node,
    call: &Call,
    attachment: &Attachment,
    path: &Path,
) -> Result<CniResult, cni::Error> {
    let config = Config::read(call)?;
    let prev = call.conf.prev_result()?.unwrap_or_default();
    require_room(call, &prev)?;
    let netns = pod(path, call.netns_override)?;
    let mut kernel = node.kernel(Some(&netns))?;
    let mut entry = node.journal(&call.conf.network).admit(attachment)?;
    let mut context = AddContext {
        node,
        call,
        config: &config,
        attachment,
        kernel: &mut *kernel,
        netns: &netns,
        path,
    };
    clear_earlier(&mut context, &mut entry)?;
    match add_interface(&mut context, &mut entry) {
        Ok(interface) => Ok(result(prev, &context, interface)),
        Err(Refused { error, clean }) => {
            // The journal keeps the entry if something could not be undone, so that DEL finds it. A damaged one may be
            // that of a living link.
            if clean
                && !entry.done
                && !entry.is_damaged()
                && let Err(e) = entry.remove()
            {
                tracing::warn!(error = %e, "cannot remove the attachment's journal entry");
            }
            Err(error)
        }
    }
}

/// What ADD works with before it has a plan.
struct AddContext<'a> {
    node: &'a Node,
    call: &'a Call,
    config: &'a Config,
    attachment: &'a Attachment,
    kernel: &'a mut dyn Kernel,
    netns: &'a Netns,
    path: &'a Path,
}

impl AddContext<'_> {
    /// The properties of the planned interface, which gets the device in `rdma`.
    fn interface(&self, rdma: Option<Grant>) -> PodInterface {
        let mark = Mark::new(&self.call.conf.network, self.attachment);
        PodInterface {
            ifname: self.attachment.ifname.clone(),
            rdma,
            policy_table: self.config.policy_routing.then(|| policy::table(&mark)),
            mark,
        }
    }
}

/// The interface that the pod got.
struct Interface {
    attached: Attached,
    /// The PCI function, if the pod has the whole function.
    pci: Option<PciAddress>,
}

/// Removes what an earlier, interrupted ADD left, or one for a namespace that is no longer the container's.
///
/// A complete attachment stays: its interface name makes this ADD fail. Without that interface, a DEL was killed,
/// or the namespace ended and the kernel gave its inode to the container's next one. Then the intent is the only
/// record of the hardware, or of the child that the kernel returned to the host, and this ADD replaces it.
fn clear_earlier(context: &mut AddContext<'_>, entry: &mut Entry) -> Result<(), cni::Error> {
    let Some(intent) = entry.intent.clone() else {
        return Ok(());
    };
    let attachment = context.attachment;
    let complete = entry.done && intent.netns_id == context.netns.id();
    if complete && pod_link(context.kernel, attachment.ifname.as_str())?.is_some() {
        return Ok(());
    }
    tracing::info!(%attachment, "removing what an interrupted call left");
    let target = DetachTarget {
        ipam: intent.ipam.clone(),
        intent: Some(intent),
        done: entry.done,
        notes: entry.notes().ok(),
        ..DetachTarget::new(attachment)
    };
    let caller = Caller {
        node: context.node,
        call: context.call,
        identity: &Identity::read(context.call),
    };
    take_down(&caller, &target, Some(entry))?;
    Ok(entry.forget()?)
}

/// Plans the interface, writes the intent, and makes the interface.
fn add_interface(context: &mut AddContext<'_>, entry: &mut Entry) -> Result<Interface, Refused> {
    let config = context.config;
    // DEL locks the entry too: a DEL that comes later finds what ADD makes. Before an earlier one the caller had ended.
    context.call.reader.require()?;
    device_info::require_place(
        config.device_info_file.as_deref(),
        context.node.device_info_dirs(),
    )?;
    let ipam = delegate(context.call, config)?;
    require_free_name(context.kernel, context.attachment.ifname.as_str())?;
    let mut lock = lock(context.node, config)?;
    let planned = repair::plan(context, &mut lock)?;
    tracing::debug!(plan = ?planned.kind, "plan");
    for port in planned.port_names() {
        require_free_name(context.kernel, &port)?;
    }
    // A missing IPAM plugin allocates nothing, and could not release anything either.
    if let Some(ipam) = &ipam {
        ipam.program()?;
    }
    let device_info = device_info::to_write(
        config.device_info_file.as_deref(),
        planned.hardware(),
        planned.attachable().interface().rdma.as_ref(),
    );
    let intent = planned.intent(context, device_info.as_ref().map(|(file, _)| file.clone()));
    let planned = begin(context, entry, planned, intent)?;
    // This attachment is in the journal now, so the next ADD finds it.
    drop(lock);
    let notes = entry.notes()?;
    let note = |pid| notes.running(pid);
    let mut attaching = AttachContext {
        kernel: &mut *context.kernel,
        ipam: ipam.map(|ipam| ipam.notifying(&note)),
        attachment: context.attachment,
        netns: context.path,
        netns_id: context.netns.id(),
        network: &context.call.conf.network,
        state: context.node.state(),
        device_info,
        progress: entry,
        made: Vec::new(),
        link_may_live: false,
    };
    let attached = attach(&mut attaching, planned.attachable())?;
    Ok(Interface {
        attached,
        pci: planned.whole_function(),
    })
}

/// Writes the intent to the journal. From here on this attachment owns its link.
fn begin(
    context: &mut AddContext<'_>,
    entry: &mut Entry,
    planned: Planned,
    intent: Intent,
) -> Result<Planned, Refused> {
    if let Kind::Device(plan) = &planned.kind
        && let Some(new) = plan.new_guid()
    {
        let plan = device::begin(context, entry, plan, &new, intent)?;
        let kind = Kind::Device(Box::new(plan));
        return Ok(Planned { kind, ..planned });
    }
    entry.begin(intent)?;
    Ok(planned)
}

/// Takes the lock of the node, so that the attachments of other ADDs stay as they are until this one is in the
/// journal. Alone if this ADD chooses a link or an RDMA device: two could take the last device of the host. So does
/// an ADD of an ipvlan child: two could give their parent different modes. Another child on a named link only keeps
/// other ADDs from claiming the link.
fn lock(node: &Node, config: &Config) -> Result<Option<NodeLock>, Error> {
    let chooses = matches!(config.master, Master::Preferred(_)) || config.rdma.is_some();
    let state = node.state();
    Ok(match config.mode {
        Some(Mode::Device) => Some(NodeLock::take(state)?),
        Some(Mode::Ipvlan) => NodeLock::attempt(state),
        _ if chooses => NodeLock::attempt(state),
        _ if config.link_in_container => None,
        _ => NodeLock::attempt_shared(state),
    })
}

/// The IPAM plugin, if there is one. Its configuration declares that this plugin probes the addresses it
/// marks ([`PROBES`]).
fn delegate<'c>(call: &'c Call, config: &Config) -> Result<Option<Delegate<'c>>, cni::Error> {
    let plugin = config.ipam.as_deref();
    plugin
        .map(|plugin| {
            let delegate = Delegate::new(plugin, call, config.delegate_timeout)?;
            Ok(delegate.with(PROBES, true.into()))
        })
        .transpose()
}

/// A refused ADD.
struct Refused {
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

impl From<Failed> for Refused {
    fn from(failed: Failed) -> Self {
        let clean = failed.left.is_empty();
        let mut error = cni::Error::from(failed.error);
        let cause = (!error.details.is_empty()).then_some(error.details);
        let left = failed
            .left
            .iter()
            .map(|left| format!("not undone: {left} (DEL retries)"));
        error.details = cause.into_iter().chain(left).collect::<Vec<_>>().join("; ");
        Self { error, clean }
    }
}

/// The specification requires ADD to fail if the name is in use, before it changes anything.
fn require_free_name(kernel: &mut dyn Kernel, name: &str) -> Result<(), Error> {
    match pod_link(kernel, name)? {
        Some(_) => Err(Error::IfnameInUse(name.to_owned())),
        None => Ok(()),
    }
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
fn result(prev: CniResult, context: &AddContext<'_>, interface: Interface) -> CniResult {
    let Interface { attached, pci } = interface;
    let mut result = prev;
    let index = result.interfaces.len();
    result.interfaces.push(cni::Interface {
        name: context.attachment.ifname.to_string(),
        mac: attached.link.address.to_string(),
        mtu: Some(attached.link.mtu),
        sandbox: context.path.display().to_string(),
        socket_path: String::new(),
        pci_id: pci.as_ref().map(ToString::to_string).unwrap_or_default(),
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
    let dns = if context.config.dns.is_empty() {
        attached.ipam.dns
    } else {
        context.config.dns.clone()
    };
    if !dns.is_empty() {
        result.dns = dns;
    }
    result
}

#[cfg(test)]
mod tests;
