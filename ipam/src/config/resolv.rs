// SPDX-License-Identifier: Apache-2.0
//! Name resolution, from `dns` or from a file in the format of resolv.conf(5).

use super::invalid;
use super::raw::RawIpam;
use common::cni::{Code, Dns, Error};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

/// The `dns` of the result.
pub(super) fn dns(ipam: &RawIpam) -> Result<Dns, Error> {
    let file = ipam.resolv_conf.as_deref().filter(|file| !file.is_empty());
    match (file, &ipam.dns) {
        (Some(file), Some(_)) => Err(invalid(format!(
            "ipam.dns and ipam.resolvConf ({file:?}) both set name resolution; keep one of them"
        ))),
        (Some(file), None) => read(file)
            .map(|text| parse(&text))
            .map_err(|e| Error::caused(Code::IO, format!("cannot read ipam.resolvConf {file:?}"), &e)),
        (None, dns) => Ok(dns.clone().unwrap_or_default()),
    }
}

/// The largest file that is read, in bytes. libc's resolver uses three name servers and one search list.
const LARGEST: u64 = 64 << 10;

/// Reads a regular file of bounded size. Does not wait for the writer of a FIFO.
fn read(file: &str) -> io::Result<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(file)?;
    let other = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    if !file.metadata()?.is_file() {
        return Err(other(
            "it is not a regular file; name one such as /etc/resolv.conf",
        ));
    }
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(other(
            "it is larger than 64 KiB; name a file such as /etc/resolv.conf",
        ));
    }
    Ok(text)
}

/// Parses resolv.conf(5) as the resolver does: the last `domain` and `search` line counts, and unknown lines
/// are skipped.
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
