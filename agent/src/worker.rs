// SPDX-License-Identifier: Apache-2.0
//! One task for each pool: everything that this node does about a pool happens here, one thing after another.
//!
//! Holds always: only this task writes the pool's file, and the node runs one agent (`crate::lock`), so between a
//! successful request and the write that follows from it nobody else writes.

mod address;
mod ask;
mod back;
mod claim;
mod file;
mod garbage;
mod inbox;
mod keep;
mod mirror;
mod publish;
mod rhythm;
mod rounds;
mod search;
mod settle;
mod shared;
mod sticky;

use crate::agent::{Agent, Failure};
use crate::api::{BlockState, IpBlock, IpPool};
use crate::grid::Cell;
use crate::ground::Ground;
use crate::node::Holdings;
use crate::object::{cell, seen, version};
use block::Use;
use block::owner::{Me, Wish};
use ipam::agent::{Reply, Request};
use ipam::pool::{Counters, PoolName, PoolRanges};
use ipam::range::Family;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use kube::runtime::reflector::ObjectRef;
use rounds::Part;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// What a worker is told.
#[derive(Debug)]
pub enum Message {
    /// Something may have changed.
    Look,
    /// A plugin asks.
    Ask(Box<Question>),
}

/// What a plugin asks.
#[derive(Debug)]
pub struct Question {
    /// Its words.
    pub request: Request,
    /// Where the answer goes; closed when nobody waits for it any more.
    pub answer: oneshot::Sender<Answer>,
    /// Since when the plugin waits.
    pub asked: tokio::time::Instant,
    /// The version of the pool that the API server had told then.
    pub told: u64,
    /// The plugin has time to wait for what others do.
    pub waits: bool,
}

/// What a worker says to that.
#[derive(Debug)]
pub enum Answer {
    /// That is all.
    Reply(Reply),
    /// Others were asked to share addresses: once that wish has ended, and this time later, the question is to be asked again.
    Later(Duration),
}

/// The worker of a pool.
pub struct Worker {
    agent: Arc<Agent>,
    pool: PoolName,
    /// What this worker has written or read itself and the watch may not have told yet.
    written: HashMap<String, Noted>,
    /// Since when a block is idle.
    idle: HashMap<String, Instant>,
    /// Every block of the file was compared with the API server since this process started.
    proven: bool,
    /// Until all are: those that were.
    compared: HashSet<String>,
    /// Attempts to claim, each with an order of its own.
    attempts: u64,
    /// The block that a claim was about when it ended without an answer.
    doubtful: HashMap<Family, Cell>,
    /// When the pool was last looked through, if it was found full.
    full_since: Option<Instant>,
    /// What is to be answered now.
    asking: Option<Asking>,
    /// The version of a block of this node's earlier registration, and since when it is seen.
    orphans: HashMap<String, (String, Instant)>,
    suspects: garbage::Suspects,
    published: publish::Published,
    mirrored: mirror::Mirrored,
    /// Namespaces that the pool selects by the API server's own word, which the watch may not have told yet, and since when.
    admitted: HashMap<String, Instant>,
    /// The shared blocks, as they were listed last.
    shared: Option<shared::View>,
    /// The version of the pool with the last wish that this node has told, and when.
    wished: Option<(u64, Instant)>,
    /// Searches that found every address taken.
    exhausted: search::Exhausted,
    /// The part that the next round begins with.
    first: rounds::Part,
    /// The block that the last round was cut at.
    cut_at: Option<String>,
    /// When objects were last looked for among the addresses that are held back.
    looked_back: Option<Instant>,
}

/// What a plugin waits for. That a pool is exhausted is no answer by what was known before.
#[derive(Clone, Copy, Debug)]
struct Asking {
    since: Instant,
    /// The version of the pool that was known then.
    told: u64,
}

/// What is known of a block by an answer of the API server.
struct Noted {
    version: u64,
    /// None if it was deleted.
    block: Option<IpBlock>,
    at: Instant,
}

/// How long the watch may need to tell of a block that was written.
const TELLING: Duration = Duration::from_secs(10);

impl Noted {
    /// Whether this may be newer than the watch, which has `told` this version. A block that the watch does not have was
    /// written a moment ago, or somebody has ended it since: what is forgotten too early is only asked for again.
    fn is_news(&self, told: Option<u64>, age: Duration) -> bool {
        match (told, &self.block) {
            (Some(told), Some(_)) => told < self.version,
            (Some(told), None) => told <= self.version,
            (None, Some(_)) => age < TELLING,
            (None, None) => false,
        }
    }
}

/// What the node is to have of a pool.
struct Target {
    ground: Option<Ground>,
    /// New addresses may be given.
    open: bool,
    counters: Counters,
    blocks: i64,
    /// The blocks that are to be shared.
    sharing: Vec<String>,
    /// Nodes find no address, and others are about to be asked to share.
    is_wanted: bool,
}

impl Worker {
    /// A worker that has done nothing.
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
            asking: None,
            orphans: HashMap::new(),
            suspects: garbage::Suspects::default(),
            published: publish::Published::default(),
            mirrored: mirror::Mirrored::default(),
            admitted: HashMap::new(),
            shared: None,
            wished: None,
            looked_back: None,
            exhausted: search::Exhausted::default(),
            first: rounds::Part::Settle,
            cut_at: None,
        }
    }

    /// The pool as the API server last told of it.
    fn pool_object(&self) -> Option<Arc<IpPool>> {
        self.agent.pools.get(&ObjectRef::new(self.pool.as_str()))
    }

    fn target(&self) -> Result<Target, Failure> {
        let Some(pool) = self.pool_object() else {
            return Ok(Target {
                ground: None,
                open: false,
                counters: Counters::default(),
                blocks: 0,
                sharing: Vec::new(),
                is_wanted: false,
            });
        };
        let status = pool.status.clone().unwrap_or_default();
        let (counters, is_wanted) = (status.counters.clone().unwrap_or_default(), status.is_wanted());
        let number = |n: i64| u64::try_from(n).unwrap_or_default();
        let ground = Ground::accepted(&pool)?;
        let selected = ground.as_ref().is_some_and(|ground| self.selects_node(ground));
        let registered = matches!(self.agent.me(), Some(Me::Registered(_)));
        Ok(Target {
            open: selected && registered && pool.metadata.deletion_timestamp.is_none(),
            ground,
            counters: Counters {
                size: number(counters.size),
                used: number(counters.used),
                free: number(counters.unclaimed),
            },
            blocks: counters.blocks,
            is_wanted,
            sharing: status.sharing,
        })
    }

    fn selects_node(&self, ground: &Ground) -> bool {
        let Some(selector) = ground.spec.node_selector.clone() else {
            return true;
        };
        Selector::try_from(selector).is_ok_and(|selector| selector.matches(&self.agent.labels()))
    }

    /// The blocks of this pool with this node's name, the newest that is known of each.
    fn blocks(&self) -> BTreeMap<String, IpBlock> {
        let of_pool = |block: &Arc<IpBlock>| block.spec.pool == self.pool.as_str();
        let told = self.agent.blocks.state().into_iter().filter(of_pool);
        let mut blocks: BTreeMap<String, IpBlock> =
            told.map(|block| (block.name_any(), (*block).clone())).collect();
        for (name, noted) in &self.written {
            if blocks.get(name).is_some_and(|told| version(told) > noted.version) {
                continue;
            }
            match &noted.block {
                Some(block) => blocks.insert(name.clone(), block.clone()),
                None => blocks.remove(name),
            };
        }
        blocks
    }

    /// Forgets what the watch has told by now.
    fn forget_told(&mut self) {
        let told: HashMap<String, u64> = self
            .agent
            .blocks
            .state()
            .iter()
            .map(|block| (block.name_any(), version(&**block)))
            .collect();
        self.written
            .retain(|name, noted| noted.is_news(told.get(name).copied(), noted.at.elapsed()));
    }

    fn note(&mut self, name: &str, block: Option<IpBlock>) {
        if block.is_some() {
            self.agent.names.follow(name);
        }
        let before = self.written.get(name).map_or(0, |noted| noted.version);
        let told = self
            .agent
            .blocks
            .get(&ObjectRef::new(name))
            .map_or(0, |block| version(&*block));
        let noted = Noted {
            version: block.as_ref().map_or_else(|| told.max(before), version),
            block,
            at: Instant::now(),
        };
        self.written.insert(name.to_owned(), noted);
    }

    async fn holdings(
        &self,
        blocks: &BTreeMap<String, IpBlock>,
    ) -> Result<(Holdings, BTreeMap<String, Use>), Failure> {
        let file = self.file().await?;
        let mut cells: BTreeMap<String, Cell> = blocks
            .iter()
            .filter_map(|(name, block)| Some((name.clone(), cell(block)?)))
            .collect();
        for block in file.iter().flat_map(|file| &file.blocks) {
            if let Some(cell) = Cell::of(block.cidr) {
                cells.insert(block.name.clone(), cell);
            }
        }
        let cidrs = cells.values().map(|cell| cell.cidr()).collect();
        let holdings = self.agent.stores.holdings(&self.pool, cidrs).await?;
        let usage = cells.into_keys().zip(holdings.usage.iter().copied()).collect();
        Ok((holdings, usage))
    }

    /// Brings the node's part of the pool one step, or several, nearer to what it should be.
    async fn reconcile(&mut self) -> Result<(), Failure> {
        let asked = self.agent.look_at_node(self.look_every()).await?;
        // First, for what comes next may fail.
        self.forget_told();
        let target = self.target()?;
        if target.ground.is_none() && self.file().await?.is_none() {
            self.agent.metrics.holds_nothing(&self.pool);
            return Ok(());
        }
        let first = if self.proven { self.first } else { Part::Settle };
        self.first = Part::Settle;
        let mut refused = None;
        for part in first.and_others() {
            let Err(failure) = self.do_part(part, &target, asked).await else {
                continue;
            };
            if failure.is_silence() {
                // Time is up. The next round begins with what this one has not reached.
                self.first = part.next();
                return Err(failure);
            }
            // One object that the API server refuses does not hold up the rest of the pool.
            refused.get_or_insert(failure);
        }
        refused.map_or(Ok(()), Err)
    }

    async fn do_part(&mut self, part: Part, target: &Target, asked: Duration) -> Result<(), Failure> {
        match part {
            Part::Settle => {
                let settled = self.settle_all(target).await;
                if matches!(&settled, Err(failure) if failure.is_silence()) {
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
            Part::Tell => self.mirror(target).await,
        }
    }

    /// How old may be what is known of this node's registration. A block that another process has orphaned is a sign that the Node is
    /// gone: then the agent has seconds until the pod garbage collector deletes its Pod, and reports its pods before that.
    fn look_every(&self) -> Duration {
        let of_me = |block: &IpBlock| self.agent.me() == Some(Me::Registered(seen(block).owner));
        let mut orphans = self.blocks().into_values();
        if orphans.any(|block| block.spec.state == BlockState::Orphaned && of_me(&block)) {
            return self.agent.config.tick;
        }
        self.agent.config.confirm_every()
    }

    /// What is wanted of a block.
    fn wish_for(target: &Target, name: &str, cell: Option<Cell>, used: Use, surplus: bool) -> Wish {
        // A block with nothing to spare would help nobody; that it has nothing is told (`mirror`).
        let spares = |ground: &Ground| mirror::free(ground, cell, used) > 0;
        let has = |ground: &Ground| ground.has_blocks() && cell.is_some_and(|cell| ground.has(cell));
        if !target.open || !target.ground.as_ref().is_some_and(has) {
            Wish::Drain
        } else if target.sharing.iter().any(|asked| asked == name)
            && target.ground.as_ref().is_some_and(spares)
        {
            Wish::Share
        } else if surplus {
            Wish::Return
        } else {
            Wish::Keep
        }
    }

    /// How many addresses of the active blocks nobody has, by the file and the store.
    fn free_here(ground: &Ground, family: Family, holdings: &Holdings, usage: &BTreeMap<String, Use>) -> u64 {
        let Some(file) = &holdings.file else { return 0 };
        // With what this node holds back.
        let Ok(ranges) = PoolRanges::new(file, Path::new("pool.json")) else {
            return 0;
        };
        let usable = ranges.usable(family);
        let in_pool = |cell: Cell| ground.grid(family).is_some_and(|grid| grid.has(cell));
        let active = file
            .active()
            .filter(|block| Cell::of(block.cidr).is_some_and(in_pool));
        active
            .filter_map(|block| {
                let all = usable.both(&[Cell::of(block.cidr)?.interval()].into_iter().collect());
                let all = u64::try_from(all.count()).unwrap_or(u64::MAX);
                let used = usage.get(&block.name).copied().unwrap_or_default();
                Some(all.saturating_sub(used.taken()))
            })
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests;
