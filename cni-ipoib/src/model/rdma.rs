// SPDX-License-Identifier: Apache-2.0
use super::kernel::{ModelKernel, State, errno};
use crate::intent::{Grant, Identity, Sharing};
use crate::kernel::{RdmaSubsystem, Side};
use common::netlink::{Creator, Error, NetnsMode, QueuePair, RdmaDevice, RdmaPort};
use common::rdma::{Guid, PortState};
use nix::errno::Errno;

/// The RDMA subsystem of the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subsystem {
    pub(crate) mode: NetnsMode,
    /// Each device with its namespace.
    pub(crate) devices: Vec<(Side, RdmaDevice)>,
    /// Ports by the index of their device.
    pub(crate) ports: Vec<RdmaPort>,
    /// Queue pairs by the index of their device.
    pub(crate) queue_pairs: Vec<(u32, QueuePair)>,
    /// The driver cannot disassociate a device from its users (no `disassociate_ucontext`), like rxe.
    pub(crate) clings: bool,
}

impl Default for Subsystem {
    fn default() -> Self {
        Self {
            mode: NetnsMode::Shared,
            devices: Vec::new(),
            ports: Vec::new(),
            queue_pairs: Vec::new(),
            clings: false,
        }
    }
}

impl Subsystem {
    /// A device of the host with one port, on which the Ethernet link `netdev` is.
    pub(crate) fn device(&mut self, index: u32, name: &str, guid: u64, netdev: Option<(u32, &str)>) {
        self.devices.push((
            Side::Host,
            RdmaDevice {
                index,
                name: name.to_owned(),
                node_guid: Guid(guid),
                sys_image_guid: Guid(guid),
                ports: 1,
                protocol: Some(if netdev.is_some() { "roce" } else { "ib" }.to_owned()),
                smi: false,
            },
        ));
        self.ports.push(RdmaPort {
            device: index,
            number: 1,
            state: PortState::Active,
            phys_state: "LinkUp",
            lid: None,
            sm_lid: None,
            subnet_prefix: None,
            netdev: netdev.map(|(index, name)| (index, name.to_owned())),
        });
    }

    /// `creator` uses the device of an index by a queue pair.
    pub(crate) fn used(&mut self, index: u32, creator: Creator) {
        let port = Some(1);
        self.queue_pairs.push((index, QueuePair { port, creator }));
    }

    /// The names of the devices in a namespace.
    pub(crate) fn names(&self, side: Side) -> Vec<&str> {
        let there = self.devices.iter().filter(|(at, _)| *at == side);
        there.map(|(_, device)| device.name.as_str()).collect()
    }

    /// The namespace and name of the device of an index.
    fn at(&mut self, side: Side, index: u32) -> Option<&mut (Side, RdmaDevice)> {
        let seen = self.mode == NetnsMode::Shared;
        self.devices
            .iter_mut()
            .find(|(at, device)| device.index == index && (seen || *at == side))
    }
}

impl State {
    /// The device of an `IPoIB` link is the one with the port's GUID.
    fn ipoib_of_device(&mut self, index: u32, to: Side) {
        let device = self.rdma.devices.iter().find(|(_, device)| device.index == index);
        if let Some(guid) = device.map(|(_, device)| device.node_guid) {
            self.remake_ipoib(guid, to);
        }
    }

    /// The kernel moves a dead namespace's RDMA devices to the first one, under their present names.
    pub(super) fn rdma_devices_come_back(&mut self) {
        let in_pod = self.rdma.devices.iter().filter(|(at, _)| *at == Side::Pod);
        let moved: Vec<u32> = in_pod.map(|(_, device)| device.index).collect();
        for (at, _) in &mut self.rdma.devices {
            *at = Side::Host;
        }
        for index in moved {
            self.ipoib_of_device(index, Side::Host);
        }
    }
}

impl RdmaSubsystem for ModelKernel {
    fn rdma_mode(&mut self) -> Result<NetnsMode, Error> {
        self.ask("read the RDMA mode".to_owned(), |model| Ok(model.state.rdma.mode))
    }

    fn rdma_devices(&mut self, side: Side) -> Result<Vec<RdmaDevice>, Error> {
        self.ask(format!("list RDMA devices in {side:?}"), |model| {
            let all = model.state.rdma.devices.iter();
            let shared = model.state.rdma.mode == NetnsMode::Shared;
            let seen = all.filter(|(at, _)| shared || *at == side);
            Ok(seen.map(|(_, device)| device.clone()).collect())
        })
    }

    fn rdma_ports(&mut self, side: Side, device: u32) -> Result<Vec<RdmaPort>, Error> {
        self.ask(
            format!("list ports of RDMA device {device} in {side:?}"),
            |model| {
                if model.state.rdma.at(side, device).is_none() {
                    return errno(Errno::EINVAL);
                }
                let ports = model.state.rdma.ports.iter().filter(|port| port.device == device);
                Ok(ports.cloned().collect())
            },
        )
    }

    fn rdma_queue_pairs(&mut self, device: u32) -> Result<Vec<QueuePair>, Error> {
        self.ask(format!("list the queue pairs of RDMA device {device}"), |model| {
            let rdma = &mut model.state.rdma;
            if rdma.at(Side::Host, device).is_none() {
                return errno(Errno::EINVAL);
            }
            // An idle device has those of the kernel's own modules.
            let idle = ["ib_core", "ib_ipoib", "mlx5_ib"].map(|name| QueuePair {
                port: Some(1),
                creator: Creator::Module(name.to_owned()),
            });
            let own = rdma.queue_pairs.iter().filter(|(of, _)| *of == device);
            Ok(idle
                .into_iter()
                .chain(own.map(|(_, pair)| pair.clone()))
                .collect())
        })
    }

    fn move_rdma_device(&mut self, index: u32, from: Side) -> Result<(), Error> {
        self.ask(format!("move RDMA device {index} from {from:?}"), |model| {
            model.require_lock();
            let rdma = &mut model.state.rdma;
            if rdma.mode == NetnsMode::Shared || rdma.clings {
                return errno(Errno::EOPNOTSUPP);
            }
            let Some((at, _)) = rdma.at(from, index) else {
                return errno(Errno::ENODEV);
            };
            let to = match from {
                Side::Host => Side::Pod,
                Side::Pod => Side::Host,
            };
            *at = to;
            model.state.ipoib_of_device(index, to);
            Ok(())
        })
    }

    fn verbs_file(&mut self, _name: &str) -> Option<String> {
        None
    }

    fn rename_rdma_device(&mut self, side: Side, index: u32, name: &str) -> Result<(), Error> {
        let text = format!("rename RDMA device {index} to {name} in {side:?}");
        self.ask(text, |model| {
            let rdma = &mut model.state.rdma;
            // Names are unique on the node, whatever the namespace.
            let taken = |(_, other): &(Side, RdmaDevice)| other.name == name && other.index != index;
            if rdma.devices.iter().any(taken) {
                return errno(Errno::EEXIST);
            }
            match rdma.at(side, index) {
                Some((_, device)) => name.clone_into(&mut device.name),
                None => return errno(Errno::EINVAL),
            }
            Ok(())
        })
    }
}

/// The device that most tests grant: `mlx5_1`, number 2, of this PCI function.
pub(crate) fn grant(pci: Option<&str>, netns: Sharing) -> Grant {
    Grant {
        device: Identity {
            name: "mlx5_1".to_owned(),
            index: 2,
            node_guid: Guid(7),
            pci: pci.map(|pci| pci.parse().unwrap()),
            path: None,
        },
        port: 1,
        link_layer: "Ethernet".to_owned(),
        netns,
    }
}
