// SPDX-License-Identifier: Apache-2.0
//! What a Pod object says about the sandbox of its pod.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// The annotation with the UID that a kubelet gives a static pod. The object has another UID (`ConfigHashAnnotationKey` in
/// `pkg/kubelet/types/pod_update.go` of Kubernetes).
const STATIC_UID: &str = "kubernetes.io/config.hash";

/// The UID of the object and, of a static pod, the one by which the runtime knows the pod.
pub fn uids(pod: &Pod) -> impl Iterator<Item = &str> {
    let own = pod.metadata.uid.as_deref();
    own.into_iter()
        .chain(pod.annotations().get(STATIC_UID).map(String::as_str))
}

/// The phase of `pod`, if no sandbox of it starts any more. The kubelet stops each pod with such a phase, whichever client wrote
/// the phase, and accepts no update of a pod that it has finished.
///
/// Source: `UpdatePod` in `pkg/kubelet/pod_workers.go` of Kubernetes.
pub fn final_phase(pod: &Pod) -> Option<&str> {
    let phase = pod.status.as_ref()?.phase.as_deref();
    phase.filter(|phase| matches!(*phase, "Succeeded" | "Failed"))
}
