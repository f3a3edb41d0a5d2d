// SPDX-License-Identifier: Apache-2.0
//! The second source of evidence: what the API server has of a pod.

use crate::agent::Agent;
use api::deadline::Deadline;
use api::pods::{final_phase, uids};
use api::requests::ApiError;
use common::collector::PodId;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// Why no sandbox of `pod` can use an attachment whose namespace is gone; `None` if one may. `replaced`: a living
/// sandbox of the pod has the interface.
///
/// # Errors
/// [`ApiError`]: no answer, which proves nothing.
pub(super) async fn evidence(agent: &Agent, pod: &PodId, replaced: bool) -> Result<Option<String>, ApiError> {
    let there = agent
        .clients
        .requests(Deadline::background())
        .pod(&pod.namespace, &pod.name)
        .await?;
    Ok(conclude(there.as_ref(), pod, replaced))
}

/// As [`evidence`], from the answer of the API server.
fn conclude(there: Option<&Pod>, pod: &PodId, replaced: bool) -> Option<String> {
    let Some(there) = there else {
        return Some("its network namespace is gone, and the API server has no Pod of its name".to_owned());
    };
    let uid = there.uid()?;
    if !uids(there).any(|uid| uid == pod.uid) {
        return Some(format!(
            "its network namespace is gone, and the Pod of its name has the UID {uid} now"
        ));
    }
    if let Some(phase) = final_phase(there) {
        return Some(format!(
            "its network namespace is gone, and its pod has ended ({phase})"
        ));
    }
    replaced.then(|| "its network namespace is gone, and its pod has a newer sandbox".to_owned())
}

#[cfg(test)]
mod tests;
