// SPDX-License-Identifier: Apache-2.0
//! The verbs for networks whose addresses come from pools of the cluster.
//!
//! ```text
//! pool.json, leases -> allocate from this node's blocks -> commit                   nearly always
//!                   `-> no address, or not from blocks -> ask the agent -> retry   else
//! ```
//!
//! Invariant: no request goes to the agent while the store's lock is held. DEL, CHECK and GC wait for no
//! answer. All addresses of an attachment are of one pool.

mod add;
mod attempt;
mod check;
mod del;
mod gc;
mod shortage;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use add::add;
pub(crate) use check::check;
pub(crate) use del::del;
pub(crate) use gc::gc;
pub(crate) use status::status;

use crate::agent::{Client, Reply, Request};
use crate::config::PoolPlace;
use crate::pool::PoolName;
use crate::store::{Lease, Node, Store, is_nowhere};
use common::cni::{Attachment, Code, Error, Reader};
use std::time::Instant;

/// The input of every verb.
pub(crate) struct Pools<'n> {
    /// The node.
    pub(crate) node: &'n Node<'n>,
    /// The client of its agent.
    pub(crate) agent: &'n Client,
    /// The pools of the configuration, and the location of all pools.
    pub(crate) place: PoolPlace,
    /// The reader of the result.
    pub(crate) reader: Reader,
}

impl<'n> Pools<'n> {
    /// This node's part of `pool`; touches no file.
    fn store(&self, pool: &PoolName) -> Result<Store<'n>, Error> {
        Store::new(&self.place.of(pool), self.node)
    }

    /// Asks the agent about a pool.
    fn ask(&self, request: &Request, deadline: Instant) -> Result<Reply, PoolRefusal> {
        let reply = self.agent.ask(request, deadline)?;
        let fallback = reply.fallback().to_vec();
        reply.accepted().map_err(|error| PoolRefusal { error, fallback })
    }

    /// The pools to try: by descending priority, then in the order of the configuration.
    fn order(&self) -> Order<'_, 'n> {
        let mut next = self.place.pools.clone();
        if next.len() > 1 {
            next.sort_by_cached_key(|name| std::cmp::Reverse(self.priority(name)));
        }
        next.reverse();
        Order {
            pools: self,
            next,
            tried: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// The priority of a pool without a readable file is the default. Trying that pool reports the error.
    fn priority(&self, name: &PoolName) -> i32 {
        let pool = self.store(name).and_then(|store| store.pool());
        pool.ok().flatten().map_or(0, |pool| pool.priority)
    }

    /// Every pool that has a directory on this node, the named ones first: an attachment may have its lease
    /// in a pool that the configuration does not name any more.
    fn all(&self) -> Result<Vec<PoolName>, Error> {
        let dir = self.place.dir();
        let names = match self.node.disk.list(&dir, usize::MAX) {
            Ok(names) => names,
            Err(e) if is_nowhere(&e) => Vec::new(),
            Err(e) => {
                return Err(Error::caused(
                    Code::IO,
                    format!("cannot list {}", dir.display()),
                    &e,
                ));
            }
        };
        let mut all = self.place.pools.clone();
        for name in names.iter().filter_map(|name| name.to_str()?.parse().ok()) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        Ok(all)
    }

    /// The lease of `owner` in one of `pools`, unless another network made it.
    fn lease(&self, pools: &[PoolName], owner: &Attachment) -> Result<Option<(PoolName, Lease)>, Error> {
        for name in pools {
            if let Some(lease) = self.store(name)?.lease(owner)?
                && lease.network == self.place.name
            {
                return Ok(Some((name.clone(), lease)));
            }
        }
        Ok(None)
    }
}

/// Why a pool gives no address.
struct PoolRefusal {
    error: Error,
    /// The pool's fallback pools, if the agent named them.
    fallback: Vec<PoolName>,
}

impl PoolRefusal {
    fn map(self, change: impl FnOnce(Error) -> Error) -> Self {
        Self {
            error: change(self.error),
            ..self
        }
    }
}

impl From<Error> for PoolRefusal {
    fn from(error: Error) -> Self {
        let fallback = Vec::new();
        Self { error, fallback }
    }
}

/// The pools that ADD and STATUS try, in order. The fallback pools of a pool without an address follow it.
struct Order<'p, 'n> {
    pools: &'p Pools<'n>,
    next: Vec<PoolName>,
    tried: Vec<PoolName>,
    /// The errors of `tried`. The first one is that of the preferred pool, or the one that ended the search.
    refusals: Vec<Error>,
}

impl Order<'_, '_> {
    fn next(&mut self) -> Option<PoolName> {
        loop {
            let name = self.next.pop()?;
            if !self.tried.contains(&name) {
                self.tried.push(name.clone());
                return Some(name);
            }
        }
    }

    /// Notes that `name` gives no address. Ends the search if the error passes by itself or needs a person.
    fn refuse(&mut self, name: &PoolName, refusal: PoolRefusal) {
        let PoolRefusal { error, fallback } = refusal;
        let continues = tries_next_pool(error.code);
        let error = of_pool(name, error);
        if continues {
            self.refusals.push(error);
            self.fall_back_from(name, fallback);
        } else {
            self.refusals.insert(0, error);
            self.next.clear();
        }
    }

    /// Tries the fallback pools of `name` next: those that the agent named, else those in the pool's file. An unreadable file
    /// was reported when the pool was tried.
    fn fall_back_from(&mut self, name: &PoolName, mut named: Vec<PoolName>) {
        if named.is_empty() {
            let pool = self.pools.store(name).and_then(|store| store.pool());
            named = pool.ok().flatten().map(|pool| pool.fallback).unwrap_or_default();
        }
        self.next.extend(named.into_iter().rev());
    }
}

/// Whether the next pool is tried after an error.
fn tries_next_pool(code: Code) -> bool {
    [
        Code::EXHAUSTED,
        Code::RESTING,
        Code::POOL_NOT_HERE,
        Code::POOL_NOT_FOR_NAMESPACE,
        Code::ADDRESS_OUTSIDE,
    ]
    .contains(&code)
}

/// `error` with the name of `pool`. The agent's messages, which are also Events, contain the name already.
fn of_pool(pool: &PoolName, error: Error) -> Error {
    let after = error
        .msg
        .strip_prefix("pool ")
        .and_then(|msg| msg.strip_prefix(pool.as_str()));
    if after.is_some_and(|after| after.starts_with([' ', ':'])) {
        return error;
    }
    error.within(&format!("pool {pool}"))
}

/// The agent's `error` without the name of `pool`, to continue a sentence that has it.
fn without_name(pool: &PoolName, error: Error) -> Error {
    let msg = error.msg.strip_prefix(&format!("pool {pool}: "));
    Error {
        msg: msg.unwrap_or(&error.msg).to_owned(),
        ..error
    }
}
