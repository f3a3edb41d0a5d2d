// SPDX-License-Identifier: Apache-2.0
//! The API server accepts the examples and manifests of this repository.

use apiserver::{Server, install};
use kube::api::{Api, Patch, PatchParams};
use std::collections::BTreeMap;

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

/// The version of each object in the manifests that an administrator applies: its generation, or its
/// resource version if its kind has no generation.
async fn versions(admin: &kube::Client) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for directory in install::DIRECTORIES {
        for object in install::manifests(directory)
            .iter()
            .flat_map(|file| install::documents(file))
        {
            let name = object.metadata.name.clone().unwrap();
            let stored = install::api_of(admin, &object)
                .await
                .get(&name)
                .await
                .unwrap()
                .metadata;
            let version = stored.generation.map(|generation| generation.to_string());
            let key = format!("{} {name}", object.types.unwrap().kind);
            versions.insert(key, version.or(stored.resource_version).unwrap());
        }
    }
    versions
}

#[tokio::test]
async fn applying_all_manifests_a_second_time_changes_nothing() {
    let server = Server::shared();
    let admin = server.admin().await;
    let before = versions(&admin).await;
    install::all(server).await;
    assert_eq!(versions(&admin).await, before);
}
