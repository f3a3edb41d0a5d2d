// SPDX-License-Identifier: Apache-2.0

use super::{resource, what};

#[test]
fn a_request_is_named_after_its_resource() {
    for (uri, is) in [
        ("/apis/rdmanet.io/v1alpha1/ipblocks?fieldSelector=x/y", "ipblocks"),
        ("/apis/rdmanet.io/v1alpha1/ipblocks/a/status", "ipblocks/status"),
        ("/api/v1/nodes/node-1", "nodes"),
        ("/api/v1/namespaces?labelSelector=a", "namespaces"),
        (
            "/apis/coordination.k8s.io/v1/namespaces/rdmanet-system/leases/rdmanet-controller",
            "leases",
        ),
        ("/healthz", "/healthz"),
    ] {
        assert_eq!(resource(uri), is);
    }
}

#[test]
fn a_full_list_is_counted_apart_from_a_filtered_list() {
    let blocks = "/apis/rdmanet.io/v1alpha1/ipblocks";
    for (query, is) in [
        ("resourceVersion=0", "list all ipblocks"),
        ("&fieldSelector=&limit=500", "list all ipblocks"),
        ("&fieldSelector=metadata.name%3Da", "list ipblocks"),
    ] {
        assert_eq!(what("list", &format!("{blocks}?{query}")), is);
    }
    assert_eq!(what("create", blocks), "create ipblocks");
}
