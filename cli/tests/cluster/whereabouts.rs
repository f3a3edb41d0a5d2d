// SPDX-License-Identifier: Apache-2.0
//! Runs the real whereabouts, from tests/go, as a runtime calls it on a node. Its pools are in the API server.

use agents::Site;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use std::path::PathBuf;
use tests::{Answer, Call, programs};

/// The pools of whereabouts, which are in its own namespace.
pub(crate) fn pools(site: &Site) -> Api<DynamicObject> {
    api(site, "IPPool", "ippools")
}

/// The reservations of whereabouts, which prevent two of its ranges from allocating one address.
pub(crate) fn reservations(site: &Site) -> Api<DynamicObject> {
    api(
        site,
        "OverlappingRangeIPReservation",
        "overlappingrangeipreservations",
    )
}

fn api(site: &Site, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("whereabouts.cni.cncf.io", "v1alpha1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(site.admin.clone(), "kube-system", &resource)
}

/// Calls the plugin for `net1` of pod `default/POD`. The sandbox is named after the pod.
pub(crate) fn call(site: &Site, verb: &str, ipam: &Value, pod: &str) -> Answer {
    let mut ipam = ipam.clone();
    ipam["configuration_path"] = json!(settings(site));
    let conf = json!({ "cniVersion": "1.0.0", "name": "rail0", "type": "macvlan", "ipam": ipam });
    Call::new(&programs::whereabouts())
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", format!("c-{pod}"))
        .env("CNI_IFNAME", "net1")
        // As in the agents' tests, the namespace of the test serves as sandbox.
        .env("CNI_NETNS", "/proc/self/ns/net")
        .env("CNI_NETNS_OVERRIDE", "1")
        .env("CNI_PATH", "/opt/cni/bin")
        .env(
            "CNI_ARGS",
            format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}"),
        )
        .stdin(conf.to_string())
        .run()
}

/// Runs ADD and returns its one address.
pub(crate) fn add(site: &Site, ipam: &Value, pod: &str) -> String {
    call(site, "ADD", ipam, pod).addresses().remove(0)
}

/// The allocations in a range of whereabouts: for each pod the number of its address in the range.
pub(crate) async fn allocations(site: &Site, pool: &str) -> Vec<(String, String)> {
    let pool = pools(site).get(pool).await.unwrap();
    let all = pool.data["spec"]["allocations"].as_object().cloned();
    let pods = all.unwrap_or_default().into_iter();
    pods.map(|(offset, one)| (one["podref"].as_str().unwrap().to_owned(), offset))
        .collect()
}

/// The settings file that an installation of whereabouts leaves on a node.
pub(crate) fn settings(site: &Site) -> PathBuf {
    let path = site.server.dir().join("whereabouts.conf");
    let settings =
        json!({ "datastore": "kubernetes", "kubernetes": { "kubeconfig": site.server.kubeconfig() } });
    std::fs::write(&path, settings.to_string()).unwrap();
    path
}
