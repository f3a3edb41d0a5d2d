// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::cell::Cell;

#[tokio::test]
async fn a_pool_exists_although_its_list_is_completed_while_it_is_looked_up() {
    let listed = Cell::new(false);
    // The first look finds nothing, and the list is completed right after it.
    let is_known = || listed.replace(true);
    let limit = Instant::now() + PLUGIN_LIMIT;
    assert_eq!(exists(is_known, || listed.get(), limit).await, Some(true));
}

#[tokio::test]
async fn a_pool_is_unknown_only_after_the_first_list() {
    let limit = Instant::now() + POLL * 2;
    assert_eq!(exists(|| false, || true, limit).await, Some(false));
    assert_eq!(exists(|| false, || false, limit).await, None);
    assert!(Instant::now() >= limit);
}

/// Without an answer, the plugin would report that the agent does not run.
#[tokio::test]
async fn a_plugin_whose_request_was_not_handled_in_time_gets_an_answer() {
    const {
        assert!(
            CONNECTION_LIMIT.as_millis() > LIMIT.as_millis(),
            "the answer can still be sent"
        );
    }
    let asked = Instant::now().checked_sub(LIMIT).unwrap();
    let error = in_time(asked, std::future::pending())
        .await
        .accepted()
        .unwrap_err();
    assert_eq!(error.code, Code::TRY_AGAIN);
    assert!(error.msg.contains("no answer within 5000 ms"), "{}", error.msg);
}
