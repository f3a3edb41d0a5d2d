// SPDX-License-Identifier: Apache-2.0
//! The networks of `conf/networks`, applied as an administrator applies them.

use apiserver::install;
use multus::Setup;
use multus::objects;

#[test]
fn the_api_server_accepts_every_network_of_conf() {
    Setup::run(|setup| {
        let namespace = setup.namespace.clone();
        let admin = setup.admin();
        let accepted = setup.wait(async move {
            let networks = objects::networks(&admin, &namespace);
            let files = install::manifests("networks");
            for file in &files {
                for object in install::documents(file) {
                    let name = object.metadata.name.clone().unwrap();
                    let strict = objects::strictly();
                    let patch = kube::api::Patch::Apply(&object);
                    let applied = networks.patch(&name, &strict, &patch).await;
                    applied.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                }
            }
            files.len()
        });
        assert!(accepted >= 12, "only {accepted}");
    });
}
