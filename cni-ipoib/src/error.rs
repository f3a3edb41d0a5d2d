// SPDX-License-Identifier: Apache-2.0
//! The errors of this plugin and their CNI codes; those of devices and RDMA are in the modules below.

mod device;
mod passed_over;
mod rdma;

pub use device::DeviceError;
pub use passed_over::PassedOver;
pub(crate) use passed_over::list as list_passed_over;
pub use rdma::RdmaError;

use crate::mode::Mode;
use common::cni::{self, Code, IfName};
use common::netlink;
use common::probe::Claim;
use common::rdma::{Guid, Pkey};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An error of this plugin. The message names the thing, its value, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key has an invalid value.
    #[error("{key} is {value}, want {want}")]
    BadValue {
        /// The key as written.
        key: &'static str,
        /// Its value as written.
        value: String,
        /// A valid value.
        want: String,
    },
    /// A key's value is not one of its words.
    #[error("{key}: {reason}")]
    BadWord {
        /// The key as written.
        key: &'static str,
        /// Its value, and the known words.
        reason: String,
    },
    /// A key's value is valid but not supported.
    #[error("{key} {value} is not supported: {remedy}")]
    Unsupported {
        /// The key as written.
        key: &'static str,
        /// Its value.
        value: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// Connected mode was requested on a link that has only datagram mode.
    #[error(
        "ipoibMode connected is not supported: {master} has only datagram mode, as its driver {driver} moves the packets itself; set ipoibMode to datagram, or leave it out"
    )]
    NoConnectedMode {
        /// The parent.
        master: String,
        /// The name of its driver.
        driver: String,
    },
    /// A pod requests a value that its network does not offer.
    #[error(
        "{key} asks for {value}, which this network does not let pods choose; add \"capabilities\": {{\"{capability}\": true}} to the network, or remove the request from the pod's annotation"
    )]
    NotOffered {
        /// The key of the request.
        key: &'static str,
        /// The requested value.
        value: String,
        /// The capability that would allow it.
        capability: &'static str,
    },
    /// A key of another mode is set.
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
        /// The links that could be named.
        candidates: Candidates,
    },
    /// The named parent does not exist.
    #[error("master {name:?} does not exist {place}; RDMA-capable links of this node: {candidates}")]
    MasterMissing {
        /// The name, altname or device.
        name: String,
        /// The place that was searched.
        place: &'static str,
        /// The links that could be named.
        candidates: Candidates,
    },
    /// No link that the configuration names or describes can be the parent.
    #[error("no link of this node fits master: {}", passed_over(passed))]
    NoMaster {
        /// The links that were passed over.
        passed: Vec<PassedOver>,
    },
    /// The device of a device plugin has no network interface on the host.
    #[error(
        "device {id} has no network interface in the host's namespace; is it bound to its driver, or already in a pod?"
    )]
    DeviceWithoutLink {
        /// PCI address or auxiliary device name.
        id: String,
    },
    /// The id of a device plugin is no name of a device.
    #[error(
        "device id {id:?} names no link: it is neither a PCI address nor an auxiliary device, but such an id as the RDMA shared device plugin allocates; set master to choose the link (device in a host-device configuration); RDMA-capable links of this node: {candidates}"
    )]
    IdWithoutDevice {
        /// The id, e.g. `17`.
        id: String,
        /// The links that could be named.
        candidates: Candidates,
    },
    /// The node has no default route, whose link would be the parent.
    #[error("master is not set and there is no default route to take it from; set master")]
    NoDefaultRoute,
    /// The parent's link layer does not support this kind of child.
    #[error("{master} is {layer}: {mode} needs {want}; use {instead}")]
    WrongLinkLayer {
        /// The parent.
        master: String,
        /// Its link layer.
        layer: &'static str,
        /// The requested mode.
        mode: Mode,
        /// The link layer that the mode requires.
        want: &'static str,
        /// The alternative.
        instead: &'static str,
    },
    /// The parent is of a kind that supports no such child.
    #[error("{master} is {what}: it carries no {mode} child; {remedy}")]
    WrongKind {
        /// The parent.
        master: String,
        /// Its kind.
        what: String,
        /// The mode.
        mode: Mode,
        /// The remedy.
        remedy: String,
    },
    /// The parent has a use or another child beside which it cannot have this child.
    #[error("{master} cannot have {child}: {reason}; {remedy}")]
    Occupied {
        /// The parent.
        master: String,
        /// The requested child, e.g. `a macvlan child`.
        child: &'static str,
        /// The use, or the other child.
        reason: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The parent carries no traffic.
    #[error("{master} {reason}")]
    MasterDown {
        /// The parent.
        master: String,
        /// The reason and the remedy.
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
    /// The MTU exceeds the parent's limit.
    #[error("mtu {mtu} is more than {master} carries in {what}: {max}; lower it or leave it out")]
    MtuTooLarge {
        /// The requested MTU, in bytes.
        mtu: u32,
        /// The parent.
        master: String,
        /// The cause of the limit.
        what: &'static str,
        /// The limit in bytes.
        max: u32,
    },
    /// The kernel set another MTU on the child than requested.
    #[error(
        "{ifname} has MTU {got}, not {want}: the multicast group of its partition allows no more; lower mtu, or raise it in the subnet manager's partition configuration"
    )]
    MtuNotApplied {
        /// The child.
        ifname: IfName,
        /// The MTU in effect, in bytes.
        got: u32,
        /// The requested MTU, in bytes.
        want: u32,
    },
    /// An `IPoIB` child cannot have the requested address.
    #[error(
        "{key} {value} cannot be given to a child of {master}: its children answer at the port's GUID {guid}; remove {key}, or use a virtual function"
    )]
    AddressOfPort {
        /// The key of the request.
        key: &'static str,
        /// The address or GUID.
        value: String,
        /// The parent.
        master: String,
        /// The port's GUID.
        guid: Guid,
    },
    /// A bond cannot have a requested address.
    #[error(
        "{key} {value} cannot be given to an interface on {master}: a bond of InfiniBand ports has the address of its active port; remove {key}"
    )]
    AddressOfBond {
        /// The key of the request.
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
    /// `CNI_NETNS` is not the path of a container's namespace.
    #[error("CNI_NETNS {path} is {what}; want the path of the container's network namespace")]
    NetnsWrong {
        /// The path.
        path: PathBuf,
        /// A description of the file.
        what: String,
    },
    /// The kernel refused a step.
    #[error("cannot {step}")]
    Kernel {
        /// The step and its object.
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
        /// How long ADD waited.
        waited: Duration,
        /// The probable cause and the remedy.
        reason: String,
    },
    /// The IPAM plugin answered without an address.
    #[error("ipam plugin {0} answered without an address; check its ranges")]
    NoAddress(String),
    /// Another host uses an address that the pod got, or probes for it.
    #[error("{}", claimed(ifname, claim))]
    AddressAnswered {
        /// The pod's interface.
        ifname: String,
        /// The answer.
        claim: Claim,
    },
    /// The probe of an address failed.
    #[error(
        "cannot probe the addresses of {ifname}; the plugin needs CAP_NET_RAW, and the interface must stay up"
    )]
    Probe {
        /// The pod's interface.
        ifname: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file of this plugin or of the kernel could not be read or written.
    #[error("cannot {what} {path}; {remedy}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The remedy.
        remedy: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another call for the same attachment is still at work.
    #[error("another call for {0} is still running; try again")]
    Busy(cni::Attachment),
    /// Another process holds a lock for longer than any call of this plugin does.
    #[error(
        "{path} has been locked for {waited:?} by {holder}; if that is a CNI plugin, try again, otherwise end that process"
    )]
    Locked {
        /// The locked directory.
        path: PathBuf,
        /// How long the call waited.
        waited: Duration,
        /// The process.
        holder: String,
    },
    /// CHECK found differences.
    #[error("{ifname} is not as ADD left it: {}", findings.join("; "))]
    Changed {
        /// The interface.
        ifname: IfName,
        /// The differences.
        findings: Vec<String>,
    },
    /// CHECK got no result to compare with.
    #[error("CHECK needs prevResult with the interface {0}; the runtime must pass the result of ADD")]
    NoPrevResult(IfName),
    /// The RDMA device cannot be granted or returned.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// A whole link cannot be moved or restored.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A delegate's error, or another one that has its code already.
    #[error(transparent)]
    Cni(#[from] cni::Error),
}

impl Error {
    /// The refusal of a call that waited `waited` for the lock on the directory `path`.
    pub(crate) fn locked(path: &Path, waited: Duration, holder: String) -> Self {
        Self::Locked {
            path: path.to_owned(),
            waited,
            holder,
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
            | Self::IdWithoutDevice { .. }
            | Self::NoDefaultRoute
            | Self::WrongLinkLayer { .. }
            | Self::WrongKind { .. }
            | Self::Occupied { .. }
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
            [] => f.write_str("none (is the driver loaded? On InfiniBand it also takes the module ib_ipoib: modprobe ib_ipoib)"),
            all => f.write_str(&all.join(", ")),
        }
    }
}

/// The hardware address that answered, and on InfiniBand the port it belongs to.
fn claimed(ifname: &str, claim: &Claim) -> String {
    let (address, at) = (claim.address, answered_at(claim));
    if claim.probes {
        return format!(
            "a host at {at} probes for {address} on the network of {ifname} at this moment: two hosts were given the address; keep it out of one of their ranges or pools (exclude), and create the pod again"
        );
    }
    format!(
        "{address} answers on the network of {ifname} already, at {at}: another host has the address; find that host, or keep the address out of the range or pool (exclude), and create the pod again"
    )
}

fn answered_at(claim: &Claim) -> String {
    let Some(hardware) = &claim.hardware else {
        return "a hardware address that its message does not name".to_owned();
    };
    match hardware.port_guid() {
        Some(guid) => format!("{hardware} (port GUID {guid})"),
        None => hardware.to_string(),
    }
}

fn passed_over(passed: &[PassedOver]) -> String {
    match passed {
        [] => "it has no RDMA-capable link (is the driver loaded? On InfiniBand it also takes the module ib_ipoib: modprobe ib_ipoib)".to_owned(),
        all => list_passed_over(all),
    }
}

/// Names the step that failed when the kernel refuses a request.
pub(crate) trait Step<T> {
    /// `step` completes the sentence "cannot {step}".
    ///
    /// # Errors
    /// [`Error::Kernel`].
    fn step<S: Into<String>>(self, step: impl FnOnce() -> S) -> Result<T, Error>;
}

impl<T> Step<T> for Result<T, netlink::Error> {
    fn step<S: Into<String>>(self, step: impl FnOnce() -> S) -> Result<T, Error> {
        self.map_err(|source| Error::Kernel {
            step: step().into(),
            source,
        })
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
