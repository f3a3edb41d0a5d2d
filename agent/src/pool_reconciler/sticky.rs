// SPDX-License-Identifier: Apache-2.0
//! Addresses that the pod of a `StatefulSet` keeps by its name (`api::sticky`).
//!
//! Invariant: the object of such an address is changed only with the version that was read and judged as precondition. So if two
//! nodes request the address, one write fails.

use super::addresses::{Addresses, Claimant};
use super::context::{PoolContext, RequestScope};
use api::convert::node_ref;
use api::requests::{ReconcileError, Requests, WriteResult, registration_state};
use api::sticky::{AddressUse, Handover, NodeState, Wait, handover, stateful_set_of};
use api::{AddressState, Holder, IpAddress, IpPool, MAX_REQUESTED_ADDRESSES, NodeRef};
use block::owner::NodeIdentity;
use common::cni::{Code, Error};
use ipam::range::{Family, bits};
use kube::ResourceExt;
use std::net::IpAddr;

/// How often an object is read again after another process has changed it.
const TRIES: usize = 4;

/// Allocates the addresses that pods keep, for one plugin request.
pub(super) struct StickyAddresses<'a> {
    context: &'a PoolContext,
    scope: RequestScope<'a>,
}

impl<'a> StickyAddresses<'a> {
    pub(super) fn new(context: &'a PoolContext, scope: RequestScope<'a>) -> Self {
        Self { context, scope }
    }

    fn api(&self) -> &'a Requests {
        &self.scope.target.api
    }

    /// Finds out whether the claimant's pod keeps its address, and under which holder.
    pub(super) async fn identify(&self, claimant: &mut Claimant<'_>) -> Result<(), Error> {
        let accepted = self.scope.accepted;
        let name = claimant
            .pod
            .as_ref()
            .map(|pod| format!("{}/{}", pod.namespace, pod.name));
        if !accepted.is_sticky() || !accepted.asks_agent(name.as_deref()) {
            return Ok(());
        }
        let Some(pod) = &mut claimant.pod else {
            return Ok(());
        };
        let there = self.api().pod(&pod.namespace, &pod.name).await;
        let name = format!("{}/{}", pod.namespace, pod.name);
        let there = there.map_err(|error| {
            let why = "may be of a StatefulSet, and only the API server knows which pod keeps which address";
            Error::new(Code::API_UNREACHABLE, format!("pod {name} {why}: {error}"))
        })?;
        let again = |why: String| Err(Error::new(Code::TRY_AGAIN, why));
        let Some(there) = there else {
            return again(format!(
                "pod {name} may be of a StatefulSet, and the cluster has no such pod (any more)"
            ));
        };
        let Some(set) = stateful_set_of(&there) else {
            return Ok(());
        };
        let uid = there.uid().unwrap_or_default();
        if let Some(ours) = pod.uid.as_ref().filter(|ours| **ours != uid) {
            return again(format!(
                "pod {name} with UID {ours} is gone from the cluster, and its address belongs to the pod that has its name now (UID {uid})"
            ));
        }
        let node = there.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if node.is_some_and(|node| node != self.context.agent.config.node) {
            return again(format!(
                "pod {name} is bound to node {}, and its address cannot live on two nodes",
                node.unwrap_or_default()
            ));
        }
        pod.uid = Some(uid);
        claimant.holder = Some(Holder {
            namespace: pod.namespace.clone(),
            stateful_set: set.to_owned(),
            pod: pod.name.clone(),
            network: claimant.asked.network.clone(),
            ifname: claimant.asked.owner.ifname.to_string(),
        });
        Ok(())
    }

    /// Binds the address that the claimant keeps, or a new one that it keeps from now on.
    pub(super) async fn bind_reserved(
        &self,
        addresses: &mut Addresses,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<IpAddress, Error> {
        for _ in 0..TRIES {
            let Some(address) = self.reserved_for(family, claimant).await?.into_iter().next() else {
                return self.reserve_address(addresses, family, claimant).await;
            };
            let Ok(ip) = address.spec.address.parse::<IpAddr>() else {
                break;
            };
            if address.spec.state == AddressState::Kept
                && !self.scope.accepted.reservable(family).contains(bits(ip))
            {
                // The pool no longer contains the address and no pod uses it: frees it and takes another one.
                self.free_reserved(&address, claimant)
                    .await
                    .map_err(|e| self.context.address_unknown(ip, &e))?;
                continue;
            }
            if let Some(address) = self.hand_over(&address, ip, claimant).await? {
                return addresses.use_if_noted(self.scope, ip, address).await;
            }
        }
        let holder = claimant.holder.as_ref().map(|holder| holder.pod.as_str());
        let why = format!(
            "the address of pod {} changes hands; try again",
            holder.unwrap_or_default()
        );
        Err(Error::new(Code::TRY_AGAIN, why))
    }

    /// The kept addresses of the claimant in this pool, the oldest first.
    async fn reserved_for(&self, family: Family, claimant: &Claimant<'_>) -> Result<Vec<IpAddress>, Error> {
        let Some(holder) = &claimant.holder else {
            return Ok(Vec::new());
        };
        let there = self
            .api()
            .addresses_held_for(&holder.namespace, &holder.pod)
            .await
            .map_err(|e| {
                let whose = format_args!("which address pod {}/{} keeps", holder.namespace, holder.pod);
                self.context.unanswered(whose, &e.into())
            })?;
        let same = |address: &IpAddress| {
            address.spec.pool == self.context.pool.as_str()
                && address
                    .spec
                    .holder
                    .as_ref()
                    .is_some_and(|there| there.network == holder.network && there.ifname == holder.ifname)
                && address
                    .spec
                    .address
                    .parse()
                    .is_ok_and(|ip| Family::of(ip) == family)
        };
        let mut kept: Vec<IpAddress> = there.into_iter().filter(same).collect();
        kept.sort_by_key(|address| (address.creation_timestamp(), address.name_any()));
        Ok(kept)
    }

    /// Binds a first address to keep. The node lists again afterwards: another node may have done the same for an earlier pod of
    /// this name.
    async fn reserve_address(
        &self,
        addresses: &mut Addresses,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<IpAddress, Error> {
        let all = self.scope.accepted.reservable(family);
        let Some(address) = addresses.bind_any(self.scope, family, &all, claimant).await? else {
            return Err(Error::new(
                Code::EXHAUSTED,
                format!(
                    "pool {}: each of the {} addresses that pods of StatefulSets may keep is taken; add some to spec.reserved, or remove StatefulSets",
                    self.context.pool,
                    all.count()
                ),
            ));
        };
        let alone = self
            .reserved_for(family, claimant)
            .await
            .map(|all| all.len() == 1);
        if matches!(alone, Ok(true)) {
            return Ok(address);
        }
        let _ = self.api().delete(&address).await;
        alone.and_then(|_| {
            let why = "another node has given this pod's name an address at the same time; try again";
            Err(Error::new(Code::TRY_AGAIN, why))
        })
    }

    /// Passes the address to the claimant, if no other pod has it any more. None if another process has changed the object.
    async fn hand_over(
        &self,
        address: &IpAddress,
        ip: IpAddr,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let Some(NodeIdentity::Registered(me)) = self.context.agent.identity() else {
            return Ok(None);
        };
        let me = node_ref(&me);
        let spec = &address.spec;
        if spec.state == AddressState::Bound
            && spec.node == me
            && spec.attachment == Some(claimant.attachment())
        {
            // Our own object: the response was lost. The swap makes a new version, so that a release in flight misses its
            // precondition.
            let done = self.swap_to(address, &me, claimant).await;
            return done.map_err(|e| self.context.address_unknown(ip, &e));
        }
        let before = self
            .before(address, ip, &me, claimant)
            .await
            .map_err(|e| self.context.address_unknown(ip, &e))?;
        match handover(
            before,
            self.context.agent.config.daemon.observation_interval,
            self.context.agent.config.daemon.quarantines.unused,
        ) {
            Handover::Pass => {}
            // Only the controller may release an address of another node.
            Handover::Watch => {
                self.request_release(address)
                    .await
                    .map_err(|e| self.context.address_unknown(ip, &e))?;
                let is_gone = matches!(
                    before,
                    AddressUse::Remote {
                        node: NodeState::Gone,
                        ..
                    }
                );
                let wait = if is_gone {
                    Wait::Quarantine
                } else {
                    Wait::Observation
                };
                return Err(self.waits(address, wait));
            }
            Handover::Wait(wait) => return Err(self.waits(address, wait)),
        }
        let done = self.swap_to(address, &me, claimant).await;
        if let Ok(Some(_)) = done {
            tracing::info!(
                pool = %self.context.pool, %ip, attachment = %claimant.asked.owner, from = spec.node.node,
                pod = spec.holder.as_ref().map(|holder| holder.pod.as_str()), ?before,
                "bound the reserved address of a pod"
            );
        }
        done.map_err(|e| self.context.address_unknown(ip, &e))
    }

    async fn swap_to(
        &self,
        address: &IpAddress,
        me: &NodeRef,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, ReconcileError> {
        let mut address = address.clone();
        // The address belongs to an earlier registration of this node.
        if address.spec.node != *me && address.spec.state == AddressState::Bound {
            address.spec.state = AddressState::Orphaned;
            match self.api().replace(&address).await? {
                WriteResult::Applied(orphaned) => address = orphaned,
                WriteResult::Conflict => return Ok(None),
            }
        }
        address.spec.state = AddressState::Bound;
        address.spec.node = me.clone();
        claimant.take(&mut address.spec);
        Ok(match self.api().replace(&address).await? {
            WriteResult::Applied(address) => Some(address),
            WriteResult::Conflict => None,
        })
    }

    /// The state of the pod that has the address.
    async fn before(
        &self,
        address: &IpAddress,
        ip: IpAddr,
        me: &NodeRef,
        claimant: &Claimant<'_>,
    ) -> Result<AddressUse, ReconcileError> {
        let spec = &address.spec;
        if spec.state == AddressState::Kept {
            return Ok(AddressUse::Unused);
        }
        let ours = claimant.pod.as_ref().and_then(|pod| pod.uid.as_ref());
        let theirs = spec.pod.as_ref().and_then(|pod| pod.uid.as_ref());
        let same_pod = ours == theirs;
        // A pod is bound to its node by name. So a pod of this node's earlier registration is on this node now.
        if spec.node == *me || (spec.node.node == me.node && same_pod) {
            let is_unleased = self.context.end_pending(ip, spec.attachment.clone()).await?;
            return Ok(AddressUse::Local { leased: !is_unleased });
        }
        let node = self.api().registration(&spec.node.node).await?;
        Ok(AddressUse::Remote {
            same_pod,
            node: registration_state(node.as_ref(), &spec.node),
            unchanged: None,
        })
    }

    /// Asks the controller to release an address that an earlier pod has on a node that is not reachable.
    async fn request_release(&self, address: &IpAddress) -> Result<(), ReconcileError> {
        let (name, node) = (address.name_any(), self.context.agent.config.node.as_str());
        // A list, because the watch may not have reported this node's last request yet, and this write replaces it.
        let selected = format!("metadata.name={}", self.context.pool);
        let pools: Vec<IpPool> = self.api().list(&selected).await?;
        let status = pools.into_iter().next().and_then(|pool| pool.status);
        let before = status.and_then(|mut status| status.requests.remove(node)?);
        let mut addresses = before.unwrap_or_default().addresses;
        // If the list is full, a later ADD requests the address.
        if !addresses.contains(&name) && addresses.len() < MAX_REQUESTED_ADDRESSES {
            addresses.push(name);
            let request = serde_json::json!({ "addresses": addresses });
            self.context.request(self.api(), request).await?;
        }
        Ok(())
    }

    /// Frees a kept address that the pool no longer contains. It first becomes this node's, since an agent deletes only objects
    /// of its own node.
    async fn free_reserved(
        &self,
        address: &IpAddress,
        claimant: &Claimant<'_>,
    ) -> Result<(), ReconcileError> {
        let Some(NodeIdentity::Registered(me)) = self.context.agent.identity() else {
            return Ok(());
        };
        if let Some(ours) = self.swap_to(address, &node_ref(&me), claimant).await? {
            self.api().delete(&ours).await?;
        }
        Ok(())
    }

    fn waits(&self, address: &IpAddress, wait: Wait) -> Error {
        let spec = &address.spec;
        let uid = spec.pod.as_ref().and_then(|pod| pod.uid.as_deref());
        let pod = spec
            .holder
            .as_ref()
            .map(|holder| format!("{}/{}", holder.namespace, holder.pod));
        let earlier = format!(
            "pool {}: {} belongs to pod {}, whose earlier incarnation (UID {}) still has it on node {}",
            self.context.pool,
            spec.address,
            pod.unwrap_or_default(),
            uid.unwrap_or("unknown"),
            spec.node.node
        );
        let quarantines = &self.context.agent.config.daemon.quarantines;
        let why = match wait {
            Wait::Sandbox => "in a sandbox that has had no DEL yet; try again".to_owned(),
            Wait::SamePod => "and the pod with this UID requests it on this node too, so one object is out of date; find the node on which the pod runs, and try again".to_owned(),
            Wait::Agent => {
                "and that node's agent has not reported the release; try again; if the error repeats, check that agent"
                    .to_owned()
            }
            Wait::Quarantine => format!(
                "whose Node object is gone and whose machine may still run; if that does not change for {} s, the address passes to the new pod; try again then",
                quarantines.of(spec.quarantine_seconds).unused.as_secs()
            ),
            Wait::Observation => format!(
                "which does not respond; if that does not change for {} s, the address passes to the new pod; try again then",
                self.context.agent.config.daemon.observation_interval.as_secs()
            ),
        };
        Error::new(Code::TRY_AGAIN, format!("{earlier}, {why}"))
    }
}
