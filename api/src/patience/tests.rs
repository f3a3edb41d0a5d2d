// SPDX-License-Identifier: Apache-2.0

use super::*;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};

const MOMENT: Duration = Duration::from_millis(20);

/// Far longer than any step takes on a busy machine, and far shorter than a request without a deadline ([`ALONE`]).
const LONG: Duration = Duration::from_secs(15);

async fn later() {
    sleep(MOMENT * 3).await;
}

#[tokio::test]
async fn a_response_just_before_the_deadline_still_counts() {
    let asked = until(Instant::now() + MOMENT, limited(async { 7 })).await;
    assert_eq!(asked, Ok(7));
}

#[tokio::test]
async fn an_api_request_for_a_plugin_times_out_at_the_deadline_of_the_plugin() {
    let begun = Instant::now();
    let asked = until(begun + GRACE, limited(pending::<()>())).await;
    assert!(matches!(asked, Err(Impatience::GivenUp(_))), "{asked:?}");
    assert!(begun.elapsed() >= GRACE && begun.elapsed() < LONG);
}

#[tokio::test]
async fn all_api_requests_for_one_plugin_request_share_one_deadline() {
    let asked = AtomicU32::new(0);
    let request = || {
        limited(async {
            asked.fetch_add(1, Ordering::Relaxed);
            pending::<()>().await;
        })
    };
    let second = until(Instant::now() + GRACE, async {
        let _ = request().await;
        request().await
    })
    .await;
    assert_eq!(second, Err(Impatience::Unasked));
    assert_eq!(
        asked.into_inner(),
        1,
        "a request without remaining time is not sent"
    );
}

#[tokio::test]
async fn background_work_does_not_time_out_early() {
    let asked = limited(async {
        later().await;
        7
    });
    assert_eq!(asked.await, Ok(7));
    let hurry = Hurry::default();
    assert_eq!(hurry.concerning(limited(later())).await, Ok(()));
    assert!(!hurry.is_told());
}

#[tokio::test]
async fn background_work_has_one_grace_period_once_a_plugin_waits() {
    let hurry = Hurry::default();
    let begun = Instant::now();
    let work = hurry.concerning(async { (limited(pending::<()>()).await, limited(later()).await) });
    let end = || *hurry.0.borrow();
    let signal = async {
        sleep(MOMENT).await;
        hurry.tell();
        let first = end();
        sleep(MOMENT).await;
        hurry.tell();
        assert_eq!(end(), first, "the second request does not extend it");
    };
    let ((first, second), ()) = tokio::join!(work, signal);
    assert!(matches!(first, Err(Impatience::GivenUp(_))), "{first:?}");
    assert_eq!(second, Err(Impatience::Unasked));
    assert!(hurry.is_told());
    let took = begun.elapsed();
    assert!(took >= GRACE && took < LONG, "{took:?}");
}

#[tokio::test]
async fn a_healthy_api_server_is_used_while_a_plugin_waits() {
    let hurry = Hurry::default();
    hurry.tell();
    assert_eq!(hurry.concerning(limited(later())).await, Ok(()));
}

#[tokio::test]
async fn a_stopping_agent_waits_a_moment_for_requests_in_flight() {
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(until_stopped(&stop, limited(later())).await, Ok(()));
    let begun = Instant::now();
    let given_up = until_stopped(&stop, limited(pending::<()>())).await;
    assert!(matches!(given_up, Err(Impatience::GivenUp(_))), "{given_up:?}");
    assert!(begun.elapsed() < LONG);
}
