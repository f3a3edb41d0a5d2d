// SPDX-License-Identifier: Apache-2.0
//! One attempt to serve an attachment from one pool: read the store under the lock, ask the agent without the
//! lock, read the store again.

mod plan;

use super::shortage::Want;
use super::{Pools, said_of};
use crate::add::repeat;
use crate::agent::{AskedBy, Pod, Reply, Request, Verb};
use crate::allocator::Prober;
use crate::config::PoolConfig;
use crate::pool::{PoolFile, PoolName, PoolRanges, Standing};
use crate::range::Family;
use crate::store::{Lease, Locked, Sandbox, Store};
use common::cni::{Attachment, CniResult, Code, Error};
use plan::{Chosen, Plan};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The pause before the store is read again after an answer that changed nothing, because other calls were
/// faster.
const PAUSE: Duration = Duration::from_millis(10);

/// An attempt to serve an attachment from one pool.
pub(super) struct Attempt<'a> {
    pools: &'a Pools<'a>,
    name: &'a PoolName,
    config: &'a PoolConfig,
    owner: &'a Attachment,
    sandbox: &'a Sandbox,
    store: Store<'a>,
}

/// The agent's answers so far.
#[derive(Clone, Default)]
pub(super) struct Told {
    /// The source of addresses, if it differs from the pool's own.
    pub(super) by: Option<By>,
    /// The addresses that the agent allocated to this attachment.
    pub(super) granted: Vec<IpAddr>,
    /// Whether the agent was asked to update `pool.json`.
    pub(super) refreshed: bool,
    /// Whether a resting address will do.
    pub(super) early: bool,
}

/// The source of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum By {
    Blocks,
    /// The agent, for these families; for all if the list is empty.
    Agent(Vec<Family>),
}

/// The outcome of reading the store.
enum Look {
    Done(CniResult),
    Ask(Box<Request>, Want),
}

impl<'a> Attempt<'a> {
    /// An attempt; touches no file.
    pub(super) fn new(
        pools: &'a Pools,
        name: &'a PoolName,
        config: &'a PoolConfig,
        owner: &'a Attachment,
        sandbox: &'a Sandbox,
    ) -> Result<Self, Error> {
        Ok(Self {
            store: pools.store(name)?,
            pools,
            name,
            config,
            owner,
            sandbox,
        })
    }

    /// Makes the lease, or fails and leaves nothing.
    pub(super) fn run(&self) -> Result<CniResult, Error> {
        let mut told = Told::default();
        let mut asked = false;
        let result = self.look_and_ask(&mut told, &mut asked);
        if result.is_err() && asked {
            self.give_back(&told.granted);
        }
        result
    }

    /// Makes the lease from resting addresses of this node. Never asks the agent.
    pub(super) fn run_early(&self) -> Result<Option<CniResult>, Error> {
        let told = Told {
            early: true,
            ..Told::default()
        };
        match self.look(&told)? {
            Look::Done(result) => Ok(Some(result)),
            Look::Ask(request, _) => {
                if request.verb == Verb::Allocate {
                    self.give_back(&[]);
                }
                Ok(None)
            }
        }
    }

    /// Repeats until the lease is made. Sets `asked` once the agent may have allocated addresses to the
    /// attachment.
    fn look_and_ask(&self, told: &mut Told, asked: &mut bool) -> Result<CniResult, Error> {
        let mut deadline = None;
        loop {
            let (request, want) = match self.look(told)? {
                Look::Done(result) => return Ok(result),
                Look::Ask(request, want) => (request, want),
            };
            *asked |= request.verb == Verb::Allocate;
            let first = deadline.is_none();
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.pools.agent.limit);
            if !first {
                // The rest of the limit is too short for an answer, and the error would blame the agent.
                if Instant::now() + self.pools.agent.limit / 10 >= deadline {
                    return Err(want.unmet());
                }
                std::thread::sleep(PAUSE);
            }
            let verb = request.verb;
            let reply = self.pools.agent.ask(&request, deadline);
            match reply.map_err(|e| want.refused(said_of(self.name, e)))? {
                Reply::Local if verb == Verb::Allocate => told.by = Some(By::Blocks),
                Reply::Local => told.refreshed = true,
                Reply::Allocate { families } => told.by = Some(By::Agent(families)),
                Reply::Addresses { addresses } => told.granted = addresses,
                other => {
                    return Err(Error::new(
                        Code::INTERNAL,
                        format!(
                            "the agent answered {other:?} to {verb:?}; install the plugin that came with this node's agent"
                        ),
                    ));
                }
            }
        }
    }

    /// Makes the lease if that is possible now.
    fn look(&self, told: &Told) -> Result<Look, Error> {
        // A pool of which this node has no part gets no directory.
        if !self.store.has_pool() {
            return self.refresh(told, Want::File(self.store.pool_path()));
        }
        let (locked, pool) = self.store.enter_pool()?;
        if let Some(lease) = locked.lease(self.owner)? {
            return repeat(&locked, lease, &self.config.requests, self.sandbox).map(Look::Done);
        }
        let Some(pool) = pool else {
            return self.refresh(told, Want::File(self.store.pool_path()));
        };
        if let Some(want) = self.gate(&pool) {
            return self.refresh(told, want);
        }
        if !told.granted.is_empty() && !locked.is_asking(self.owner) {
            return Err(Error::new(
                Code::TRY_AGAIN,
                "the agent took its addresses back, since this ADD had not taken them for a while; try again",
            ));
        }
        let ranges = PoolRanges::new(&pool, &self.store.pool_path())?;
        let by_pool = || {
            let asks_agent = pool.asks_agent(self.sandbox.pod.as_deref());
            asks_agent.then(|| By::Agent(Vec::new()))
        };
        let told = &Told {
            by: told.by.clone().or_else(by_pool),
            ..told.clone()
        };
        self.act(&locked, &pool, &ranges, told)
    }

    /// Allocates the addresses that can be allocated now, or returns the request to the agent.
    fn act(&self, locked: &Locked, pool: &PoolFile, ranges: &PoolRanges, told: &Told) -> Result<Look, Error> {
        let early = told.early.then_some(Prober {
            pod: self.sandbox.pod.as_deref(),
        });
        match plan::plan(pool, ranges, &self.config.requests, (told, early), locked)? {
            Plan::Give(chosen) => self.commit(locked, pool, &chosen, told).map(Look::Done),
            Plan::Claim(families, want) => Ok(Look::Ask(
                Box::new(Request {
                    families,
                    ..self.request(Verb::Claim)
                }),
                want,
            )),
            Plan::Allocate(ips, families, want) => {
                locked.begin_asking(self.owner)?;
                Ok(Look::Ask(
                    Box::new(Request {
                        ips,
                        families,
                        ..self.request(Verb::Allocate)
                    }),
                    want,
                ))
            }
        }
    }

    /// The reason why this attachment must not get an address of `pool` now.
    fn gate(&self, pool: &PoolFile) -> Option<Want> {
        let namespace = self.sandbox.namespace();
        if !pool.admits(namespace) {
            return Some(Want::Namespace {
                namespace: namespace.map(str::to_owned),
                admitted: pool.namespaces.clone().unwrap_or_default(),
            });
        }
        match self.store.standing(pool) {
            Standing::Good => None,
            Standing::Unproven(why) => Some(Want::Proof {
                blocks: pool.blocks.len(),
                why,
            }),
        }
    }

    /// Asks the agent to update `pool.json`, once. After that fails with the error of `want`.
    fn refresh(&self, told: &Told, want: Want) -> Result<Look, Error> {
        if told.refreshed {
            return Err(want.unmet());
        }
        Ok(Look::Ask(Box::new(self.request(Verb::Claim)), want))
    }

    fn request(&self, verb: Verb) -> Request {
        Request {
            verb,
            pool: self.name.clone(),
            attachment: Some(AskedBy {
                owner: self.owner.clone(),
                network: self.config.place.name.clone(),
            }),
            pod: Pod::of(self.sandbox),
            ips: Vec::new(),
            families: Vec::new(),
            within_ms: None,
        }
    }

    fn commit(
        &self,
        locked: &Locked,
        pool: &PoolFile,
        chosen: &[Chosen],
        told: &Told,
    ) -> Result<CniResult, Error> {
        let result = CniResult {
            ips: chosen.iter().map(Chosen::address).collect::<Result<_, _>>()?,
            routes: self.config.routes.clone().unwrap_or_else(|| pool.routes.clone()),
            dns: self.config.dns.clone().unwrap_or_else(|| pool.dns.clone()),
            ..CniResult::default()
        };
        let lease = Lease {
            api: told.granted.clone(),
            ..locked.draft(self.owner, self.sandbox.clone(), result)?
        };
        locked.commit(&lease)?;
        for chosen in chosen.iter().filter(|chosen| chosen.in_turn) {
            locked.remember(&chosen.range, chosen.ip);
        }
        if !told.granted.is_empty()
            && let Err(error) = locked.end_asking(self.owner)
        {
            tracing::warn!("{}; the agent removes it", error.msg);
        }
        Ok(lease.result)
    }

    /// Asks the agent to release what it may have allocated to an attachment without a lease.
    fn give_back(&self, granted: &[IpAddr]) {
        let ended = self
            .store
            .enter()
            .and_then(|locked| locked.end_asking(self.owner));
        if let Err(error) = ended {
            tracing::warn!("{}; the agent finds it later", error.msg);
        }
        self.pools.agent.tell(&Request {
            ips: granted.to_vec(),
            ..self.request(Verb::Release)
        });
    }
}
