// SPDX-License-Identifier: Apache-2.0
//! A stolen token changes objects of its own node only, with the exceptions of docs/install.md.

use apiserver::identity::NAMESPACE;
use apiserver::{Server, stolen};

#[tokio::test]
async fn the_token_of_one_node_cannot_change_objects_of_another() {
    let count = stolen::try_everything(Server::shared(), NAMESPACE).await;
    assert!(count > 500, "only {count} requests were tried");
}
