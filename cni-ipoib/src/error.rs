// SPDX-License-Identifier: Apache-2.0
//! Everything that can go wrong, and the one table from there to CNI codes.

use crate::config::Mode;
use crate::device::DeviceError;
use crate::rdma::RdmaError;
use crate::select::{self, PassedOver};
use common::cni::{self, Code, IfName};
use common::lock::holder;
use common::netlink;
use common::probe::Claim;
use common::rdma::{Guid, Pkey};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A failure of this plugin. The message names the thing, its value, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key's value can never be right.
    #[error("{key} is {value}, want {want}")]
    BadValue {
        /// The key as written.
        key: &'static str,
        /// Its value as written.
        value: String,
        /// What would be right.
        want: String,
    },
    /// A key's value is not a word that it knows.
    #[error("{key}: {reason}")]
    BadWord {
        /// The key as written.
        key: &'static str,
        /// Its value, and the words that are known.
        reason: String,
    },
    /// A key's value is sound but not served here.
    #[error("{key} {value} is not supported: {remedy}")]
    Unsupported {
        /// The key as written.
        key: &'static str,
        /// Its value.
        value: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// Connected mode is asked for on a link that has datagram mode alone.
    #[error(
        "ipoibMode connected is not supported: {master} has only datagram mode, as its driver {driver} moves the packets itself; set ipoibMode to datagram, or leave it out"
    )]
    NoConnectedMode {
        /// The parent.
        master: String,
        /// What its driver calls itself.
        driver: String,
    },
    /// A pod asks for something that its network does not offer.
    #[error(
        "{key} asks for {value}, which this network does not let pods choose; add \"capabilities\": {{\"{capability}\": true}} to the network, or remove the request from the pod's annotation"
    )]
    NotOffered {
        /// Where the request stands.
        key: &'static str,
        /// What is asked for.
        value: String,
        /// The capability that would allow it.
        capability: &'static str,
    },
    /// A key is set that only another mode has.
    #[error("{key} is for mode {its}, but the mode is {mode}; remove {key} or change the mode")]
    KeyOfOtherMode {
        /// The key.
        key: &'static str,
        /// The mode that has it.
        its: Mode,
        /// The mode that was chosen or follows from the parent.
        mode: Mode,
    },
    /// The configuration names no parent.
    #[error(
        "master is not set, and no device plugin chose a device (is its resource among the pod's limits and in the network's annotation k8s.v1.cni.cncf.io/resourceName?); RDMA-capable links of this node: {candidates}"
    )]
    MasterUnset {
        /// What could be named.
        candidates: Candidates,
    },
    /// The named parent does not exist.
    #[error("master {name:?} does not exist {place}; RDMA-capable links of this node: {candidates}")]
    MasterMissing {
        /// The name, altname or device.
        name: String,
        /// Where it was looked for.
        place: &'static str,
        /// What could be named.
        candidates: Candidates,
    },
    /// Of everything that the configuration names or describes nothing can be the parent.
    #[error("no link of this node fits master: {}", passed_over(passed))]
    NoMaster {
        /// What was looked at.
        passed: Vec<PassedOver>,
    },
    /// The device a device plugin chose has no network interface here.
    #[error(
        "device {id} has no network interface in the host's namespace; is it bound to its driver, or already in a pod?"
    )]
    DeviceWithoutLink {
        /// PCI address or auxiliary device name.
        id: String,
    },
    /// The node has no default route whose link could be the parent.
    #[error("master is not set and there is no default route to take it from; set master")]
    NoDefaultRoute,
    /// The parent's link layer does not carry this kind of child.
    #[error("{master} is {layer}: {mode} needs {want}; use {instead}")]
    WrongLinkLayer {
        /// The parent.
        master: String,
        /// Its link layer.
        layer: &'static str,
        /// The mode asked for.
        mode: Mode,
        /// What that mode needs.
        want: &'static str,
        /// What to use.
        instead: &'static str,
    },
    /// The parent is of a kind that carries no child at all.
    #[error("{master} is {what}: it carries no {mode} child; {remedy}")]
    WrongKind {
        /// The parent.
        master: String,
        /// What it is.
        what: String,
        /// The mode.
        mode: Mode,
        /// What to use.
        remedy: String,
    },
    /// The parent carries no traffic.
    #[error("{master} {reason}")]
    MasterDown {
        /// The parent.
        master: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The partition key is not in the port's table.
    #[error(
        "pkey {pkey} is not in the table of {port} (it has {}); have the subnet manager add this port to the partition",
        list(table)
    )]
    PkeyAbsent {
        /// The key.
        pkey: Pkey,
        /// Device and port.
        port: String,
        /// The table.
        table: Vec<Pkey>,
    },
    /// The MTU is more than the parent carries.
    #[error("mtu {mtu} is more than {master} carries in {what}: {max}; lower it or leave it out")]
    MtuTooLarge {
        /// Asked for, in bytes.
        mtu: u32,
        /// The parent.
        master: String,
        /// What limits it.
        what: &'static str,
        /// The limit in bytes.
        max: u32,
    },
    /// The kernel gave the child another MTU than was asked for.
    #[error(
        "{ifname} has MTU {got}, not {want}: the multicast group of its partition allows no more; lower mtu, or raise it in the subnet manager's partition configuration"
    )]
    MtuNotApplied {
        /// The child.
        ifname: IfName,
        /// In effect, in bytes.
        got: u32,
        /// Asked for, in bytes.
        want: u32,
    },
    /// An `IPoIB` child cannot have the address asked for.
    #[error(
        "{key} {value} cannot be given to a child of {master}: its children answer at the port's GUID {guid}; remove {key}, or use a virtual function"
    )]
    AddressOfPort {
        /// The key it came from.
        key: &'static str,
        /// The address or GUID.
        value: String,
        /// The parent.
        master: String,
        /// The port's GUID.
        guid: Guid,
    },
    /// A bond cannot have an address of its own.
    #[error(
        "{key} {value} cannot be given to an interface on {master}: a bond of InfiniBand ports has the address of its active port; remove {key}"
    )]
    AddressOfBond {
        /// The key it came from.
        key: &'static str,
        /// The address or GUID.
        value: String,
        /// The parent.
        master: String,
    },
    /// The pod has an interface of that name.
    #[error("the pod already has an interface {0}; choose another name in the pod's network annotation")]
    IfnameInUse(String),
    /// The container's namespace is gone.
    #[error("CNI_NETNS {0} does not exist: the container is gone")]
    NetnsGone(PathBuf),
    /// `CNI_NETNS` names something else.
    #[error("CNI_NETNS {path} is {what}; want the path of the container's network namespace")]
    NetnsWrong {
        /// The path.
        path: PathBuf,
        /// What is there.
        what: String,
    },
    /// The kernel refused a step.
    #[error("cannot {step}")]
    Kernel {
        /// What was to be done, to what.
        step: String,
        /// The kernel's answer.
        #[source]
        source: netlink::Error,
    },
    /// The child got no carrier in time.
    #[error("{ifname} has no carrier after {waited:?}: {reason}")]
    NoCarrier {
        /// The child.
        ifname: IfName,
        /// How long it was waited for.
        waited: Duration,
        /// What may be wrong, and what to do.
        reason: String,
    },
    /// The IPAM plugin answered without an address.
    #[error("ipam plugin {0} answered without an address; check its ranges")]
    NoAddress(String),
    /// Another host answers for an address that the pod was given.
    #[error(
        "{} answers on the network of {ifname} already, at {}: another host has the address; find that host, or keep the address out of the range or pool (exclude), and create the pod again",
        claim.address, answered_at(claim)
    )]
    AddressAnswered {
        /// The pod's interface.
        ifname: String,
        /// The answer.
        claim: Claim,
    },
    /// The neighbours could not be asked about an address.
    #[error(
        "cannot probe the addresses of {ifname}; the plugin needs CAP_NET_RAW, and the interface must stay up"
    )]
    Probe {
        /// The pod's interface.
        ifname: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file of our own, or of the kernel's, could not be read or written.
    #[error("cannot {what} {path}; {remedy}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What to do about it.
        remedy: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another call for the same attachment is still at work.
    #[error("another call for {0} is still running; try again")]
    Busy(cni::Attachment),
    /// Another process holds a lock for longer than any call of ours does.
    #[error(
        "{path} has been locked for {waited:?} by {holder}; if that is a CNI plugin, try again, otherwise end that process"
    )]
    Locked {
        /// The folder that the lock lies on.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
        /// The process.
        holder: String,
    },
    /// CHECK found differences.
    #[error("{ifname} is not as ADD left it: {}", findings.join("; "))]
    Changed {
        /// The interface.
        ifname: IfName,
        /// What differs.
        findings: Vec<String>,
    },
    /// CHECK was given no result to compare with.
    #[error("CHECK needs prevResult with the interface {0}; the runtime must pass the result of ADD")]
    NoPrevResult(IfName),
    /// The RDMA device cannot be had, or not be brought back.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// A whole link cannot be moved, or not be put back.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A delegate's error, or one that has its code already.
    #[error(transparent)]
    Cni(#[from] cni::Error),
}

impl Error {
    /// The refusal of a call that waited `waited` for the lock on the folder `path`.
    pub(crate) fn locked(path: &Path, file: &File, waited: Duration) -> Self {
        Self::Locked {
            path: path.to_owned(),
            waited,
            holder: holder(file),
        }
    }

    /// Whether the parent carries nothing, so that pods already on it are cut off, too.
    pub(crate) fn is_down(&self) -> bool {
        match self {
            Self::MasterDown { .. } => true,
            Self::NoMaster { passed } => passed.iter().any(|one| one.down),
            _ => false,
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::Unsupported { .. } | Self::NoConnectedMode { .. } => Code::UNSUPPORTED_FIELD,
            // One that would fit once it carries traffic: the cable is at fault, not the configuration.
            Self::NoMaster { .. } if self.is_down() => Code::NO_CARRIER,
            Self::BadValue { .. }
            | Self::BadWord { .. }
            | Self::NotOffered { .. }
            | Self::KeyOfOtherMode { .. }
            | Self::MasterUnset { .. }
            | Self::MasterMissing { .. }
            | Self::NoMaster { .. }
            | Self::DeviceWithoutLink { .. }
            | Self::NoDefaultRoute
            | Self::WrongLinkLayer { .. }
            | Self::WrongKind { .. }
            | Self::PkeyAbsent { .. }
            | Self::MtuTooLarge { .. }
            | Self::MtuNotApplied { .. }
            | Self::AddressOfPort { .. }
            | Self::AddressOfBond { .. }
            | Self::NoPrevResult(_) => Code::INVALID_CONFIG,
            Self::MasterDown { .. } | Self::NoCarrier { .. } => Code::NO_CARRIER,
            Self::IfnameInUse(_) => Code::IFNAME_IN_USE,
            Self::NetnsGone(_) => Code::UNKNOWN_CONTAINER,
            Self::NetnsWrong { .. } => Code::INVALID_ENVIRONMENT,
            Self::Kernel { .. } | Self::Probe { .. } => Code::KERNEL,
            Self::AddressAnswered { .. } => Code::ADDRESS_ANSWERED,
            Self::NoAddress(_) => Code::DELEGATE,
            Self::Io { .. } => Code::IO,
            Self::Busy(_) | Self::Locked { .. } => Code::TRY_AGAIN,
            Self::Changed { .. } => Code::CHECK_FAILED,
            Self::Rdma(error) => error.code(),
            Self::Device(error) => error.code(),
            Self::Cni(error) => error.code,
        }
    }
}

impl From<Error> for cni::Error {
    fn from(error: Error) -> Self {
        if let Error::Cni(error) = error {
            return error;
        }
        let details = std::error::Error::source(&error)
            .map(cni::error::causes)
            .unwrap_or_default();
        Self::new(error.code(), error.to_string()).with_details(details)
    }
}

/// Links that a configuration could name, with what a person needs to choose one.
#[derive(Debug, Default)]
pub struct Candidates(pub Vec<String>);

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("none (is the driver loaded?)"),
            all => f.write_str(&all.join(", ")),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipoib => "ipoib",
            Self::Device => "device",
            Self::Macvlan => "macvlan",
            Self::Ipvlan => "ipvlan",
        })
    }
}

/// The hardware address that answered, and on InfiniBand the port it belongs to.
fn answered_at(claim: &Claim) -> String {
    let Some(hardware) = &claim.hardware else {
        return "a hardware address that the answer does not name".to_owned();
    };
    match hardware.port_guid() {
        Some(guid) => format!("{hardware} (port GUID {guid})"),
        None => hardware.to_string(),
    }
}

fn passed_over(passed: &[PassedOver]) -> String {
    match passed {
        [] => "it has no RDMA-capable link (is the driver loaded?)".to_owned(),
        all => select::list(all),
    }
}

fn list(table: &[Pkey]) -> String {
    table
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests;
