// SPDX-License-Identifier: Apache-2.0
//! One attempt to serve an attachment from one pool: read the store under the lock, ask the agent without the
//! lock, read the store again.

mod plan;

use super::shortage::AgentNeed;
use super::{PoolRefusal, Pools, without_name};
use crate::add::{address, repeat};
use crate::agent::{AskedBy, Pod, Reply, Request, Verb};
use crate::allocator::{Allocation, Prober};
use crate::config::PoolConfig;
use crate::pool::{PoolFile, PoolName, PoolRanges, Standing};
use crate::range::Family;
use crate::store::{Lease, Locked, RequestId, Sandbox, Store};
use common::cni::{Attachment, CniResult, Code, Error};
use plan::Plan;
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
    request_id: RequestId,
}

/// The agent's answers so far.
#[derive(Clone, Default)]
pub(super) struct AgentReplies {
    /// The source of addresses, if it differs from the pool's own.
    pub(super) source: Option<Source>,
    /// The addresses that the agent allocated to this attachment.
    pub(super) granted: Vec<IpAddr>,
    /// Whether the agent was asked to update `pool.json`.
    pub(super) refreshed: bool,
    /// Whether a resting address will do.
    pub(super) early: bool,
}

impl AgentReplies {
    /// The agent allocates the addresses of these families, and of those that it named before.
    fn add_families(&mut self, mut families: Vec<Family>) {
        if let Some(Source::Agent(named)) = &self.source {
            if named.is_empty() || families.is_empty() {
                families.clear();
            } else {
                families.extend(named);
            }
        }
        self.source = Some(Source::Agent(families));
    }

    /// Adds the addresses of an answer. Another family may have been requested before.
    fn grant(&mut self, addresses: Vec<IpAddr>) {
        for ip in addresses {
            if !self.granted.contains(&ip) {
                self.granted.push(ip);
            }
        }
    }
}

/// The source of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Blocks,
    /// The agent, for these families; for all if the list is empty.
    Agent(Vec<Family>),
}

/// The outcome of reading the store.
enum Outcome {
    Done(CniResult),
    Ask(Box<Request>, AgentNeed),
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
            request_id: RequestId::random(),
        })
    }

    /// Makes the lease, or fails and leaves nothing.
    pub(super) fn run(&self) -> Result<CniResult, PoolRefusal> {
        let mut replies = AgentReplies::default();
        let mut asked = false;
        let result = self.try_and_ask(&mut replies, &mut asked);
        if result.is_err() && asked {
            self.return_granted(&replies.granted);
        }
        result
    }

    /// Makes the lease from resting addresses of this node. `asks`: whether the agent may be asked for resting addresses that
    /// are objects. `None` if there is none, or if the request fails as it did before this attempt.
    ///
    /// # Errors
    /// Those of the request to the agent.
    pub(super) fn run_early(&self, asks: bool) -> Result<Option<CniResult>, Error> {
        let mut replies = AgentReplies {
            early: true,
            ..AgentReplies::default()
        };
        match self.try_now(&replies) {
            Ok(Outcome::Done(result)) => Ok(Some(result)),
            Ok(Outcome::Ask(request, _)) if request.verb == Verb::Allocate => {
                let result = if asks {
                    self.lease_early(&request, &mut replies)
                } else {
                    Ok(None)
                };
                if !matches!(result, Ok(Some(_))) {
                    self.return_granted(&replies.granted);
                }
                result
            }
            Ok(Outcome::Ask(..)) | Err(_) => Ok(None),
        }
    }

    /// Asks the agent once, and makes the lease from its answer.
    fn lease_early(&self, request: &Request, replies: &mut AgentReplies) -> Result<Option<CniResult>, Error> {
        let deadline = Instant::now() + self.pools.agent.limit;
        let reply = self.pools.ask(request, deadline);
        let Reply::Addresses { addresses } = reply.map_err(|e| without_name(self.name, e.error))? else {
            return Ok(None);
        };
        replies.grant(addresses);
        Ok(match self.try_now(replies)? {
            Outcome::Done(result) => Some(result),
            Outcome::Ask(..) => None,
        })
    }

    /// Repeats until the lease is made. Sets `asked` once the agent may have allocated addresses to the
    /// attachment.
    fn try_and_ask(&self, replies: &mut AgentReplies, asked: &mut bool) -> Result<CniResult, PoolRefusal> {
        let mut deadline = None;
        loop {
            let (request, need) = match self.try_now(replies)? {
                Outcome::Done(result) => return Ok(result),
                Outcome::Ask(request, need) => (request, need),
            };
            *asked |= request.verb == Verb::Allocate;
            let first = deadline.is_none();
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.pools.agent.limit);
            if !first {
                // The rest of the limit is too short for an answer, and the error would blame the agent.
                if Instant::now() + self.pools.agent.limit / 10 >= deadline {
                    return Err(need.unmet().into());
                }
                std::thread::sleep(PAUSE);
            }
            let verb = request.verb;
            let reply = self.pools.ask(&request, deadline);
            let refused = |refusal: PoolRefusal| refusal.map(|e| need.refused(without_name(self.name, e)));
            let reply = reply.map_err(refused)?;
            // The agent has written the file before any answer to this request.
            replies.refreshed |= verb == Verb::Claim;
            match reply {
                Reply::Local if verb == Verb::Allocate => replies.source = Some(Source::Blocks),
                Reply::Local => {}
                Reply::Allocate { families } => replies.add_families(families),
                Reply::Addresses { addresses } => replies.grant(addresses),
                other => {
                    return Err(Error::new(
                        Code::INTERNAL,
                        format!(
                            "the agent answered {other:?} to {verb:?}; install the plugin that came with this node's agent"
                        ),
                    )
                    .into());
                }
            }
        }
    }

    /// Makes the lease if that is possible now.
    fn try_now(&self, replies: &AgentReplies) -> Result<Outcome, Error> {
        // A pool of which this node has no part gets no directory.
        if !self.store.has_pool() {
            return self.refresh(replies, AgentNeed::File(self.store.pool_path()));
        }
        let (locked, pool) = self.store.enter_pool()?;
        if let Some(lease) = locked.lease(self.owner)? {
            return repeat(&locked, lease, &self.config.requests, self.sandbox).map(Outcome::Done);
        }
        let Some(pool) = pool else {
            return self.refresh(replies, AgentNeed::File(self.store.pool_path()));
        };
        if let Some(need) = self.gate(&pool) {
            return self.refresh(replies, need);
        }
        if !replies.granted.is_empty() && !locked.may_lease(self.owner, &self.request_id)? {
            return Err(Error::new(
                Code::TRY_AGAIN,
                "ADD did not use the addresses of this request in time: the agent has released them, or a later ADD of this attachment has asked again; try again",
            ));
        }
        // DEL takes this lock too: a DEL that comes later finds what ADD makes. Before an earlier one the caller had ended.
        self.pools.reader.require()?;
        let ranges = PoolRanges::new(&pool, &self.store.pool_path())?;
        let by_pool = || {
            let asks_agent = pool.asks_agent(self.sandbox.pod.as_deref());
            asks_agent.then(|| Source::Agent(Vec::new()))
        };
        let replies = &AgentReplies {
            source: replies.source.clone().or_else(by_pool),
            ..replies.clone()
        };
        self.act(&locked, &pool, &ranges, replies)
    }

    /// Allocates the addresses that can be allocated now, or returns the request to the agent.
    fn act(
        &self,
        locked: &Locked,
        pool: &PoolFile,
        ranges: &PoolRanges,
        replies: &AgentReplies,
    ) -> Result<Outcome, Error> {
        let early = replies.early.then_some(Prober {
            pod: self.sandbox.pod.as_deref(),
        });
        match plan::plan(pool, ranges, &self.config.requests, (replies, early), locked)? {
            Plan::Give(chosen) => self.commit(locked, pool, &chosen, replies).map(Outcome::Done),
            Plan::Claim(families, need) => Ok(Outcome::Ask(
                Box::new(Request {
                    families,
                    ..self.request(Verb::Claim)
                }),
                need,
            )),
            Plan::Allocate(ips, families, need) => {
                locked.begin_asking(self.owner, &self.request_id)?;
                Ok(Outcome::Ask(
                    Box::new(Request {
                        ips,
                        families,
                        early: replies.early,
                        ..self.request(Verb::Allocate)
                    }),
                    need,
                ))
            }
        }
    }

    /// The reason why this attachment must not get an address of `pool` now.
    fn gate(&self, pool: &PoolFile) -> Option<AgentNeed> {
        let namespace = self.sandbox.namespace();
        if !pool.admits(namespace) {
            return Some(AgentNeed::Namespace {
                namespace: namespace.map(str::to_owned),
                admitted: pool.namespaces.clone().unwrap_or_default(),
            });
        }
        match self.store.standing(pool) {
            Standing::Good => None,
            Standing::Unproven(why) => Some(AgentNeed::Proof {
                blocks: pool.blocks.len(),
                why,
            }),
        }
    }

    /// Asks the agent to update `pool.json`, once. After that fails with the error of `need`.
    fn refresh(&self, replies: &AgentReplies, need: AgentNeed) -> Result<Outcome, Error> {
        if replies.refreshed {
            return Err(need.unmet());
        }
        Ok(Outcome::Ask(Box::new(self.request(Verb::Claim)), need))
    }

    fn request(&self, verb: Verb) -> Request {
        Request {
            attachment: Some(AskedBy {
                owner: self.owner.clone(),
                network: self.config.place.name.clone(),
            }),
            pod: Pod::of(self.sandbox),
            ..Request::new(verb, self.name.clone())
        }
    }

    fn commit(
        &self,
        locked: &Locked,
        pool: &PoolFile,
        chosen: &[Allocation],
        replies: &AgentReplies,
    ) -> Result<CniResult, Error> {
        let result = CniResult {
            ips: chosen.iter().map(address).collect::<Result<_, _>>()?,
            routes: self.config.routes.clone().unwrap_or_else(|| pool.routes.clone()),
            dns: self.config.dns.clone().unwrap_or_else(|| pool.dns.clone()),
            ..CniResult::default()
        };
        let lease = Lease {
            api: replies.granted.clone(),
            ..locked.draft(self.owner, self.sandbox.clone(), result)?
        };
        locked.commit(&lease)?;
        for chosen in chosen.iter().filter(|chosen| chosen.in_turn) {
            locked.remember(&chosen.range, chosen.ip);
        }
        // Also if the agent answered that an address of the node's blocks will do.
        if locked.is_asking(self.owner)
            && let Err(error) = locked.end_asking(self.owner)
        {
            tracing::warn!(attachment = %self.owner, error = %error.msg, "cannot remove the record of a request; the agent removes it");
        }
        Ok(lease.result)
    }

    /// Asks the agent to release what it may have allocated to an attachment without a lease.
    fn return_granted(&self, granted: &[IpAddr]) {
        let ended = self
            .store
            .enter()
            .and_then(|locked| locked.end_request(self.owner, &self.request_id));
        if let Err(error) = ended {
            tracing::warn!(attachment = %self.owner, error = %error.msg, "cannot remove the record of a request; the agent finds it later");
        }
        self.pools.agent.notify(&Request {
            ips: granted.to_vec(),
            ..self.request(Verb::Release)
        });
    }
}
