// SPDX-License-Identifier: Apache-2.0
//! The reconciler: one task per pool. Everything that this node does about the pool happens in this task, one thing after another.
//!
//! Invariant: only this task writes the pool's file, and the node runs one agent (`crate::lock`). So no other writer comes
//! between a successful request and the file write that follows from it.

mod backoff;
mod bind_address;
mod claim;
mod gc;
mod mailbox;
mod pick_address;
mod pool_file;
mod publish;
mod rebind;
mod reconcile_block;
mod report_usage;
mod requests;
mod run_loop;
mod sharing;
mod sticky;
mod withheld;

use crate::agent::{Agent, ReconcileError};
use crate::node::LocalPool;
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::{block_record, cidr_of, version_number};
use api::{BlockState, IpBlock, IpPool};
use block::Usage;
use block::owner::{Desired, NodeIdentity};
use ipam::agent::{Reply, Request};
use ipam::pool::{Counters, PoolName, PoolRanges};
use ipam::range::Family;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use kube::runtime::reflector::ObjectRef;
use run_loop::Part;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A message to a reconciler.
#[derive(Debug)]
pub enum Message {
    /// Something may have changed: start a round.
    Reconcile,
    /// A plugin's request.
    Request(Box<PluginRequest>),
}

/// A plugin's request and where its answer goes.
#[derive(Debug)]
pub struct PluginRequest {
    /// The request.
    pub request: Request,
    /// The channel for the answer. It is closed once the plugin no longer waits.
    pub answer: oneshot::Sender<Response>,
    /// When the request arrived.
    pub asked: tokio::time::Instant,
    /// The version of the pool that the watch had reported when the request arrived.
    pub told: u64,
    /// The plugin has time left to wait until another node shares a block.
    pub waits: bool,
}

/// The reconciler's answer to a plugin's request.
#[derive(Debug)]
pub enum Response {
    /// The final answer.
    Reply(Reply),
    /// Other nodes were asked to share addresses. The caller repeats the request this long after that wish has ended.
    RetryAfter(Duration),
}

/// The reconciler of a pool.
pub struct PoolReconciler {
    agent: Arc<Agent>,
    pool: PoolName,
    /// Blocks that this reconciler wrote or read itself and that the watch may not have reported yet.
    written: HashMap<String, KnownBlock>,
    /// Since when a block is idle.
    idle: HashMap<String, Instant>,
    /// Since this process started, every block of the file has been compared with the API server.
    proven: bool,
    /// The blocks already compared, until `proven` is set.
    compared: HashSet<String>,
    /// The number of claim attempts. Each attempt goes through the blocks in an order of its own.
    attempts: u64,
    /// The block of the last claim that ended without an answer from the API server.
    doubtful: HashMap<Family, BlockCidr>,
    /// When the last list of all blocks found the pool full, if no claim has succeeded since.
    full_since: Option<Instant>,
    /// The request that is being answered now.
    pending: Option<PendingRequest>,
    /// Blocks of this node's earlier registrations: the version of each, and since when it has that version.
    orphans: HashMap<String, (String, Instant)>,
    suspects: gc::Suspects,
    published: publish::Published,
    reports: report_usage::Reports,
    /// Namespaces that the pool selects according to a GET, and since when. The watch may not have reported them yet.
    admitted: HashMap<String, Instant>,
    /// The result of the last list of shared blocks.
    shared: Option<sharing::View>,
    /// The version of the pool that contains this node's last wish, and when it was written.
    requested: Option<(u64, Instant)>,
    /// Searches that found every address taken.
    exhausted: pick_address::Exhausted,
    /// The part with which the next round begins.
    first: run_loop::Part,
    /// The block at which the last round was interrupted.
    cut_at: Option<String>,
    /// When the addresses that are held back were last checked for objects.
    checked_withheld: Option<Instant>,
}

/// The pending request. "Exhausted" may only be answered from data that was read after it arrived.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    since: Instant,
    /// The version of the pool that was known when the request arrived.
    told: u64,
}

/// The state of a block according to an answer of the API server.
struct KnownBlock {
    version: u64,
    /// None if the block was deleted.
    block: Option<IpBlock>,
    at: Instant,
}

/// How long the watch may take to report a block that was written.
const WATCH_LAG: Duration = Duration::from_secs(10);

impl KnownBlock {
    /// Whether this state may be newer than that of the watch, which has reported version `told`. If the watch does not have the
    /// block, either the block was written a moment ago or it has been deleted since. An entry that is forgotten too early only
    /// costs another request.
    fn is_news(&self, told: Option<u64>, age: Duration) -> bool {
        match (told, &self.block) {
            (Some(told), Some(_)) => told < self.version,
            (Some(told), None) => told <= self.version,
            (None, Some(_)) => age < WATCH_LAG,
            (None, None) => false,
        }
    }
}

/// The desired state of the pool on this node.
struct Target {
    accepted: Option<AcceptedPool>,
    /// New addresses may be allocated.
    open: bool,
    counters: Counters,
    blocks: i64,
    /// The blocks that the controller asks to be shared.
    sharing: Vec<String>,
    /// Some node finds no free address, and other nodes are about to be asked to share.
    has_shortage: bool,
}

impl PoolReconciler {
    /// Creates a reconciler that has not done anything yet.
    pub fn new(agent: Arc<Agent>, pool: PoolName) -> Self {
        Self {
            agent,
            pool,
            written: HashMap::new(),
            idle: HashMap::new(),
            proven: false,
            compared: HashSet::new(),
            attempts: 0,
            doubtful: HashMap::new(),
            full_since: None,
            pending: None,
            orphans: HashMap::new(),
            suspects: gc::Suspects::default(),
            published: publish::Published::default(),
            reports: report_usage::Reports::default(),
            admitted: HashMap::new(),
            shared: None,
            requested: None,
            checked_withheld: None,
            exhausted: pick_address::Exhausted::default(),
            first: run_loop::Part::Blocks,
            cut_at: None,
        }
    }

    /// The pool as the watch last reported it.
    fn pool_object(&self) -> Option<Arc<IpPool>> {
        self.agent.pools.get(&ObjectRef::new(self.pool.as_str()))
    }

    fn target(&self) -> Result<Target, ReconcileError> {
        let Some(pool) = self.pool_object() else {
            return Ok(Target {
                accepted: None,
                open: false,
                counters: Counters::default(),
                blocks: 0,
                sharing: Vec::new(),
                has_shortage: false,
            });
        };
        let status = pool.status.clone().unwrap_or_default();
        let (counters, has_shortage) = (status.counters.clone().unwrap_or_default(), status.has_shortage());
        let number = |n: i64| u64::try_from(n).unwrap_or_default();
        let accepted = AcceptedPool::of(&pool)?;
        let selected = accepted
            .as_ref()
            .is_some_and(|accepted| self.selects_node(accepted));
        let registered = matches!(self.agent.identity(), Some(NodeIdentity::Registered(_)));
        Ok(Target {
            open: selected && registered && pool.metadata.deletion_timestamp.is_none(),
            accepted,
            counters: Counters {
                size: number(counters.size),
                used: number(counters.used),
                free: number(counters.unclaimed),
            },
            blocks: counters.blocks,
            has_shortage,
            sharing: status.sharing,
        })
    }

    fn selects_node(&self, accepted: &AcceptedPool) -> bool {
        let Some(selector) = accepted.spec.node_selector.clone() else {
            return true;
        };
        Selector::try_from(selector).is_ok_and(|selector| selector.matches(&self.agent.labels()))
    }

    /// The blocks of this pool with this node's name, each in the newest version that is known.
    fn blocks(&self) -> BTreeMap<String, IpBlock> {
        let of_pool = |block: &Arc<IpBlock>| block.spec.pool == self.pool.as_str();
        let told = self.agent.blocks.state().into_iter().filter(of_pool);
        let mut blocks: BTreeMap<String, IpBlock> =
            told.map(|block| (block.name_any(), (*block).clone())).collect();
        for (name, noted) in &self.written {
            if blocks
                .get(name)
                .is_some_and(|told| version_number(told) > noted.version)
            {
                continue;
            }
            match &noted.block {
                Some(block) => blocks.insert(name.clone(), block.clone()),
                None => blocks.remove(name),
            };
        }
        blocks
    }

    /// Forgets the noted blocks that the watch has reported by now.
    fn forget_reported(&mut self) {
        let told: HashMap<String, u64> = self
            .agent
            .blocks
            .state()
            .iter()
            .map(|block| (block.name_any(), version_number(&**block)))
            .collect();
        self.written
            .retain(|name, noted| noted.is_news(told.get(name).copied(), noted.at.elapsed()));
    }

    fn note(&mut self, name: &str, block: Option<IpBlock>) {
        if block.is_some() {
            self.agent.block_watch.watch(name);
        }
        let before = self.written.get(name).map_or(0, |noted| noted.version);
        let told = self
            .agent
            .blocks
            .get(&ObjectRef::new(name))
            .map_or(0, |block| version_number(&*block));
        let noted = KnownBlock {
            version: block.as_ref().map_or_else(|| told.max(before), version_number),
            block,
            at: Instant::now(),
        };
        self.written.insert(name.to_owned(), noted);
    }

    async fn holdings(
        &self,
        blocks: &BTreeMap<String, IpBlock>,
    ) -> Result<(LocalPool, BTreeMap<String, Usage>), ReconcileError> {
        let file = self.file().await?;
        let mut cells: BTreeMap<String, BlockCidr> = blocks
            .iter()
            .filter_map(|(name, block)| Some((name.clone(), cidr_of(block)?)))
            .collect();
        for block in file.iter().flat_map(|file| &file.blocks) {
            if let Some(cidr) = BlockCidr::of(block.cidr) {
                cells.insert(block.name.clone(), cidr);
            }
        }
        let cidrs = cells.values().map(|cidr| cidr.network()).collect();
        let holdings = self.agent.stores.holdings(&self.pool, cidrs).await?;
        let usage = cells.into_keys().zip(holdings.usage.iter().copied()).collect();
        Ok((holdings, usage))
    }

    /// Reconciles the node's part of the pool by one step or several.
    async fn reconcile(&mut self) -> Result<(), ReconcileError> {
        let asked = self.agent.refresh_node(self.node_max_age()).await?;
        // This comes first because the next steps may fail.
        self.forget_reported();
        let target = self.target()?;
        if target.accepted.is_none() && self.file().await?.is_none() {
            self.agent.metrics.holds_nothing(&self.pool);
            return Ok(());
        }
        let first = if self.proven { self.first } else { Part::Blocks };
        self.first = Part::Blocks;
        let mut refused = None;
        for part in first.and_others() {
            let Err(failure) = self.do_part(part, &target, asked).await else {
                continue;
            };
            if failure.is_unanswered() {
                // The time is over. The next round begins with the part after this one.
                self.first = part.next();
                return Err(failure);
            }
            // If the API server rejects one object, the rest of the pool is still reconciled.
            refused.get_or_insert(failure);
        }
        refused.map_or(Ok(()), Err)
    }

    async fn do_part(&mut self, part: Part, target: &Target, asked: Duration) -> Result<(), ReconcileError> {
        match part {
            Part::Blocks => {
                let settled = self.reconcile_blocks(target).await;
                if matches!(&settled, Err(failure) if failure.is_unanswered()) {
                    return settled;
                }
                if settled.is_ok() {
                    self.proven = true;
                    self.compared.clear();
                }
                self.write_file(target).await?;
                self.confirm(asked).await?;
                settled
            }
            Part::Claim if target.open => self.claim_ahead(target).await,
            Part::Claim => Ok(()),
            Part::Collect => self.collect(target).await,
            Part::Report => self.report_usage(target).await,
        }
    }

    /// The maximum age of this node's registration as the agent knows it. If another process has orphaned a block, the Node is
    /// probably gone. Then the agent has seconds until the pod garbage collector deletes its Pod, and must report its pods before
    /// that.
    fn node_max_age(&self) -> Duration {
        let of_me = |block: &IpBlock| {
            self.agent.identity() == Some(NodeIdentity::Registered(block_record(block).owner))
        };
        let mut orphans = self.blocks().into_values();
        if orphans.any(|block| block.spec.state == BlockState::Orphaned && of_me(&block)) {
            return self.agent.config.tick;
        }
        self.agent.config.confirm_every()
    }

    /// The wish for one block.
    fn desired_use(
        target: &Target,
        name: &str,
        cidr: Option<BlockCidr>,
        used: Usage,
        surplus: bool,
    ) -> Desired {
        // A block without a free address is not shared. `mirror` reports that it has none.
        let spares = |accepted: &AcceptedPool| report_usage::free(accepted, cidr, used) > 0;
        let has =
            |accepted: &AcceptedPool| accepted.has_blocks() && cidr.is_some_and(|cidr| accepted.has(cidr));
        if !target.open || !target.accepted.as_ref().is_some_and(has) {
            Desired::Drain
        } else if target.sharing.iter().any(|asked| asked == name)
            && target.accepted.as_ref().is_some_and(spares)
        {
            Desired::Share
        } else if surplus {
            Desired::Return
        } else {
            Desired::Keep
        }
    }

    /// The number of free addresses in the active blocks, according to the file and the store.
    fn free_local(
        accepted: &AcceptedPool,
        family: Family,
        holdings: &LocalPool,
        usage: &BTreeMap<String, Usage>,
    ) -> u64 {
        let Some(file) = &holdings.file else { return 0 };
        // The file's ranges also exclude the addresses that this node holds back.
        let Ok(ranges) = PoolRanges::new(file, Path::new("pool.json")) else {
            return 0;
        };
        let usable = ranges.usable(family);
        let in_pool = |cidr: BlockCidr| accepted.layout(family).is_some_and(|layout| layout.has(cidr));
        let active = file
            .active()
            .filter(|block| BlockCidr::of(block.cidr).is_some_and(in_pool));
        active
            .filter_map(|block| {
                let all = usable.both(&[BlockCidr::of(block.cidr)?.interval()].into_iter().collect());
                let all = u64::try_from(all.count()).unwrap_or(u64::MAX);
                let used = usage.get(&block.name).copied().unwrap_or_default();
                Some(all.saturating_sub(used.taken()))
            })
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests;
