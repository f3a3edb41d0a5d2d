// SPDX-License-Identifier: Apache-2.0
//! Configurations that name pools of the cluster instead of ranges.

use super::raw::RawPlaceConf;
use super::{Place, Requests, absolute, invalid, probes, read_raw, resolv, routes, shape};
use crate::pool::{POOLS, PoolName};
use common::cni::dispatch::Call;
use common::cni::{Conf, Dns, Error, Route};
use serde_json::Value;
use std::path::PathBuf;

/// The pools of a configuration, and the location of this node's part of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlace {
    /// The name of the network configuration, to which attachments belong.
    pub name: String,
    /// `dataDir`; its directory [`POOLS`] has the pools.
    pub data_dir: PathBuf,
    /// `pool` or `pools`, in order of preference.
    pub pools: Vec<PoolName>,
}

/// A valid configuration of pools for ADD.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The pools.
    pub place: PoolPlace,
    /// Replaces the routes of the pool.
    pub routes: Option<Vec<Route>>,
    /// Replaces the name resolution of the pool.
    pub dns: Option<Dns>,
    /// The requested addresses.
    pub requests: Requests,
    /// Whether the main plugin declared that it probes addresses ([`common::cni::PROBES`]).
    pub probes: bool,
}

impl PoolPlace {
    /// Reads only the place of `conf`. Returns `None` if it names no pool. Names that ADD refuses are left
    /// out.
    ///
    /// # Errors
    /// `INVALID_CONFIG` for a directory that ADD refuses as well, `DECODE` for wrong types.
    pub fn read(conf: &Conf) -> Result<Option<Self>, Error> {
        shape::require_ipam(&conf.object)?;
        let raw: RawPlaceConf = conf.decode()?;
        let raw = raw.ipam.unwrap_or_default();
        if raw.pool.is_none() && raw.pools.is_none() {
            return Ok(None);
        }
        let mut texts = Vec::new();
        for value in [raw.pool, raw.pools].into_iter().flatten() {
            match value {
                Value::String(text) => texts.push(text),
                Value::Array(list) => texts.extend(list.iter().filter_map(Value::as_str).map(str::to_owned)),
                _ => {}
            }
        }
        Ok(Some(Self {
            name: conf.network.clone(),
            data_dir: absolute(raw.data_dir.as_deref())?,
            pools: texts
                .into_iter()
                .filter_map(|text| PoolName::try_from(text).ok())
                .collect(),
        }))
    }

    /// The location of this network's leases in `pool`.
    pub fn of(&self, pool: &PoolName) -> Place {
        Place {
            name: self.name.clone(),
            ..Place::of_pool(&self.data_dir, pool)
        }
    }

    /// The directory of all pools.
    pub fn dir(&self) -> PathBuf {
        self.data_dir.join(POOLS)
    }
}

impl PoolConfig {
    /// Reads the whole configuration of an ADD or STATUS that names pools.
    ///
    /// # Errors
    /// `INVALID_CONFIG`, `DECODE` and, for `resolvConf`, `IO`.
    pub fn read(call: &Call, place: PoolPlace) -> Result<Self, Error> {
        let raw = read_raw(&call.conf)?;
        let ipam = raw.ipam.unwrap_or_default();
        let pools = named(ipam.pool.as_deref(), ipam.pools.as_deref())?;
        let runtime = raw.runtime_config.unwrap_or_default();
        let dns = (ipam.dns.is_some() || ipam.resolv_conf.as_deref().is_some_and(|file| !file.is_empty()))
            .then(|| resolv::dns(&ipam))
            .transpose()?;
        Ok(Self {
            place: PoolPlace { pools, ..place },
            routes: ipam.routes.map(routes).transpose()?,
            dns,
            requests: Requests::read(&runtime, raw.args.as_ref(), &call.args)?,
            probes: probes(&call.conf),
        })
    }
}

fn named(pool: Option<&str>, pools: Option<&[String]>) -> Result<Vec<PoolName>, Error> {
    if let Some(pool) = pool {
        return Ok(vec![pool.parse().map_err(|e: Error| e.within("ipam.pool"))?]);
    }
    let mut names: Vec<PoolName> = Vec::new();
    for (i, text) in pools.unwrap_or_default().iter().enumerate() {
        let name: PoolName = text
            .parse()
            .map_err(|e: Error| e.within(&format!("ipam.pools[{i}]")))?;
        if names.contains(&name) {
            return Err(invalid(format!(
                "ipam.pools[{i}] names pool {name} once more; remove it"
            )));
        }
        names.push(name);
    }
    if names.is_empty() {
        return Err(invalid(
            "ipam.pools is empty; name at least one IPPool".to_owned(),
        ));
    }
    Ok(names)
}
