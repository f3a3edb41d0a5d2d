// SPDX-License-Identifier: Apache-2.0
//! What we hand out is accepted.

use cluster::{Server, install};
use kube::api::{Api, Patch, PatchParams};

#[tokio::test]
async fn every_example_pool_is_accepted() {
    let admin = Server::shared().admin().await;
    let api: Api<api::IpPool> = Api::all(admin);
    let files = install::manifests("pools");
    assert!(!files.is_empty());
    for file in files {
        for object in install::documents(&file) {
            let name = object.metadata.name.clone().unwrap();
            let parameters = PatchParams {
                dry_run: true,
                ..PatchParams::apply("tests").validation_strict()
            };
            api.patch(&name, &parameters, &Patch::Apply(&object))
                .await
                .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        }
    }
}

#[tokio::test]
async fn applying_everything_a_second_time_changes_nothing() {
    install::all(Server::shared()).await;
}
