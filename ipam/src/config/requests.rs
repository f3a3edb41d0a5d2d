// SPDX-License-Identifier: Apache-2.0
//! Requested addresses.

use super::invalid;
use super::raw::{RawArgs, RawRuntime};
use crate::text::{address, network};
use common::cni::{Args, Error};
use std::fmt;
use std::net::IpAddr;

/// One requested address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The address.
    pub ip: IpAddr,
    /// The prefix length in the request, if it has one.
    pub prefix: Option<u8>,
    /// The key that the request came from.
    source: &'static str,
}

/// The requested addresses, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(Vec<Request>);

impl Requests {
    /// Reads the first source that names an address: `runtimeConfig.ips`, `args.cni.ips`, `IP` in `CNI_ARGS`.
    ///
    /// A plugin and its delegates share `CNI_ARGS`, so this plugin does not check its other keys.
    ///
    /// # Errors
    /// `INVALID_CONFIG` for a text that is not an address, and for an address that is named twice.
    pub(super) fn read(runtime: &RawRuntime, args: Option<&RawArgs>, cni_args: &Args) -> Result<Self, Error> {
        let of_runtime = runtime.ips.iter().flatten().map(String::as_str).collect();
        let of_args = args.and_then(|a| a.cni.as_ref()).and_then(|cni| cni.ips.as_ref());
        let of_args = of_args.into_iter().flatten().map(String::as_str).collect();
        let of_cni_args = cni_args
            .get("IP")
            .into_iter()
            .flat_map(|list| list.split(','))
            .collect();
        let sources: [(&'static str, Vec<&str>); 3] = [
            ("runtimeConfig.ips", of_runtime),
            ("args.cni.ips", of_args),
            ("CNI_ARGS IP", of_cni_args),
        ];
        let mut requests: Vec<Request> = Vec::new();
        if let Some((source, texts)) = sources.into_iter().find(|(_, texts)| !texts.is_empty()) {
            for text in texts {
                let request = Request::read(source, text.trim())?;
                if requests.iter().any(|earlier| earlier.ip == request.ip) {
                    return Err(invalid(format!("{request} is asked for twice in one call")));
                }
                requests.push(request);
            }
        }
        Ok(Self(requests))
    }

    /// The requests in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.0.iter()
    }

    /// Requests for `ips`, as from `runtimeConfig`.
    #[cfg(test)]
    pub(crate) fn of(ips: &[&str]) -> Self {
        let runtime = RawRuntime {
            ips: Some(ips.iter().map(|ip| (*ip).to_owned()).collect()),
            ip_ranges: None,
        };
        Self::read(&runtime, None, &Args::default()).unwrap()
    }
}

impl Request {
    fn read(source: &'static str, text: &str) -> Result<Self, Error> {
        if text.contains('/') {
            let subnet = network(source, text)?;
            return Ok(Self {
                ip: subnet.ip(),
                prefix: Some(subnet.prefix()),
                source,
            });
        }
        Ok(Self {
            ip: address(source, text)?,
            prefix: None,
            source,
        })
    }
}

/// Such as `address 10.0.0.1 (runtimeConfig.ips)`.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address {} ({})", self.ip, self.source)
    }
}
