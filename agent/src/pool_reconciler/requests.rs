// SPDX-License-Identifier: Apache-2.0
//! Answers plugins. Every error names the pool, its counters and the remedy.

use super::allocatable::free_local;
use super::allocate::Room;
use super::claim::Claimed;
use super::context::{PendingRequest, PoolContext, RequestScope, Target};
use super::{PluginRequest, PoolReconciler, Response, report_usage};
use crate::agent::event;
use api::accepted_pool::AcceptedPool;
use api::convert::cidr_of;
use api::deadline::{Deadline, PLUGIN_LIMIT};
use api::recorder::NewEvent;
use api::requests::{ReconcileError, Requests};
use block::owner::NodeIdentity;
use common::cni::{Code, Error};
use ipam::agent::{Reply, Request, Verb};
use ipam::pool::{PoolFile, PoolName};
use ipam::range::Family;
use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::BTreeSet;
use std::time::Duration;

/// The maximum of the random delay that spreads out the nodes.
const MAX_JITTER: Duration = Duration::from_millis(500);

/// The error for a pool that does not exist.
pub(crate) fn unknown_pool(pool: &PoolName) -> Error {
    Error::new(
        Code::POOL_UNKNOWN,
        format!(
            "there is no IPPool {pool} in this cluster; see `kubectl get ippools.rdmanet.io`, and ipam.pool in the network configuration"
        ),
    )
}

impl PoolReconciler {
    /// Answers a plugin, unless it has timed out.
    pub(super) async fn handle(&mut self, request: PluginRequest) {
        if self.has_timed_out(&request) {
            return;
        }
        let deadline = Deadline::At(request.asked + PLUGIN_LIMIT);
        let api = self.context.agent.clients.requests(deadline);
        let response = self.answer(&api, &request).await;
        self.send(request, response);
    }

    /// Rejects a plugin request, because the API server has not listed pools and blocks yet.
    pub(super) fn reject_unlisted(&self, request: PluginRequest) {
        if self.has_timed_out(&request) {
            return;
        }
        let why = format!(
            "pool {}: this node's agent has received no pools and blocks from the API server since it started; see its log, and whether the API server can be reached from this node",
            self.context.pool
        );
        let reply = Reply::refused(Error::new(Code::API_UNREACHABLE, why));
        self.send(request, Response::Reply(reply));
    }

    /// Sends a response. The plugin may have timed out meanwhile.
    fn send(&self, request: PluginRequest, response: Response) {
        let PoolContext { agent, pool } = &self.context;
        if let Response::Reply(reply) = &response {
            agent.metrics.answered(pool, request.request.verb, reply);
        }
        let _ = request.answer.send(response);
    }

    /// Whether the plugin timed out before its request was handled.
    fn has_timed_out(&self, request: &PluginRequest) -> bool {
        if !request.answer.is_closed() {
            return false;
        }
        let attachment = request.request.attachment.as_ref();
        tracing::warn!(
            pool = %self.context.pool, attachment = attachment.map(|asked| asked.owner.to_string()),
            seconds = request.asked.elapsed().as_secs_f64(), "plugin request timed out before it was handled"
        );
        self.context.agent.metrics.request_timed_out(&self.context.pool);
        true
    }

    /// Answers `request`. Returns [`Response::RetryAfter`] if other nodes were asked to share addresses and the plugin has time left.
    async fn answer(&mut self, api: &Requests, request: &PluginRequest) -> Response {
        let PluginRequest {
            request,
            asked,
            pool_version,
            waits,
            ..
        } = request;
        let pending = (request.verb != Verb::Status).then_some(PendingRequest {
            since: asked.into_std(),
            pool_version: *pool_version,
        });
        let error = match Box::pin(self.serve(api, request, pending)).await {
            Ok(reply) => return Response::Reply(reply),
            Err(error) => error,
        };
        let attachment = request.attachment.as_ref().map(|asked| asked.owner.to_string());
        let is_requested = |family: &Family| self.sharing.is_requested(*family);
        if *waits && error.code == Code::TRY_AGAIN && request.families.iter().any(is_requested) {
            tracing::debug!(pool = %self.context.pool, attachment, error = %error.msg, "waiting for a shared block");
            return Response::RetryAfter(self.apart());
        }
        tracing::warn!(pool = %self.context.pool, attachment, code = error.code.0, error = %error.msg, "rejected a plugin request");
        self.publish_pod_event(request, &error);
        let accepted = self.context.target(api).ok().and_then(|target| target.accepted);
        let fallback = accepted.as_ref().map_or(&[][..], AcceptedPool::fallback);
        Response::Reply(Reply::refused(error).with_fallback(fallback))
    }

    /// A random delay that spreads out the nodes of a large pool: all of them see at the same moment that a block is shared.
    fn apart(&self) -> Duration {
        let counters = self
            .context
            .pool_object()
            .and_then(|pool| pool.status.clone()?.counters);
        let blocks = counters.map_or(0, |counters| counters.blocks);
        report_usage::delay(blocks).min(MAX_JITTER)
    }

    async fn serve(
        &mut self,
        api: &Requests,
        request: &Request,
        pending: Option<PendingRequest>,
    ) -> Result<Reply, Error> {
        let age = self.context.agent.config.confirm_every();
        self.context.agent.refresh_node(api, age).await.map_err(|e| {
            self.context
                .unanswered("whether the cluster still has this node", &e)
        })?;
        let target = self.context.target(api).map_err(|e| self.context.failed(&e))?;
        let accepted = self.require_open(&target)?;
        self.require_namespace(&target, &accepted, request).await?;
        if matches!(request.verb, Verb::Claim | Verb::Allocate) {
            let written = self.write_missing_or_older_file(&target, &accepted).await;
            written.map_err(|e| self.context.failed(&e))?;
        }
        let scope = RequestScope {
            target: &target,
            accepted: &accepted,
            pending,
        };
        match request.verb {
            Verb::Claim => self.serve_claim(scope, &request.families).await,
            Verb::Allocate => self.serve_allocate(scope, request).await,
            Verb::Status if accepted.has_blocks() => self.require_room(scope).await,
            // A release needs no answer; a round handles it (`Mailbox`).
            Verb::Status | Verb::Release => Ok(Reply::Done),
        }
    }

    /// Returns the pool, if this node may have addresses of it.
    fn require_open(&self, target: &Target) -> Result<AcceptedPool, Error> {
        let pool = &self.context.pool;
        let Some(object) = self.context.pool_object() else {
            return Err(unknown_pool(pool));
        };
        let refused = |why: String| Err(Error::new(Code::POOL_NOT_HERE, why));
        let Some(accepted) = &target.accepted else {
            return Err(Error::new(
                Code::TRY_AGAIN,
                format!(
                    "pool {pool} has not been accepted; see its conditions: `kubectl describe ippools.rdmanet.io {pool}`"
                ),
            ));
        };
        if object.metadata.deletion_timestamp.is_some() {
            return refused(format!(
                "pool {pool} is being deleted and gives no addresses any more"
            ));
        }
        if matches!(self.context.agent.identity(), Some(NodeIdentity::Gone(_)) | None) {
            return refused(format!(
                "the cluster has no Node {}, so it gets no addresses",
                self.context.agent.config.node
            ));
        }
        if !self.context.selects_node(&object, accepted) {
            return refused(format!(
                "pool {pool} is not for node {}: spec.nodeSelector does not match the node's labels",
                self.context.agent.config.node
            ));
        }
        Ok(accepted.clone())
    }

    /// Rejects pods of namespaces that the pool does not select. If the pool selects the namespace and the file lacks it, brings
    /// the file up to date.
    async fn require_namespace(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        request: &Request,
    ) -> Result<(), Error> {
        let names = self.blocks.file_mut().namespaces(&target.api, accepted).await;
        let names = names.map_err(|e| self.context.unanswered("which namespaces the pool selects", &e))?;
        let (Some(names), Some(_)) = (names, &request.attachment) else {
            return Ok(());
        };
        let namespace = request.pod.as_ref().map(|pod| pod.namespace.as_str());
        if let Some(namespace) = namespace {
            let listed = names.iter().any(|name| name == namespace);
            let selected = listed || {
                let now = self
                    .blocks
                    .file_mut()
                    .selects_now(&target.api, accepted, namespace)
                    .await;
                now.map_err(|e| {
                    self.context
                        .unanswered("whether the pool selects the pod's namespace", &e)
                })?
            };
            if selected {
                return self
                    .admit(target, namespace)
                    .await
                    .map_err(|e| self.context.failed(&e));
            }
        }
        Err(Error::new(
            Code::POOL_NOT_FOR_NAMESPACE,
            format!(
                "pool {} is not for namespace {}: spec.namespaceSelector does not match its labels",
                self.context.pool,
                namespace.unwrap_or("(unknown)")
            ),
        ))
    }

    /// Writes the file if it is missing or of another spec: the plugin would find no pool, or no range of the address that the agent
    /// allocates.
    pub(super) async fn write_missing_or_older_file(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
    ) -> Result<(), ReconcileError> {
        let is_other = |file: PoolFile| file.generation != accepted.generation;
        self.write_file_if(target, |file| file.is_none_or(is_other)).await
    }

    /// Rewrites the file if it does not admit pods of `namespace`.
    async fn admit(&mut self, target: &Target, namespace: &str) -> Result<(), ReconcileError> {
        let refuses = |file: PoolFile| !file.admits(Some(namespace));
        self.write_file_if(target, |file| file.is_some_and(refuses)).await
    }

    /// Writes the file if the present one `is_outdated`.
    async fn write_file_if(
        &mut self,
        target: &Target,
        is_outdated: impl FnOnce(Option<PoolFile>) -> bool,
    ) -> Result<(), ReconcileError> {
        if is_outdated(self.context.file().await?) {
            self.blocks.write_file(target).await?;
        }
        Ok(())
    }

    async fn serve_claim(&mut self, scope: RequestScope<'_>, families: &[Family]) -> Result<Reply, Error> {
        if !scope.accepted.has_blocks() {
            return Ok(Reply::Allocate { families: Vec::new() });
        }
        let mut shared = Vec::new();
        for family in families {
            if self.make_room(scope, *family).await? == Room::Shared {
                shared.push(*family);
            }
        }
        if shared.is_empty() {
            return Ok(Reply::Local);
        }
        Ok(Reply::Allocate { families: shared })
    }

    async fn require_room(&self, scope: RequestScope<'_>) -> Result<Reply, Error> {
        let (holdings, usage) = self
            .context
            .holdings(&self.blocks.known().all())
            .await
            .map_err(|e| self.context.failed(&e))?;
        let is_short = |family: Family| {
            free_local(scope.accepted, family, holdings.file.as_ref(), &usage) == 0
                && self.claims.is_known_full(family)
        };
        let mut short = scope.accepted.ranges.families();
        short.retain(|family| is_short(*family));
        if !short.is_empty() {
            return Err(self.shortage(scope, &short, Claimed::Full).await);
        }
        Ok(Reply::Done)
    }

    /// The error that explains why there is no block of `families` for this node.
    pub(super) async fn shortage(
        &self,
        scope: RequestScope<'_>,
        families: &[Family],
        claimed: Claimed,
    ) -> Error {
        let pool = &self.context.pool;
        let blocks = self.blocks.known().all().len();
        let target = scope.target;
        let counters = &target.counters;
        let numbers = format!(
            "{} addresses, {} in use, {} blocks, {blocks} of them this node's",
            counters.size, counters.used, target.blocks
        );
        match claimed {
            Claimed::Limit => Error::new(
                Code::EXHAUSTED,
                format!(
                    "pool {pool}: this node has as many blocks of one family as spec.maxBlocksPerNode allows ({}), and no address is free in them; raise it or remove pods ({numbers})",
                    scope.accepted.spec.max_blocks_per_node
                ),
            ),
            Claimed::Unlisted | Claimed::Yes => Error::new(
                Code::TRY_AGAIN,
                format!(
                    "pool {pool} has just been changed and its blocks are not known to be free yet; try again"
                ),
            ),
            Claimed::Full => {
                let resting = self.resting(families).await;
                if resting > 0 {
                    return Error::new(
                        Code::RESTING,
                        format!(
                            "pool {pool}: every block has an owner, and here {resting} addresses rest after their release; try again in some seconds ({numbers})"
                        ),
                    );
                }
                if self.sharing.others_may_share(scope, blocks) {
                    return self.sharing.asked_to_share();
                }
                Error::new(
                    Code::EXHAUSTED,
                    format!(
                        "pool {pool} is exhausted: every block has an owner and no address is free in this node's; add a range, or a pool in spec.fallback, or remove pods ({numbers})"
                    ),
                )
            }
        }
    }

    /// The number of addresses of these families that rest in blocks of this node.
    async fn resting(&self, families: &[Family]) -> u64 {
        let mut known = self.blocks.known().all();
        let Ok((holdings, usage)) = self.context.holdings(&known).await else {
            return 0;
        };
        known.retain(|_, block| cidr_of(block).is_some_and(|cidr| families.contains(&cidr.family())));
        let in_file = holdings.file.iter().flat_map(|file| &file.blocks);
        let in_file = in_file.filter(|block| families.contains(&Family::of(block.cidr.ip())));
        let names: BTreeSet<&String> = known.keys().chain(in_file.map(|block| &block.name)).collect();
        names
            .into_iter()
            .filter_map(|name| usage.get(name))
            .map(|used| used.resting)
            .sum()
    }

    /// Publishes an Event on the pod, where users look first. It is published in the background.
    fn publish_pod_event(&self, request: &Request, error: &Error) {
        let Some(pod) = &request.pod else { return };
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: pod.uid.clone(),
            ..ObjectReference::default()
        };
        let event = NewEvent {
            is_warning: true,
            reason: event::NO_ADDRESS,
            note: error.msg.clone(),
        };
        self.context.agent.publish_event_later(about, event);
    }
}
