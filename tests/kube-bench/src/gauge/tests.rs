// SPDX-License-Identifier: Apache-2.0

use super::resource;

#[test]
fn a_request_is_known_by_its_resource() {
    for (uri, is) in [
        ("/apis/rdmanet.io/v1alpha1/ipblocks?fieldSelector=x/y", "ipblocks"),
        ("/apis/rdmanet.io/v1alpha1/ipblocks/a/status", "ipblocks/status"),
        ("/api/v1/nodes/node-1", "nodes"),
        ("/api/v1/namespaces?labelSelector=a", "namespaces"),
        (
            "/apis/coordination.k8s.io/v1/namespaces/rdmanet-system/leases/rdmanet-keeper",
            "leases",
        ),
        ("/healthz", "/healthz"),
    ] {
        assert_eq!(resource(uri), is);
    }
}
