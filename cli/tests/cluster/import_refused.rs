// SPDX-License-Identifier: Apache-2.0
//! The API server refuses a step of an import, and the other pools are imported all the same.

use crate::import::{import, network, site};
use agents::Site;
use api::IpPool;
use apiserver::install::until;
use apiserver::objects;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

/// Makes the API server refuse every pool `name`, as a policy of the cluster may. Returns when the refusal is in force.
async fn refuse_pool(site: &Site, name: &str) {
    let policy = json!({
        "metadata": { "name": "foreign" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["rdmanet.io"], "apiVersions": ["*"], "resources": ["ippools"], "operations": ["CREATE"],
            }] },
            "validations": [{ "expression": format!("object.metadata.name != '{name}'"), "message": "not this one" }],
        },
    });
    let binding = json!({
        "metadata": { "name": "foreign" }, "spec": { "policyName": "foreign", "validationActions": ["Deny"] },
    });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(site.admin.clone());
    objects::create(&policies, policy).await;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(site.admin.clone());
    objects::create(&bindings, binding).await;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let spec = json!({ "ranges": [{ "subnet": "10.9.0.0/24" }] });
    let pool = IpPool::new(name, serde_json::from_value(spec).unwrap());
    until("the API server refuses the pool", async || {
        site.pools().create(&dry, &pool).await.is_err()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_the_api_server_refuses_ends_no_other_import() {
    let site = site().await;
    let file = site.server.kubeconfig();
    let ranges = [("a", "10.5.1.0/24"), ("b", "10.5.2.0/24"), ("c", "10.5.3.0/24")];
    for (name, range) in ranges {
        network(&site, name, &json!({ "type": "whereabouts", "range": range })).await;
    }
    refuse_pool(&site, "b").await;
    let run = import(&file, &["whereabouts"]);
    assert_eq!(run.status, 1, "{run:?}");
    let json = run.json();
    let done = json["pools"].as_array().unwrap().iter();
    let done: Vec<&str> = done.map(|pool| pool["pool"].as_str().unwrap()).collect();
    assert_eq!(done, ["a", "c"]);
    let refused = json["refused"].to_string();
    assert!(
        refused.contains("pool b is not imported") && refused.contains("not this one"),
        "{refused}"
    );
    for (name, is_there) in [("a", true), ("b", false), ("c", true)] {
        assert_eq!(site.pools().get(name).await.is_ok(), is_there, "{name}");
    }
}
