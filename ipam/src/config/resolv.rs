// SPDX-License-Identifier: Apache-2.0
//! Name resolution, from `dns` or from a file in the format of resolv.conf(5).

use super::invalid;
use super::raw::RawIpam;
use common::cni::{Code, Dns, Error};

/// The `dns` of the result.
pub(super) fn dns(ipam: &RawIpam) -> Result<Dns, Error> {
    let file = ipam.resolv_conf.as_deref().filter(|file| !file.is_empty());
    match (file, &ipam.dns) {
        (Some(file), Some(_)) => Err(invalid(format!(
            "ipam.dns and ipam.resolvConf ({file:?}) both set name resolution; keep one of them"
        ))),
        (Some(file), None) => std::fs::read_to_string(file)
            .map(|text| parse(&text))
            .map_err(|e| Error::caused(Code::IO, format!("cannot read ipam.resolvConf {file:?}"), &e)),
        (None, dns) => Ok(dns.clone().unwrap_or_default()),
    }
}

/// Reads resolv.conf(5); of `domain` and `search` the last line counts, and lines it does not know are skipped,
/// as the resolver skips them.
fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']))
    {
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("nameserver") => dns.nameservers.extend(words.next()),
            Some("domain") => dns.domain = words.next().unwrap_or_default(),
            Some("search") => dns.search = words.collect(),
            Some("options") => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}
