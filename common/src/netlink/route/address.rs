// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::super::socket::Socket;
use super::Route;
use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use nix::errno::Errno;
use std::net::IpAddr;

/// An address of a link (`RTM_NEWADDR`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the kernel keeps them as independent flags"
)]
pub struct Address {
    /// The address with its prefix length.
    pub address: IpNetwork,
    /// Not usable yet: duplicate address detection is under way (RFC 4862 § 5.4).
    pub tentative: bool,
    /// Not usable: another host uses it.
    pub dad_failed: bool,
    /// Exempt from duplicate address detection.
    pub no_dad: bool,
    /// Has no lifetime; false for addresses of router advertisements.
    pub permanent: bool,
    /// `RT_SCOPE_*`: 0 global, 253 link, 254 host.
    pub scope: u8,
}

/// How to add an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressOptions {
    /// Usable at once, without duplicate address detection. IPv6 only; IPv4 has none.
    pub no_dad: bool,
}

/// The outcome of adding an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The kernel created it.
    New,
    /// The same object existed already (`EEXIST`) and is unchanged.
    Present,
}

impl Added {
    pub(super) fn from_answer(answer: Result<(), Error>) -> Result<Self, Error> {
        match answer {
            Ok(()) => Ok(Self::New),
            Err(e) if e.is(Errno::EEXIST) => Ok(Self::Present),
            Err(e) => Err(e),
        }
    }
}

impl Socket<Route> {
    /// The addresses of the link `index`, IPv4 and IPv6, in the kernel's order.
    pub fn addresses(&mut self, index: u32) -> Result<Vec<Address>, Error> {
        let request = || {
            let mut message = AddressMessage::default();
            message.header.index = index;
            Message::GetAddress(message)
        };
        let answers = match self.dump(request) {
            Err(e) if e.is(Errno::ENODEV) => return Ok(Vec::new()),
            answers => answers?,
        };
        let addresses = answers.into_iter().filter_map(|message| match message {
            // Kernels before 5.0 do not filter by link.
            Message::NewAddress(address) if address.header.index == index => Address::decode(&address),
            _ => None,
        });
        Ok(addresses.collect())
    }

    /// Adds an address to the link `index`.
    ///
    /// # Errors
    /// `EACCES`: IPv6 is switched off for the link. `EINVAL`: its MTU is below what the protocol needs.
    pub fn add_address(
        &mut self,
        index: u32,
        address: IpNetwork,
        options: AddressOptions,
    ) -> Result<Added, Error> {
        let mut message = encode(index, address);
        match address {
            IpNetwork::V4(v4) if v4.prefix() < 31 => {
                message
                    .attributes
                    .push(AddressAttribute::Broadcast(v4.broadcast()));
            }
            IpNetwork::V6(_) if options.no_dad => message.header.flags = AddressHeaderFlags::Nodad,
            _ => {}
        }
        Added::from_answer(self.change(Message::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL))
    }

    /// Deletes an address of the link `index`. Returns `false` if it does not exist.
    #[cfg(test)]
    pub(super) fn delete_address(&mut self, index: u32, address: IpNetwork) -> Result<bool, Error> {
        match self.change(Message::DelAddress(encode(index, address)), 0) {
            Ok(()) => Ok(true),
            Err(e) if e.is(Errno::EADDRNOTAVAIL) || e.is(Errno::ENODEV) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

fn encode(index: u32, address: IpNetwork) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.family = family(address.ip());
    message.header.prefix_len = address.prefix();
    message.attributes.push(AddressAttribute::Local(address.ip()));
    message.attributes.push(AddressAttribute::Address(address.ip()));
    message
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

impl Address {
    pub(super) fn decode(message: &AddressMessage) -> Option<Self> {
        let (mut address, mut local) = (None, None);
        let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Address(ip) => address = Some(*ip),
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Flags(all) => flags = *all,
                _ => {}
            }
        }
        // On a point-to-point link IFA_ADDRESS is the peer and IFA_LOCAL ours. Other IPv6 addresses have no
        // IFA_LOCAL.
        let address = IpNetwork::new(local.or(address)?, message.header.prefix_len).ok()?;
        Some(Self {
            address,
            tentative: flags.contains(AddressFlags::Tentative),
            dad_failed: flags.contains(AddressFlags::Dadfailed),
            no_dad: flags.contains(AddressFlags::Nodad),
            permanent: flags.contains(AddressFlags::Permanent),
            scope: message.header.scope.into(),
        })
    }
}
