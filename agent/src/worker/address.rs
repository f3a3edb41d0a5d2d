// SPDX-License-Identifier: Apache-2.0
//! Addresses that are objects of their own: one CREATE each, whose name decides.
//!
//! Holds always: such an address lies in no node's active block, or the node has noted, before the address was given, that
//! it is not to give it itself (`observedGeneration`).

use super::claim::{Claimed, Wanted};
use super::{Target, Worker};
use crate::agent::Failure;
use crate::api::{AddressState, Attachment, BlockState, Holder, IpAddress, IpAddressSpec, IpBlock, PodRef};
use crate::block::claim::{Order, seed};
use crate::block::owner::Me;
use crate::cluster::{Written, create, get, let_go, list};
use crate::grid::{Cell, address_name};
use crate::ground::Ground;
use crate::object::{now, reference};
use common::cni::{Code, Error};
use ipam::agent::{AskedBy, Pod, Reply, Request};
use ipam::interval::{Interval, IntervalSet};
use ipam::range::{Family, bits};
use kube::ResourceExt;
use std::net::IpAddr;

/// Addresses that are tried one by one before all are listed.
const TRIES: u128 = 16;

/// Who an address is for.
pub(super) struct Claimant<'a> {
    /// The attachment.
    pub(super) asked: &'a AskedBy,
    /// Its pod, if it is known.
    pub(super) pod: Option<Pod>,
    /// Whose the address stays, if it stays with somebody.
    pub(super) holder: Option<Holder>,
}

impl Claimant<'_> {
    /// The attachment as objects have it.
    pub(super) fn attachment(&self) -> Attachment {
        Attachment {
            container_id: self.asked.owner.container_id.to_string(),
            ifname: self.asked.owner.ifname.to_string(),
            network: self.asked.network.clone(),
        }
    }

    /// The pod as objects have it.
    pub(super) fn pod_ref(&self) -> Option<PodRef> {
        self.pod.as_ref().map(|pod| PodRef {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        })
    }
}

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
                let _ = let_go(&self.agent.cluster.addresses, address).await;
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
        let mut claimant = Claimant {
            asked,
            pod: request.pod.clone(),
            holder: None,
        };
        for ip in &request.ips {
            if let Some(reply) = self.by_block(target, ground, *ip).await? {
                return Ok(reply);
            }
            given.push(self.bind(ground, *ip, &claimant).await?);
        }
        if !request.families.is_empty() {
            self.identify(ground, &mut claimant).await?;
        }
        for family in &request.families {
            if claimant.holder.is_some() {
                given.push(self.bind_kept(ground, *family, &claimant).await?);
            } else if ground.has_blocks() {
                return Ok(Reply::Local);
            } else {
                let all = ground.ranges.usable(*family);
                let address = self.bind_any(ground, *family, &all, &claimant).await?;
                given.push(address.ok_or_else(|| self.exhausted(&all))?);
            }
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

    /// Any address of `all` that nobody has; none if all are taken. Looks first where the seed of the claimant says.
    pub(super) async fn bind_any(
        &mut self,
        ground: &Ground,
        family: Family,
        all: &IntervalSet,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let order = Order::new(all.count(), self.seed_of(claimant));
        let first = (0..TRIES.min(all.count())).filter_map(|position| nth(all, order.at(position)?));
        for number in first.collect::<Vec<_>>() {
            match self.bind(ground, family.address(number), claimant).await {
                Err(e) if e.code == Code::ADDRESS_IN_USE => {}
                done => return done.map(Some),
            }
        }
        // Those of other pools too, which may have the same addresses.
        let taken: Vec<IpAddress> = list(&self.agent.cluster.addresses, "")
            .await
            .map_err(|e| self.failed(&e.into()))?;
        let prefix = format!("{}-", ground.spec.address_space);
        let taken: IntervalSet = taken
            .iter()
            .filter(|address| address.name_any().starts_with(&prefix))
            .filter_map(|address| address.spec.address.parse().ok())
            .filter(|ip| Family::of(*ip) == family)
            .map(|ip| Interval {
                first: bits(ip),
                last: bits(ip),
            })
            .collect();
        let free = all.minus(&taken);
        for index in 0..TRIES.min(free.count()) {
            let Some(ip) = nth(&free, index).map(|number| family.address(number)) else {
                break;
            };
            match self.bind(ground, ip, claimant).await {
                Err(e) if e.code == Code::ADDRESS_IN_USE => {}
                done => return done.map(Some),
            }
        }
        Ok(None)
    }

    /// Another one for each attempt, except for whoever keeps an address: it asks for the same one wherever it is.
    fn seed_of(&mut self, claimant: &Claimant<'_>) -> u64 {
        if let Some(holder) = &claimant.holder {
            let name = format!(
                "{}/{}/{}/{}",
                holder.namespace, holder.pod, holder.network, holder.ifname
            );
            return seed(&name, self.pool.as_str(), 0);
        }
        self.attempts += 1;
        let container = claimant.asked.owner.container_id.as_str();
        seed(container, self.pool.as_str(), self.attempts)
    }

    fn exhausted(&self, all: &IntervalSet) -> Error {
        Error::new(
            Code::EXHAUSTED,
            format!(
                "pool {} is exhausted: all of its {} addresses are taken; add a range or remove pods",
                self.pool,
                all.count()
            ),
        )
    }

    /// Makes `ip` the attachment's.
    async fn bind(
        &mut self,
        ground: &Ground,
        ip: IpAddr,
        claimant: &Claimant<'_>,
    ) -> Result<IpAddress, Error> {
        let wanted = self.object(ground, ip, claimant)?;
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
        self.given_if_noted(ground, ip, address).await
    }

    /// `address`, which has just become the attachment's, if the node that has its block knows that it is not its to give.
    pub(super) async fn given_if_noted(
        &self,
        ground: &Ground,
        ip: IpAddr,
        address: IpAddress,
    ) -> Result<IpAddress, Error> {
        let refusal = match self.noted(ground, ip).await {
            Ok(None) => return Ok(address),
            Ok(Some(why)) => Error::new(Code::TRY_AGAIN, why),
            Err(e) => self.failed(&e),
        };
        let _ = let_go(&self.agent.cluster.addresses, &address).await;
        Err(refusal)
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

    /// The object that says that `ip` is the claimant's.
    pub(super) fn object(
        &self,
        ground: &Ground,
        ip: IpAddr,
        claimant: &Claimant<'_>,
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
            attachment: Some(claimant.attachment()),
            pod: claimant.pod_ref(),
            holder: claimant.holder.clone(),
            since: Some(now()),
        };
        Ok(IpAddress::new(
            &address_name(&ground.spec.address_space, ip),
            spec,
        ))
    }
}

fn in_use(ip: IpAddr, address: &IpAddress) -> Error {
    let name = address.metadata.name.as_deref().unwrap_or_default();
    if let (AddressState::Kept, Some(holder)) = (address.spec.state, &address.spec.holder) {
        return Error::new(
            Code::ADDRESS_IN_USE,
            format!(
                "{ip} is kept for pod {}/{} of StatefulSet {} (IPAddress {name})",
                holder.namespace, holder.pod, holder.stateful_set
            ),
        );
    }
    let pod = address
        .spec
        .pod
        .as_ref()
        .map(|pod| format!("pod {}/{} on ", pod.namespace, pod.name))
        .unwrap_or_default();
    Error::new(
        Code::ADDRESS_IN_USE,
        format!(
            "{ip} is in use by {pod}node {} (IPAddress {name})",
            address.spec.node.node
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
