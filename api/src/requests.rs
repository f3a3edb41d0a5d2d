// SPDX-License-Identifier: Apache-2.0
//! Requests to the API server. Each has a [`Deadline`] and the precondition that makes it safe if it takes effect late.

mod patch;
mod registration;

pub use registration::{NodeCondition, Registration, conditions, registration_state};

use crate::address::{AddressState, IpAddress};
use crate::block::IpBlock;
use crate::convert::LEASES;
use crate::deadline::{Deadline, TimedOut};
use crate::metrics::REQUESTS;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, VersionMatch};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt};
use patch::Part;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The field manager of writes to members of a status.
pub const MANAGER: &str = "rdmanet-agent";

/// Names on one page of a list.
const PAGE: u32 = 500;

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// There is no response. The request may have taken effect, or may do so later.
    #[error("the API server does not answer {what}: {why}")]
    NoResponse {
        /// The request.
        what: String,
        /// The cause: a timeout, an overloaded API server, or a connection error.
        why: String,
    },
    /// The request was not sent, because no time was left.
    #[error("no time was left to ask the API server: {what}")]
    NotSent {
        /// The request.
        what: String,
    },
    /// The API server refused the request.
    #[error("the API server refuses {what}: {why}")]
    Rejected {
        /// The request.
        what: String,
        /// The message of the API server.
        why: String,
    },
}

impl ApiError {
    /// Whether the API server has not returned a result: no response, or no time left to send the request.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::NoResponse { .. } | Self::NotSent { .. })
    }
}

/// Why the work for a pool or a node failed.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A request to the API server failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The pool is unusable, or the node's files cannot be read or written.
    #[error("{0}")]
    Local(#[from] common::cni::Error),
}

impl ReconcileError {
    /// Whether the API server has not returned a result.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_unanswered())
    }

    /// Whether the API server refused a request.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Api(ApiError::Rejected { .. }))
    }
}

/// The result of a write that depends on an earlier read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResult<T> {
    /// The write has taken effect.
    Applied(T),
    /// Another write came first: the name is taken, or the object has changed or is gone.
    Conflict,
}

/// Sends requests to the API server. All of them have the same deadline.
#[derive(Clone)]
pub struct Requests {
    client: Client,
    deadline: Deadline,
}

/// An object whose kind is known at compile time.
pub trait Object: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug {}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug> Object for K {}

/// An object that is in no namespace.
pub trait ClusterObject: Object + Resource<Scope = ClusterResourceScope> {}

impl<K: Object + Resource<Scope = ClusterResourceScope>> ClusterObject for K {}

/// Describes a request about one object in the style of kubectl, such as `GET ipblocks/default-4-0a000000-26`.
fn request<K: Object>(verb: &str, name: &str) -> String {
    format!("{verb} {}/{name}", K::plural(&()))
}

/// The same for an object that is written. Returns the description and the name of the object.
fn request_of<K: Object>(verb: &str, object: &K) -> (String, String) {
    let name = object.meta().name.clone().unwrap_or_default();
    (request::<K>(verb, &name), name)
}

fn refused(what: &str, status: &kube::core::Status) -> ApiError {
    ApiError::Rejected {
        what: what.to_owned(),
        why: format!("{} ({})", status.message, status.code),
    }
}

/// The result of a write with a precondition.
fn written<T>(what: &str, answer: Result<T, Box<kube::core::Status>>) -> Result<WriteResult<T>, ApiError> {
    match answer {
        Ok(object) => Ok(WriteResult::Applied(object)),
        Err(status) if matches!(status.code, 404 | 409) => Ok(WriteResult::Conflict),
        Err(status) => Err(refused(what, &status)),
    }
}

/// Delete parameters with the precondition that the object has not changed since it was read.
fn unchanged<K: Resource>(object: &K) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.meta().uid.clone(),
            resource_version: object.meta().resource_version.clone(),
        }),
        ..DeleteParams::default()
    }
}

impl Requests {
    /// Requests through `client` until `deadline`.
    pub fn new(client: Client, deadline: Deadline) -> Self {
        Self { client, deadline }
    }

    /// When the requests time out.
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    fn all<K: Object>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn namespaced<K: Object + Resource<Scope = NamespaceResourceScope>>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn send<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, Box<kube::core::Status>>, ApiError> {
        let unanswered = |why: String| ApiError::NoResponse {
            what: what.to_owned(),
            why,
        };
        // kube's client retries by itself on 429, 503 and 504. To the API server, such a request may arrive twice. The second
        // attempt then fails: the name is taken, or the version has changed. The result is `WriteResult::Conflict`, and the caller
        // reads the object again.
        let begun = std::time::Instant::now();
        let (result, error) = match self.deadline.limit(request).await {
            Err(TimedOut::NotSent) => {
                return Err(ApiError::NotSent {
                    what: what.to_owned(),
                });
            }
            Err(TimedOut::After(after)) => {
                let why = format!("nothing within {:.1} s", after.as_secs_f64());
                (Err(unanswered(why)), Some("timeout"))
            }
            Ok(Ok(value)) => (Ok(Ok(value)), None),
            // After 429 and 5xx, the request may have taken effect or not.
            Ok(Err(kube::Error::Api(status))) if status.code == 429 || status.code >= 500 => {
                let why = format!("{} ({})", status.message, status.code);
                (Err(unanswered(why)), Some("overload"))
            }
            // Expected: a name that is taken, an object that is gone, a version that is old.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => (Ok(Err(status)), None),
            Ok(Err(kube::Error::Api(status))) => (Ok(Err(status)), Some("refused")),
            Ok(Err(e)) => (
                Err(unanswered(common::cni::error::causes(&e))),
                Some("connection"),
            ),
        };
        REQUESTS.record(what, begun.elapsed(), error);
        result
    }

    /// Reads the object of this name from the API server, past every cache. Returns `None` if there is no such object.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn get<K: ClusterObject>(&self, name: &str) -> Result<Option<K>, ApiError> {
        self.get_with(&self.all(), name).await
    }

    async fn get_with<K: Object>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, ApiError> {
        let what = request::<K>("GET", name);
        match self.send(&what, api.get(name)).await? {
            Ok(object) => Ok(Some(object)),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(refused(&what, &status)),
        }
    }

    /// Creates an object. Returns [`WriteResult::Conflict`] if the name is taken.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create<K: ClusterObject + Serialize>(&self, object: &K) -> Result<WriteResult<K>, ApiError> {
        let ((what, _), api) = (request_of("CREATE", object), self.all());
        match self
            .send(&what, api.create(&PostParams::default(), object))
            .await?
        {
            Ok(object) => Ok(WriteResult::Applied(object)),
            Err(status) if status.code == 409 => Ok(WriteResult::Conflict),
            Err(status) => Err(refused(&what, &status)),
        }
    }

    /// Changes an object, if the API server still has the version that `object` was made from. Members that this program does
    /// not know stay.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn replace<K: ClusterObject + Serialize>(
        &self,
        object: &K,
    ) -> Result<WriteResult<K>, ApiError> {
        self.replace_part(object, object, Part::Main).await
    }

    /// The same for an `object` whose free maps, such as the labels of a selector, differ from those of the version `before` that
    /// it was made from.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn replace_spec<K: ClusterObject + Serialize>(
        &self,
        before: &K,
        object: &K,
    ) -> Result<WriteResult<K>, ApiError> {
        self.replace_part(before, object, Part::Main).await
    }

    /// Changes only the finalizers and annotations of an object, if the API server still has the version that `object` was
    /// made from.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn replace_metadata<K: ClusterObject + Serialize>(
        &self,
        object: &K,
    ) -> Result<WriteResult<K>, ApiError> {
        self.replace_part(object, object, Part::Metadata).await
    }

    async fn replace_part<K: ClusterObject + Serialize>(
        &self,
        before: &K,
        object: &K,
        part: Part,
    ) -> Result<WriteResult<K>, ApiError> {
        let verb = match part {
            Part::Status => "PATCH status of",
            Part::Main | Part::Metadata => "PATCH",
        };
        let (what, name) = request_of(verb, object);
        let unsent = |why| ApiError::Rejected {
            what: what.clone(),
            why,
        };
        let patch = Patch::Merge(patch::of(before, object, part).map_err(unsent)?);
        let (api, params) = (self.all::<K>(), PatchParams::default());
        let answer = match part {
            Part::Status => self.send(&what, api.patch_status(&name, &params, &patch)).await?,
            Part::Main | Part::Metadata => self.send(&what, api.patch(&name, &params, &patch)).await?,
        };
        written(&what, answer)
    }

    /// Deletes an object, if the API server still has the version that was read.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete<K: ClusterObject>(&self, object: &K) -> Result<WriteResult<()>, ApiError> {
        let (what, name) = request_of("DELETE", object);
        let api = self.all::<K>();
        let answer = self.send(&what, api.delete(&name, &unchanged(object))).await?;
        written(&what, answer.map(drop))
    }

    /// Deletes a block, if the API server still has the version that was read: first its finalizer, then the block itself. A
    /// process that dies between the two leaves a block without finalizer. Its owner deletes that block in a later round.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_block(&self, block: &IpBlock) -> Result<WriteResult<()>, ApiError> {
        if !block.finalizers().iter().any(|name| name == LEASES) {
            return self.delete(block).await;
        }
        let mut bare = block.clone();
        bare.finalizers_mut().retain(|name| name != LEASES);
        let WriteResult::Applied(bare) = self.replace(&bare).await? else {
            return Ok(WriteResult::Conflict);
        };
        if bare.metadata.deletion_timestamp.is_some() {
            // The API server deletes the block together with its last finalizer.
            return Ok(WriteResult::Applied(()));
        }
        self.delete(&bare).await
    }

    /// Releases an address, if the API server still has the version that was read. An address with a holder becomes `Kept`;
    /// any other object is deleted.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn release_address(&self, address: &IpAddress) -> Result<WriteResult<()>, ApiError> {
        if address.spec.holder.is_none() {
            return self.delete(address).await;
        }
        let mut kept = address.clone();
        kept.spec.state = AddressState::Kept;
        kept.spec.attachment = None;
        Ok(match self.replace(&kept).await? {
            WriteResult::Applied(_) => WriteResult::Applied(()),
            WriteResult::Conflict => WriteResult::Conflict,
        })
    }

    /// Patches the status of an object, whatever its version.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn patch_status<K: ClusterObject>(
        &self,
        name: &str,
        status: impl Serialize,
    ) -> Result<WriteResult<K>, ApiError> {
        self.merge_status(name, serde_json::json!({ "status": status }))
            .await
    }

    async fn merge_status<K: ClusterObject>(
        &self,
        name: &str,
        patch: serde_json::Value,
    ) -> Result<WriteResult<K>, ApiError> {
        let what = request::<K>("PATCH", &format!("{name}/status"));
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let (api, patch) = (self.all(), Patch::Merge(patch));
        let answer = self.send(&what, api.patch_status(name, &params, &patch)).await?;
        written(&what, answer)
    }

    /// Changes members of the status of an object, if the API server still has the version that was read. Without that
    /// precondition a late report could undo a newer one.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn update_status<K: ClusterObject>(
        &self,
        object: &K,
        status: impl Serialize,
    ) -> Result<WriteResult<K>, ApiError> {
        let name = object.meta().name.clone().unwrap_or_default();
        let version = object.meta().resource_version.clone();
        let patch = serde_json::json!({ "metadata": { "resourceVersion": version }, "status": status });
        self.merge_status(&name, patch).await
    }

    /// Changes the status of an object, if the API server still has the version `before` that `object` was made from. Members
    /// that this program does not know stay.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn replace_status<K: ClusterObject + Serialize>(
        &self,
        before: &K,
        object: &K,
    ) -> Result<WriteResult<K>, ApiError> {
        self.replace_part(before, object, Part::Status).await
    }

    /// Lists all objects that `fields` selects, page by page.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn list<K: Object>(&self, fields: &str) -> Result<Vec<K>, ApiError> {
        let what = match fields {
            "" => format!("LIST {}", K::plural(&())),
            fields => format!("LIST {} ({fields})", K::plural(&())),
        };
        let (api, mut all) = (self.all::<K>(), Vec::new());
        let mut params = ListParams::default().fields(fields).limit(PAGE);
        loop {
            let page = self.send(&what, api.list(&params)).await?;
            let page = page.map_err(|status| refused(&what, &status))?;
            all.extend(page.items);
            match page.metadata.continue_ {
                Some(next) if !next.is_empty() => params.continue_token = Some(next),
                _ => return Ok(all),
            }
        }
    }

    /// Lists all objects that `fields` selects from the API server's cache, at this `version` of the kind or newer. Version 0
    /// accepts any.
    ///
    /// If many objects are being written, the API server may serve a consistent list from etcd and decode every object of the
    /// kind. It never does so for this list.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn list_cached<K: Object>(&self, fields: &str, version: u64) -> Result<Vec<K>, ApiError> {
        let what = format!("LIST {} ({fields}), version {version} or later", K::plural(&()));
        let params = ListParams::default()
            .fields(fields)
            .matching(VersionMatch::NotOlderThan)
            .at(&version.to_string());
        let all = self.send(&what, self.all().list(&params)).await?;
        all.map_or_else(|status| Err(refused(&what, &status)), |all| Ok(all.items))
    }

    /// Lists the names of all objects of a kind, page by page, without their content.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn list_names<K: Object>(&self) -> Result<Vec<String>, ApiError> {
        let what = format!("LIST {}, names alone", K::plural(&()));
        let (api, mut all) = (self.all::<K>(), Vec::new());
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = self.send(&what, api.list_metadata(&params)).await?;
            let page = page.map_err(|status| refused(&what, &status))?;
            all.extend(page.items.into_iter().filter_map(|object| object.metadata.name));
            match page.metadata.continue_ {
                Some(next) if !next.is_empty() => params.continue_token = Some(next),
                _ => return Ok(all),
            }
        }
    }

    /// The current labels of the namespace `name`, or `None` if there is no such namespace.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn namespace_labels(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        let namespace: Option<Namespace> = self.get(name).await?;
        Ok(namespace.map(|namespace| namespace.metadata.labels.unwrap_or_default()))
    }

    /// Lists the address objects of the node called `node`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn addresses_of(&self, node: &str) -> Result<Vec<IpAddress>, ApiError> {
        self.list(&format!("spec.node.node={node}")).await
    }

    /// Lists the addresses, of all pools, whose holder is this pod or was an earlier pod of the same name.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn addresses_held_for(&self, namespace: &str, pod: &str) -> Result<Vec<IpAddress>, ApiError> {
        let fields = format!("spec.holder.namespace={namespace},spec.holder.pod={pod}");
        self.list(&fields).await
    }

    /// The `StatefulSet` of this name, or `None` if there is no such object.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn stateful_set(&self, namespace: &str, name: &str) -> Result<Option<StatefulSet>, ApiError> {
        self.get_with(&self.namespaced(namespace), name).await
    }

    /// The pod of this name, or `None` if there is no such pod.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ApiError> {
        self.get_with(&self.namespaced(namespace), name).await
    }
}
