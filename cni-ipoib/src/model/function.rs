// SPDX-License-Identifier: Apache-2.0
use super::kernel::{ModelKernel, State, errno};
use crate::intent::Function;
use crate::kernel::{Side, VirtualFunctions};
use common::netlink::{Error, FunctionState, HwAddress, Link, RdmaDevice};
use common::rdma::Guid;
use nix::errno::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A virtual function with one `IPoIB` link and one RDMA device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Virtual {
    /// The link of its physical function.
    pub(crate) physical: u32,
    pub(crate) number: u32,
    /// Its device in the notation of links, e.g. `pci/0000:3b:00.2`.
    pub(crate) device: String,
    /// The index of its RDMA device, a new one each time.
    pub(crate) rdma: u32,
    /// The GUIDs that the physical function has set, of its RDMA device and of its port.
    pub(crate) node_guid: Guid,
    pub(crate) port_guid: Guid,
    /// The link state that the physical function has set; `None` if its driver has none.
    pub(crate) link_state: Option<FunctionState>,
    /// Its link before it was unbound.
    pub(crate) unbound: Option<(Link, RdmaDevice)>,
    /// Its driver ignores a new GUID.
    pub(crate) stubborn: bool,
    /// The directory of its RDMA device.
    pub(crate) sysfs: PathBuf,
    /// How many requests after a bind udev names the link and the RDMA device as they were before. Until then they have
    /// the kernel's names. Without a value, both return under their names.
    pub(crate) udev: Option<(usize, usize)>,
}

/// The name that the kernel gives to an RDMA device before udev renames it.
const KERNELS_NAME: &str = "mlx5_9";

/// A link or RDMA device of the host that udev is about to rename.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rename {
    /// The number of requests until then.
    requests: usize,
    /// The directory of its class in sysfs.
    class: PathBuf,
    from: String,
    to: String,
}

impl State {
    /// Whether `link` is on a virtual function whose physical function keeps its port down.
    pub(super) fn is_kept_down(&self, link: &Link) -> bool {
        self.functions.iter().any(|of| {
            of.link_state == Some(FunctionState::Disable) && link.device.as_ref() == Some(&of.device)
        })
    }

    fn unbind(&mut self, device: &str) -> Result<(), Error> {
        let Some(at) = self.functions.iter().position(|of| of.device == device) else {
            return errno(Errno::ENODEV);
        };
        for Rename { class, from, to, .. } in std::mem::take(&mut self.renames) {
            self.rename(&class, &from, &to);
        }
        let rdma = self.functions[at].rdma;
        let seen = self.rdma.devices.iter().position(|(_, of)| of.index == rdma);
        let mut unbound = None;
        for side in [Side::Host, Side::Pod] {
            let own = |link: &Link| link.device.as_deref() == Some(device);
            if let (Some(link), Some(seen)) = (self.on(side).iter().position(own), seen) {
                let mut link = self.on_mut(side).remove(link);
                self.strip(&mut link);
                unbound = Some((link, self.rdma.devices.remove(seen).1));
                break;
            }
        }
        if unbound.is_some() {
            self.functions[at].unbound = unbound;
        }
        Ok(())
    }

    fn bind(&mut self, device: &str) -> Result<bool, Error> {
        let Some(function) = self.functions.iter_mut().find(|of| of.device == device) else {
            return errno(Errno::ENODEV);
        };
        let Some((mut link, mut rdma)) = function.unbound.take() else {
            return Ok(false);
        };
        if !function.stubborn {
            let mut bytes = link.address.as_bytes().to_vec();
            bytes[12..].copy_from_slice(&function.port_guid.0.to_be_bytes());
            link.address = HwAddress::new(bytes);
            rdma.node_guid = function.node_guid;
            let gid = format!("fe80:0000:0000:0000:{}\n", function.port_guid);
            fs::write(function.sysfs.join("ports/1/gids/0"), gid).unwrap();
            fs::write(
                function.sysfs.join("node_guid"),
                format!("{}\n", function.node_guid),
            )
            .unwrap();
        }
        function.rdma += 10;
        for port in self
            .rdma
            .ports
            .iter_mut()
            .filter(|port| port.device == rdma.index)
        {
            port.device = function.rdma;
        }
        rdma.index = function.rdma;
        let guid = link.address.port_guid().unwrap();
        let was = [link.name.clone(), rdma.name.clone()];
        let (udev, sysfs) = (function.udev, function.sysfs.clone());
        self.rdma.devices.push((Side::Host, rdma));
        self.host.push(link);
        self.remake_ipoib(guid, Side::Host);
        if let Some(requests) = udev {
            self.rename_later(requests, was, guid, &sysfs);
        }
        Ok(true)
    }

    /// The link with this GUID and its RDMA device get the kernel's names now, and the names `was` later.
    fn rename_later(&mut self, requests: (usize, usize), was: [String; 2], guid: Guid, sysfs: &Path) {
        let [link, device] = was;
        let on_port = |link: &&Link| link.address.port_guid() == Some(guid);
        let made = self.host.iter().find(on_port).unwrap().name.clone();
        let devices = sysfs.parent().unwrap().to_owned();
        let links = devices.with_file_name("net");
        self.rename(&devices, &device, KERNELS_NAME);
        // The kernel has given the link its name; sysfs follows.
        self.rename(&links, &link, &made);
        let later = |requests, class, from: &str, to| Rename {
            requests,
            class,
            from: from.to_owned(),
            to,
        };
        self.renames.push(later(requests.0, links, &made, link));
        self.renames
            .push(later(requests.1, devices, KERNELS_NAME, device));
    }

    /// Counts one request, and renames what is due.
    pub(super) fn let_udev_rename(&mut self) {
        for rename in &mut self.renames {
            rename.requests = rename.requests.saturating_sub(1);
        }
        let (due, later) = self.renames.drain(..).partition(|rename| rename.requests == 0);
        self.renames = later;
        let due: Vec<Rename> = due;
        for Rename { class, from, to, .. } in due {
            self.rename(&class, &from, &to);
        }
    }

    /// Renames a link or an RDMA device of the host, and its directory in sysfs.
    fn rename(&mut self, class: &Path, from: &str, to: &str) {
        let links = self.host.iter_mut().map(|link| &mut link.name);
        let on_host = self
            .rdma
            .devices
            .iter_mut()
            .filter(|(side, _)| *side == Side::Host);
        let devices = on_host.map(|(_, device)| &mut device.name);
        for name in links.chain(devices).filter(|name| **name == from) {
            to.clone_into(name);
        }
        if class.join(from).exists() {
            fs::rename(class.join(from), class.join(to)).unwrap();
        }
    }
}

impl VirtualFunctions for ModelKernel {
    fn set_function_guids(
        &mut self,
        physical: u32,
        number: u32,
        node: Guid,
        port: Guid,
    ) -> Result<(), Error> {
        self.ask(
            format!("set the GUIDs of function {number} of #{physical}: {node} {port}"),
            |model| {
                let mut all = model.state.functions.iter_mut();
                let Some(function) = all.find(|of| (of.physical, of.number) == (physical, number)) else {
                    return errno(Errno::EINVAL);
                };
                function.node_guid = node;
                // As mlx5's firmware.
                if port == Guid(0) {
                    return errno(Errno::EINVAL);
                }
                function.port_guid = port;
                Ok(())
            },
        )
    }

    fn function_state(&mut self, physical: u32, number: u32) -> Result<Option<FunctionState>, Error> {
        let text = format!("read the link state of function {number} of #{physical}");
        self.ask(text, |model| {
            let mut all = model.state.functions.iter();
            let function = all.find(|of| (of.physical, of.number) == (physical, number));
            Ok(function.and_then(|of| of.link_state))
        })
    }

    fn set_function_state(&mut self, physical: u32, number: u32, state: FunctionState) -> Result<(), Error> {
        let text = format!("set the link state of function {number} of #{physical}: {state:?}");
        self.ask(text, |model| {
            let mut all = model.state.functions.iter_mut();
            match all.find(|of| (of.physical, of.number) == (physical, number)) {
                Some(Virtual { link_state: None, .. }) => errno(Errno::EOPNOTSUPP),
                Some(function) => {
                    function.link_state = Some(state);
                    Ok(())
                }
                None => errno(Errno::EINVAL),
            }
        })
    }

    fn unbind_function(&mut self, function: &Function) -> io::Result<()> {
        let pci = function.pci();
        self.ask(format!("unbind {pci}"), |model| {
            model.require_lock();
            model.state.unbind(&format!("pci/{pci}"))
        })
        .map_err(io::Error::other)
    }

    fn bind_function(&mut self, function: &Function) -> io::Result<bool> {
        let pci = function.pci();
        self.ask(format!("bind {pci}"), |model| {
            model.require_lock();
            model.state.bind(&format!("pci/{pci}"))
        })
        .map_err(io::Error::other)
    }
}
