// SPDX-License-Identifier: Apache-2.0
//! Parses addresses, subnets and exclusions. An IPv4 address in IPv6 notation (`::ffff:10.0.0.1`) is IPv4.

use common::cni::{Code, Error};
use ipnetwork::IpNetwork;
use std::net::IpAddr;

/// Parses an address.
pub(crate) fn address(key: &str, text: &str) -> Result<IpAddr, Error> {
    let ip: IpAddr = text.parse().map_err(|_| {
        invalid(format!(
            "{key} {text:?} is not an address, such as 10.0.0.1 or fd00::1"
        ))
    })?;
    Ok(ip.to_canonical())
}

/// Parses a subnet; host bits are kept.
pub(crate) fn network(key: &str, text: &str) -> Result<IpNetwork, Error> {
    let subnet = text.split_once('/').and_then(|(ip, length)| {
        // A netmask after the slash is refused, as by other plugins. So are +24 and 024, which are not CIDR
        // notation.
        let length: u8 = length
            .parse()
            .ok()
            .filter(|number: &u8| number.to_string() == length)?;
        IpNetwork::new(ip.parse().ok()?, length).ok()
    });
    match subnet {
        None => Err(invalid(format!(
            "{key} {text:?} is not a subnet with a prefix length, such as 10.0.0.0/24"
        ))),
        Some(subnet) if subnet.ip().to_canonical() != subnet.ip() => Err(invalid(format!(
            "{key} {text:?} is IPv4 written as IPv6; write it as IPv4"
        ))),
        Some(subnet) => Ok(subnet),
    }
}

/// Parses exclusions: subnets, addresses, and `first-last`.
pub(crate) fn exclusions(key: &str, texts: Option<&[String]>) -> Result<Vec<(IpAddr, IpAddr)>, Error> {
    texts
        .unwrap_or_default()
        .iter()
        .enumerate()
        .map(|(i, text)| exclusion(&format!("{key}[{i}]"), text))
        .collect()
}

/// Parses one exclusion: a subnet, an address, or `first-last`. `key` names it in errors.
///
/// # Errors
/// Code 7: the text is none of these.
pub fn exclusion(key: &str, text: &str) -> Result<(IpAddr, IpAddr), Error> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (address(key, first.trim())?, address(key, last.trim())?);
        if first.is_ipv4() != last.is_ipv4() || first > last {
            return Err(invalid(format!(
                "{key} {text:?} is inverted: {first} does not come before {last}"
            )));
        }
        return Ok((first, last));
    }
    if text.contains('/') {
        let subnet = network(key, text)?;
        return Ok((subnet.network(), subnet.broadcast()));
    }
    let ip = address(key, text)?;
    Ok((ip, ip))
}

/// The error of a configuration that no node accepts.
pub(crate) fn invalid(msg: String) -> Error {
    Error::new(Code::INVALID_CONFIG, msg)
}
