// SPDX-License-Identifier: Apache-2.0
//! Requests for addresses by name.

use super::super::testing::{
    address_object, answer_with_block, asked, file_of_earlier_boot, own_block, refusal, registered_node,
    replace_file, scope_of,
};
use super::*;
use ipam::agent::Verb;

/// The answer to a request for 10.1.0.5, which lies in this node's block and has an object of another pod. The file reserves
/// `reserved`, and the spec does not.
async fn answer_of_owner(reserved: &[&str]) -> Result<Reply, Error> {
    answer_beside(own_block(), reserved).await
}

/// As [`answer_of_owner`], with this object of the block.
async fn answer_beside(block: IpBlock, reserved: &[&str]) -> Result<Reply, Error> {
    answer_for(block, reserved, &[]).await
}

/// As [`answer_beside`], to a request that also asks for an address of each of `families`.
async fn answer_for(block: IpBlock, reserved: &[&str], families: &[Family]) -> Result<Reply, Error> {
    let object = address_object("10.1.0.5", "c9", "b");
    let (context, target, _dir) = registered_node(move |uri| {
        if uri.contains("/ipaddresses/") {
            (200, object.clone())
        } else if uri.contains("/ipaddresses") {
            refusal(409)
        } else {
            answer_with_block(&block, uri)
        }
    })
    .await;
    let accepted = target.accepted.as_ref().unwrap();
    let mut file = file_of_earlier_boot(&context, accepted);
    file.reserved = reserved.iter().map(|&ip| ip.to_owned()).collect();
    replace_file(&context, &file).await;
    let mut request = Request::new(Verb::Allocate, context.pool.clone());
    request.ips = vec!["10.1.0.5".parse().unwrap()];
    request.attachment = Some(asked("c1"));
    request.families = families.to_vec();
    let scope = scope_of(&target, accepted);
    let mut reconciler = PoolReconciler::new(context.agent.clone(), context.pool.clone());
    Box::pin(reconciler.serve_allocate(scope, &request)).await
}

/// The plugin allocates an address of the node's block itself, but not a withheld one: it would ask again until its limit.
#[tokio::test]
async fn a_requested_address_that_the_node_withholds_is_refused_if_a_pod_has_it() {
    assert_eq!(answer_of_owner(&[]).await.unwrap(), Reply::Local);
    let refused = answer_of_owner(&["10.1.0.5"]).await.unwrap_err();
    assert_eq!(refused.code, Code::ADDRESS_IN_USE, "{refused:?}");
}

/// The pod may keep its address of the other family, and the plugin does not know that address.
#[tokio::test]
async fn an_address_of_a_block_does_not_answer_for_the_other_family() {
    let reply = answer_for(own_block(), &[], &[Family::V6]).await.unwrap();
    let families = vec![Family::V6];
    assert_eq!(reply, Reply::Allocate { families });
}

/// The plugin does not allocate it: the file of a node with an empty disk lacks the block. It would ask again until its limit.
#[tokio::test]
async fn a_requested_address_in_a_block_of_an_earlier_registration_is_refused() {
    let mut block = own_block();
    block.spec.owner.node_uid = "earlier".to_owned();
    let refused = answer_beside(block, &[]).await.unwrap_err();
    assert_eq!(refused.code, Code::TRY_AGAIN, "{refused:?}");
    assert!(
        refused.msg.contains("earlier registration of this node"),
        "{}",
        refused.msg
    );
}

/// The plugin would use the next pool of its network, or find no range of the address.
#[tokio::test]
async fn a_request_brings_the_file_of_the_pool_up_to_date() {
    let none = serde_json::json!({ "kind": "List", "metadata": {}, "items": [] });
    let (context, target, _dir) = registered_node(move |_| (200, none.clone())).await;
    let accepted = target.accepted.clone().unwrap();
    let mut reconciler = PoolReconciler::new(context.agent.clone(), context.pool.clone());
    let mut older = file_of_earlier_boot(&context, &accepted);
    older.generation = accepted.generation - 1;
    for before in [None, Some(older)] {
        if let Some(file) = before {
            replace_file(&context, &file).await;
        }
        Box::pin(reconciler.write_missing_or_older_file(&target, &accepted))
            .await
            .unwrap();
        let file = context.file().await.unwrap().unwrap();
        assert_eq!(file.generation, accepted.generation);
    }
}
