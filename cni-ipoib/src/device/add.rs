// SPDX-License-Identifier: Apache-2.0
//! ADD of a whole link.

use super::restore::{find, leave_pod, restore_state};
use super::{Facts, Plan, function, move_in, moved, snapshot};
use crate::CniIpoib;
use crate::add::{AddContext, Interface, Refused, delegate, require_free_name};
use crate::attach::{
    AttachContext, Attached, Failed, address, allocate, apply_policy, bring_up, probe, route,
    write_device_info, write_record,
};
use crate::config::{Config, Master};
use crate::device_info::{self, Hardware};
use crate::error::{DeviceError, Error};
use crate::host::{Host, observe};
use crate::intent::Grant;
use crate::journal::{Entry, Intent, NodeLock, Written, loads, written};
use crate::kernel::{Kernel, Side};
use crate::mark::Mark;
use crate::policy;
use crate::rdma;
use crate::rdma::decide::decide;
use crate::rdma::find::Found;
use crate::rdma::movable::{Surroundings, require_movable};
use crate::rdma::transfer::bring_back;
use crate::select::{Aside, candidates, choose};
use common::cni::dispatch::Call;
use common::cni::{self, Attachment, CniResult};
use common::netlink::{Link, LinkLayer};
use common::rdma::Sysfs;
use common::undo::Undo;
use std::borrow::Cow;
use std::net::IpAddr;

/// The undo step of a virtual function that got other GUIDs.
const GUIDS_BACK: &str = "give the virtual function its GUIDs back";

impl CniIpoib {
    /// Moves the configured link into the pod.
    ///
    /// # Guarantees
    /// As ADD. On error the host's state of the link is restored.
    pub(crate) fn add_device(
        &self,
        call: &Call,
        config: &Config,
        to: &mut AddContext<'_>,
        entry: &mut Entry,
    ) -> Result<(Interface, Attached), Refused> {
        let ipam = delegate(call, config)?;
        require_free_name(to.kernel, to.attachment.ifname.as_str())?;
        let lock = NodeLock::take(&self.paths.state)?;
        let (config, why) = self.resolve_device(call, config, to)?;
        let (plan, facts) = self.plan_device(call, &config, to)?;
        tracing::debug!(?plan, "plan");
        if let Some(ipam) = &ipam {
            ipam.program()?;
        }
        let device_info = device_info::to_write(
            config.device_info_file.as_deref(),
            facts.pci.as_ref().map(Hardware::Function),
            plan.grant.as_ref(),
        );
        // From here on this attachment owns the link.
        let intent = Intent {
            device_info: device_info.as_ref().map(|(file, _)| file.clone()),
            rdma: plan.grant.clone(),
            device: Some(plan.snapshot.clone()),
            ..to.intent(&config, plan.snapshot.name.clone(), why)
        };
        let (plan, facts) = self.begin((call, &config), to, (entry, intent), (plan, facts))?;
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
        let made = Interface {
            ifname: plan.ifname,
            pci: facts.pci,
        };
        Ok((made, attached))
    }

    /// Writes the intent to the journal. If a virtual function gets a GUID, it is set here: its driver then
    /// recreates the link and the RDMA device, and the plan is made again with these.
    fn begin(
        &self,
        (call, config): (&Call, &Config),
        to: &mut AddContext<'_>,
        (entry, intent): (&mut Entry, Intent),
        (plan, facts): (Plan, Facts),
    ) -> Result<(Plan, Facts), Refused> {
        let Some((guid, function)) = plan.moved.guid.zip(plan.snapshot.function.clone()) else {
            entry.begin(intent)?;
            return Ok((plan, facts));
        };
        // The previous RDMA device disappears as soon as the driver is unbound.
        entry.begin(Intent {
            rdma: None,
            ..intent.clone()
        })?;
        let before = plan.clone();
        let mut undo = Undo::new(to);
        undo.remember(GUIDS_BACK, move |to: &mut AddContext<'_>| {
            function::give_back(to.kernel, &before).map_err(|e| cni::error::causes(&e))
        });
        let mut again = |to: &mut AddContext<'_>| {
            let link = function::give(to.kernel, &plan, &function, guid)?;
            let named = Config {
                master: Master::Named(link.name),
                ..config.clone()
            };
            let (again, facts) = self.plan_device(call, &named, to)?;
            let rdma = again.grant.clone();
            entry.amend(Intent {
                rdma,
                ..intent.clone()
            })?;
            let snapshot = plan.snapshot.clone();
            Ok((Plan { snapshot, ..again }, facts))
        };
        match again(undo.target()) {
            Ok(planned) => {
                undo.commit();
                Ok(planned)
            }
            Err(error) => {
                let left = undo.rollback();
                Err(Failed { error, left }.into())
            }
        }
    }

    /// Chooses the link if `config` leaves a choice. A link that must stay on the host is passed over, with
    /// the reason.
    fn resolve_device<'c>(
        &self,
        call: &Call,
        config: &'c Config,
        to: &mut AddContext<'_>,
    ) -> Result<(Cow<'c, Config>, Option<String>), Error> {
        let Master::Preferred(preferences) = &config.master else {
            return Ok((Cow::Borrowed(config), None));
        };
        let sysfs = Sysfs::at(&self.paths.sysfs);
        let loads = loads(&self.paths.state)?;
        let named = |name: &str| Config {
            master: Master::Named(name.to_owned()),
            ..config.clone()
        };
        let mut all = candidates(to.kernel, &sysfs, preferences, &loads)?;
        for candidate in all.iter_mut().filter(|candidate| candidate.aside.is_none()) {
            if let Err(error) = self.plan_device(call, &named(&candidate.name), to) {
                candidate.aside = Some(Aside::Always(error.to_string()));
            }
        }
        let choice = choose(preferences, &all).map_err(|passed| Error::NoMaster { passed })?;
        tracing::info!(master = %choice.name, why = %choice.why, "chose the link");
        Ok((Cow::Owned(named(&choice.name)), Some(choice.why)))
    }

    fn plan_device(
        &self,
        call: &Call,
        config: &Config,
        to: &mut AddContext<'_>,
    ) -> Result<(Plan, Facts), Error> {
        let sysfs = Sysfs::at(&self.paths.sysfs);
        let others = self.others(&call.conf.network, to.attachment)?;
        let host = observe(to.kernel, &sysfs, config)?;
        let facts = Facts::read(to.kernel, &sysfs, &host, &others)?;
        let moved = moved(config, &host, &facts)?;
        let grant = self.rdma_of(config, to.kernel, &host)?;
        let carried = facts.carried.saved.clone();
        let mark = Mark::new(&call.conf.network, to.attachment);
        let mut snapshot = snapshot::take(to.kernel, &host.master, facts.path.clone(), carried)?;
        if let (Some(guid), Some(function)) = (moved.guid, &facts.function) {
            function::physical_link(to.kernel, function)?;
            snapshot = snapshot.of_function(function.clone(), guid);
        }
        let plan = Plan {
            snapshot,
            moved,
            grant,
            ifname: to.attachment.ifname.clone(),
            policy_table: config.policy_routing.then(|| policy::table(&mark)),
            alias: mark.alias,
            others: hardware(&others),
        };
        Ok((plan, facts))
    }

    /// The journal entries of every other attachment.
    pub(crate) fn others(&self, network: &str, attachment: &Attachment) -> Result<Vec<Written>, Error> {
        let mut all = written(&self.paths.state)?;
        all.retain(|of| of.network != network || of.attachment != *attachment);
        Ok(all)
    }

    /// The RDMA device of the link. In exclusive mode it moves with the link.
    fn rdma_of(&self, config: &Config, kernel: &mut dyn Kernel, host: &Host) -> Result<Option<Grant>, Error> {
        let sysfs = Sysfs::at(&self.paths.sysfs);
        let facts = rdma::Facts::read(kernel, &sysfs, Side::Host, &host.master)?;
        // A request for a whole link includes its RDMA device.
        let asked = config.rdma.clone().unwrap_or_default();
        let Some((grant, found)) = decide(Some(&asked), &facts, Ok(()))? else {
            return Ok(None);
        };
        if grant.moved().is_some() {
            let around = Surroundings::read(kernel, &sysfs, &self.paths.state, &found)?;
            let spare = !config.keep_last;
            require_movable(&found, &Surroundings { spare, ..around })?;
            require_only_port(host, &found)?;
        }
        Ok(Some(grant))
    }
}

/// A device moves with all of its ports, and with the `IPoIB` links on them.
fn require_only_port(host: &Host, found: &Found<'_>) -> Result<(), Error> {
    let device = &found.seen.device;
    let others = device
        .ports
        .iter()
        .filter(|port| port.number != found.port.number);
    let numbers: Vec<String> = others.map(|port| port.number.to_string()).collect();
    if numbers.is_empty() {
        return Ok(());
    }
    Err(DeviceError::Kept {
        link: host.master.name.clone(),
        reason: format!(
            "its RDMA device {} would leave the host with port {} too",
            device.name,
            numbers.join(", ")
        ),
        remedy: "use a device with one port, or an RDMA subsystem in shared mode".to_owned(),
    }
    .into())
}

/// The hardware of the links that are in pods.
pub(super) fn hardware(written: &[Written]) -> Vec<crate::intent::Hardware> {
    let devices = written.iter().filter_map(|of| of.intent.device.as_ref());
    devices
        .filter(|was| was.is_of_this_boot())
        .map(|was| was.hardware.clone())
        .collect()
}

/// Executes the plan, or leaves everything as it was.
fn attach(context: &mut AttachContext<'_>, plan: &Plan) -> Result<Attached, Failed> {
    let mut undo = Undo::new(context);
    match steps(&mut undo, plan) {
        Ok(attached) => {
            undo.commit();
            Ok(attached)
        }
        Err(error) => Err(Failed {
            error,
            left: undo.rollback(),
        }),
    }
}

fn steps(undo: &mut Undo<'_, AttachContext<'_>>, plan: &Plan) -> Result<Attached, Error> {
    let planned = plan.clone();
    if plan.snapshot.function.is_some() {
        undo.remember(GUIDS_BACK, move |context| {
            function::give_back(context.kernel, &planned).map_err(|e| cni::error::causes(&e))
        });
    }
    let ipam = allocate(undo)?;
    let planned = plan.clone();
    undo.remember("give the link back to the host", move |context| {
        give_back(context.kernel, &planned)
            .map(|()| context.link_may_live = false)
            .map_err(|e| cni::error::causes(&e))
    });
    undo.target().link_may_live = true;
    let kernel = &mut *undo.target().kernel;
    let link = move_in::move_in(kernel, plan)?;
    address(kernel, &link, &ipam.ips)?;
    if plan.policy_table.is_some() {
        policy::prepare(kernel, &link, &ipam.ips)?;
    }
    bring_up(kernel, &link)?;
    probe(kernel, &link, &ipam.ips, plan.moved.carrier_timeout)?;
    route(kernel, &link, &ipam)?;
    apply_policy(undo, &link, plan.policy_table, &ipam)?;
    let link = await_carrier(&mut *undo.target().kernel, &link, plan)?;
    if let Some(grant) = &plan.grant {
        write_record(undo, grant)?;
    }
    write_device_info(undo)?;
    announce(&mut *undo.target().kernel, &link, &ipam);
    undo.target().diary.finish()?;
    Ok(Attached { link, ipam })
}

/// Undoes an ADD at any stage.
fn give_back(kernel: &mut dyn Kernel, plan: &Plan) -> Result<(), Error> {
    let was = &plan.snapshot;
    if let Some(identity) = plan.grant.as_ref().and_then(Grant::moved) {
        bring_back(kernel, identity)?;
    }
    leave_pod(kernel, was)?;
    match find(kernel, Side::Host, &was.hardware)? {
        Some(link) => restore_state(kernel, &link, was, &plan.others),
        None => Err(DeviceError::Lost {
            link: was.name.clone(),
            reason: "it is neither in the pod nor on the host".to_owned(),
        }
        .into()),
    }
}

/// Waits for carrier. Without it an `IPoIB` link reaches no other host.
fn await_carrier(kernel: &mut dyn Kernel, link: &Link, plan: &Plan) -> Result<Link, Error> {
    let timeout = plan.moved.carrier_timeout;
    let step = || format!("wait for the carrier of {}", link.name);
    let refused = |source| Error::Kernel { step: step(), source };
    let carrier = kernel.wait_for_carrier(link.index, timeout).map_err(refused)?;
    if !carrier && link.layer == LinkLayer::Infiniband {
        return Err(Error::NoCarrier {
            ifname: plan.ifname.clone(),
            waited: timeout,
            reason: "it could not join the broadcast group of its partition; is a subnet manager running, and the port active?"
                .to_owned(),
        });
    }
    if !carrier {
        tracing::warn!(
            link = link.name,
            "link has no carrier yet; the pod starts without it"
        );
    }
    let now = kernel.link_by_index(Side::Pod, link.index).map_err(refused)?;
    let now = now.ok_or_else(|| DeviceError::Lost {
        link: plan.snapshot.name.clone(),
        reason: format!("{} left the pod while it was waited for", plan.ifname),
    })?;
    match plan.moved.mtu {
        Some(want) if now.mtu != want => Err(Error::MtuNotApplied {
            ifname: plan.ifname.clone(),
            got: now.mtu,
            want,
        }),
        _ => Ok(now),
    }
}

/// The kernel announced the addresses when the link came up, but its port had not regained carrier by then.
fn announce(kernel: &mut dyn Kernel, link: &Link, ipam: &CniResult) {
    let addresses: Vec<IpAddr> = ipam.ips.iter().map(|ip| ip.address.ip()).collect();
    if let Err(error) = kernel.announce(link, &addresses) {
        tracing::warn!(link = link.name, %error, "cannot announce the addresses to the neighbours");
    }
}

#[cfg(test)]
mod tests;
