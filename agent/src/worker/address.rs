// SPDX-License-Identifier: Apache-2.0
//! Addresses that are objects of their own: one CREATE each, whose name decides.
//!
//! Holds always: such an address lies in no node's active block, or the node has noted, before the address was given, that
//! it is not to give it itself (`observedGeneration`).

use super::claim::{Claimed, Wanted};
use super::{Target, Worker};
use crate::agent::Failure;
use crate::api::{AddressState, Attachment, BlockState, IpAddress, IpAddressSpec, IpBlock, PodRef};
use crate::block::claim::{Order, seed};
use crate::block::owner::Me;
use crate::cluster::{Written, create, delete, get, list};
use crate::grid::{Cell, address_name};
use crate::ground::Ground;
use crate::object::{now, reference};
use common::cni::{Code, Error};
use ipam::agent::{AskedBy, Pod, Reply, Request};
use ipam::interval::IntervalSet;
use ipam::range::{Family, bits};
use ipam::store::Lease;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Addresses that are tried one by one before all are listed.
const TRIES: u128 = 16;

impl Worker {
    pub(super) async fn serve_allocate(
        &mut self,
        target: &Target,
        ground: &Ground,
        request: &Request,
    ) -> Result<Reply, Error> {
        let mut given = Vec::new();
        let done = self.allocate_all(target, ground, request, &mut given).await;
        if !matches!(done, Ok(Reply::Addresses { .. })) {
            // All or nothing; what cannot be taken back now is found later, since no lease has it.
            for address in &given {
                let _ = delete(&self.agent.cluster.addresses, address).await;
            }
        }
        done
    }

    async fn allocate_all(
        &mut self,
        target: &Target,
        ground: &Ground,
        request: &Request,
        given: &mut Vec<IpAddress>,
    ) -> Result<Reply, Error> {
        let Some(asked) = &request.attachment else {
            return Err(Error::new(
                Code::INTERNAL,
                "a question for an address names no attachment",
            ));
        };
        for ip in &request.ips {
            if let Some(reply) = self.by_block(target, ground, *ip).await? {
                return Ok(reply);
            }
            given.push(self.bind(ground, *ip, asked, request.pod.as_ref()).await?);
        }
        for family in &request.families {
            if ground.has_blocks() {
                return Ok(Reply::Local);
            }
            given.push(
                self.bind_any(ground, *family, asked, request.pod.as_ref())
                    .await?,
            );
        }
        let addresses = given
            .iter()
            .filter_map(|address| address.spec.address.parse().ok())
            .collect();
        tracing::info!(pool = %self.pool, attachment = %asked.owner, ?addresses, "given by way of the API server");
        Ok(Reply::Addresses { addresses })
    }

    /// Whether `ip`, asked for by name, is to come from a block; claims that block if nobody has it.
    async fn by_block(
        &mut self,
        target: &Target,
        ground: &Ground,
        ip: IpAddr,
    ) -> Result<Option<Reply>, Error> {
        let family = Family::of(ip);
        self.require_inside(ground, ip)?;
        if !ground.has_blocks() || ground.ranges.reserved(family).contains(bits(ip)) {
            return Ok(None);
        }
        let Some((grid, cell)) = ground
            .grid(family)
            .and_then(|grid| Some((grid, Cell::around(ip, grid.shift())?)))
        else {
            return Ok(None);
        };
        let Some(Me::Registered(me)) = self.agent.me() else {
            return Ok(None);
        };
        let name = cell.name(&ground.spec.address_space);
        for _ in 0..2 {
            let block: Option<IpBlock> = get(&self.agent.cluster.blocks, &name)
                .await
                .map_err(|e| self.failed(&e.into()))?;
            match block {
                Some(block) if block.spec.state == BlockState::Shared => return Ok(None),
                Some(block) if block.spec.owner.node == *me.node && block.spec.pool == self.pool.as_str() => {
                    return Ok(Some(Reply::Local));
                }
                Some(block) => return Err(self.foreign(ip, &block)),
                None => {
                    let claimed = self
                        .claim_cell(
                            Wanted {
                                target,
                                ground,
                                grid,
                                me: &me,
                            },
                            cell,
                        )
                        .await;
                    match claimed.map_err(|e| self.failed(&e))? {
                        Claimed::Yes => return Ok(Some(Reply::Local)),
                        Claimed::Unlisted => {
                            return Err(Error::new(
                                Code::TRY_AGAIN,
                                format!("pool {} has just been changed; try again", self.pool),
                            ));
                        }
                        Claimed::Full | Claimed::Limit => {}
                    }
                }
            }
        }
        Err(Error::new(
            Code::TRY_AGAIN,
            format!("block {name} of {ip} changes hands; try again"),
        ))
    }

    fn require_inside(&self, ground: &Ground, ip: IpAddr) -> Result<(), Error> {
        if ground.ranges.range_of(ip).is_none() {
            return Err(Error::new(
                Code::ADDRESS_OUTSIDE,
                format!(
                    "{ip} lies outside every range of pool {}: {}",
                    self.pool,
                    ground.ranges.describe()
                ),
            ));
        }
        Ok(())
    }

    fn foreign(&self, ip: IpAddr, block: &IpBlock) -> Error {
        Error::new(
            Code::ADDRESS_IN_USE,
            format!(
                "{ip} lies in {}, which node {} gives to its own pods (pool {}); list it in spec.reserved of pool {}, so that nodes leave it to who asks for it",
                block.spec.cidr, block.spec.owner.node, block.spec.pool, self.pool
            ),
        )
    }

    /// Any address of a pool without blocks.
    async fn bind_any(
        &mut self,
        ground: &Ground,
        family: Family,
        asked: &AskedBy,
        pod: Option<&Pod>,
    ) -> Result<IpAddress, Error> {
        let all = ground.ranges.usable(family);
        self.attempts += 1;
        let order = Order::new(
            all.count(),
            seed(
                asked.owner.container_id.as_str(),
                self.pool.as_str(),
                self.attempts,
            ),
        );
        for position in 0..TRIES.min(all.count()) {
            let ip = order.at(position).and_then(|index| nth(&all, index));
            let Some(ip) = ip.map(|number| family.address(number)) else {
                continue;
            };
            match self.bind(ground, ip, asked, pod).await {
                Err(e) if e.code == Code::ADDRESS_IN_USE => {}
                done => return done,
            }
        }
        let fields = format!("spec.pool={}", self.pool);
        let taken: Vec<IpAddress> = list(&self.agent.cluster.addresses, &fields)
            .await
            .map_err(|e| self.failed(&e.into()))?;
        let numbers = taken
            .iter()
            .filter_map(|address| address.spec.address.parse().ok())
            .filter(|ip| Family::of(*ip) == family);
        let taken: IntervalSet = numbers
            .map(|ip| ipam::interval::Interval {
                first: bits(ip),
                last: bits(ip),
            })
            .collect();
        let free = all.minus(&taken);
        for index in 0..TRIES.min(free.count()) {
            let Some(ip) = nth(&free, index).map(|number| family.address(number)) else {
                break;
            };
            match self.bind(ground, ip, asked, pod).await {
                Err(e) if e.code == Code::ADDRESS_IN_USE => {}
                done => return done,
            }
        }
        Err(Error::new(
            Code::EXHAUSTED,
            format!(
                "pool {} is exhausted: {} of {} addresses are taken; add a range or remove pods",
                self.pool,
                taken.count(),
                all.count()
            ),
        ))
    }

    /// Makes `ip` the attachment's.
    async fn bind(
        &mut self,
        ground: &Ground,
        ip: IpAddr,
        asked: &AskedBy,
        pod: Option<&Pod>,
    ) -> Result<IpAddress, Error> {
        let wanted = self.object(ground, ip, asked, pod)?;
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let addresses = self.agent.cluster.addresses.clone();
        let made = create(&addresses, &wanted)
            .await
            .map_err(|e| self.failed(&e.into()))?;
        let address = match made {
            Written::Done(address) => address,
            Written::Late => {
                let there = get(&addresses, &name).await.map_err(|e| self.failed(&e.into()))?;
                match there {
                    // Our own, whose answer was lost.
                    Some(there)
                        if there.spec.attachment == wanted.spec.attachment
                            && there.spec.node == wanted.spec.node =>
                    {
                        there
                    }
                    Some(there) => return Err(in_use(ip, &there)),
                    None => {
                        return Err(Error::new(
                            Code::TRY_AGAIN,
                            format!("{ip} has just been released; try again"),
                        ));
                    }
                }
            }
        };
        match self.noted(ground, ip).await {
            Ok(None) => Ok(address),
            Ok(Some(why)) => {
                let _ = delete(&addresses, &address).await;
                Err(Error::new(Code::TRY_AGAIN, why))
            }
            Err(e) => {
                let _ = delete(&addresses, &address).await;
                Err(self.failed(&e))
            }
        }
    }

    /// Why `ip` may not be given yet: the node that has its block may not know so far that the address is not its to give.
    async fn noted(&self, ground: &Ground, ip: IpAddr) -> Result<Option<String>, Failure> {
        let Some(cell) = ground
            .grid(Family::of(ip))
            .and_then(|grid| Cell::around(ip, grid.shift()))
        else {
            return Ok(None);
        };
        let block: Option<IpBlock> =
            get(&self.agent.cluster.blocks, &cell.name(&ground.spec.address_space)).await?;
        let Some(block) = block.filter(|block| block.spec.state != BlockState::Shared) else {
            return Ok(None);
        };
        let noted = block
            .status
            .as_ref()
            .and_then(|status| status.observed_generation)
            .unwrap_or_default();
        if block.spec.pool == self.pool.as_str() && noted >= ground.generation {
            return Ok(None);
        }
        Ok(Some(format!(
            "{ip} lies in {} of node {}, whose agent has not noted yet that the address is reserved (generation {} of pool {}, it has {noted}); try again, and look after that agent if this stays",
            block.spec.cidr, block.spec.owner.node, ground.generation, self.pool
        )))
    }

    fn object(
        &self,
        ground: &Ground,
        ip: IpAddr,
        asked: &AskedBy,
        pod: Option<&Pod>,
    ) -> Result<IpAddress, Error> {
        let Some(Me::Registered(me)) = self.agent.me() else {
            return Err(Error::new(
                Code::POOL_NOT_HERE,
                format!("the cluster has no Node {}", self.agent.config.node),
            ));
        };
        let spec = IpAddressSpec {
            pool: self.pool.to_string(),
            address: ip.to_string(),
            node: reference(&me),
            state: AddressState::Bound,
            attachment: Some(Attachment {
                container_id: asked.owner.container_id.to_string(),
                ifname: asked.owner.ifname.to_string(),
                network: asked.network.clone(),
            }),
            pod: pod.map(|pod| PodRef {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            }),
            holder: None,
            since: Some(now()),
        };
        Ok(IpAddress::new(
            &address_name(&ground.spec.address_space, ip),
            spec,
        ))
    }

    /// Makes an object for each lease of `within` that has none.
    pub(super) async fn publish_leases(
        &mut self,
        ground: &Ground,
        within: &IntervalSet,
    ) -> Result<(), Failure> {
        let leases = self.agent.stores.leases(&self.pool).await?;
        let there: BTreeMap<IpAddr, String> = self.own_addresses().await?;
        for held in leases.held {
            for ip in held
                .lease
                .addresses()
                .filter(|ip| within.contains(bits(*ip)) && !there.contains_key(ip))
            {
                let (asked, pod) = of_lease(&held.lease);
                let wanted = self
                    .object(ground, ip, &asked, pod.as_ref())
                    .map_err(Failure::Node)?;
                create(&self.agent.cluster.addresses, &wanted).await?;
            }
        }
        Ok(())
    }

    /// The addresses of this node and pool that are objects, with their names.
    async fn own_addresses(&self) -> Result<BTreeMap<IpAddr, String>, Failure> {
        let all = self.agent.cluster.addresses_of(&self.agent.config.node).await?;
        let of_pool = all
            .into_iter()
            .filter(|address| address.spec.pool == self.pool.as_str());
        Ok(of_pool
            .filter_map(|address| Some((address.spec.address.parse().ok()?, address.metadata.name?)))
            .collect())
    }

    /// How many leases of the block have no object.
    pub(super) async fn unpublished(&self, cell: Option<Cell>) -> Result<u64, Failure> {
        let Some(cell) = cell else { return Ok(0) };
        let leases = self.agent.stores.leases(&self.pool).await?;
        let there = self.own_addresses().await?;
        let inside = |ip: &IpAddr| cell.cidr().contains(*ip) && !there.contains_key(ip);
        Ok(leases
            .held
            .iter()
            .flat_map(|held| held.lease.addresses())
            .filter(inside)
            .count() as u64)
    }

    pub(super) async fn publish(&mut self, cell: Cell) -> Result<(), Failure> {
        let Some(ground) = self.target()?.ground else {
            return Ok(());
        };
        self.publish_leases(&ground, &[cell.interval()].into_iter().collect())
            .await
    }
}

fn of_lease(lease: &Lease) -> (AskedBy, Option<Pod>) {
    let asked = AskedBy {
        owner: lease.owner.clone(),
        network: lease.network.clone(),
    };
    (asked, Pod::of(&lease.sandbox))
}

fn in_use(ip: IpAddr, address: &IpAddress) -> Error {
    let pod = address
        .spec
        .pod
        .as_ref()
        .map(|pod| format!("pod {}/{} on ", pod.namespace, pod.name))
        .unwrap_or_default();
    Error::new(
        Code::ADDRESS_IN_USE,
        format!(
            "{ip} is in use by {pod}node {} (IPAddress {})",
            address.spec.node.node,
            address.metadata.name.as_deref().unwrap_or_default()
        ),
    )
}

/// The member of `set` with this index.
fn nth(set: &IntervalSet, mut index: u128) -> Option<u128> {
    for interval in set.intervals() {
        if index < interval.count() {
            return Some(interval.first + index);
        }
        index -= interval.count();
    }
    None
}
