// SPDX-License-Identifier: Apache-2.0

use super::*;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::time::sleep;

const MOMENT: Duration = Duration::from_millis(20);

/// Far longer than any step takes here on a busy machine, and far shorter than [`BACKGROUND_LIMIT`].
const LONG: Duration = Duration::from_secs(15);

async fn later() {
    sleep(MOMENT * 3).await;
}

#[tokio::test]
async fn a_response_just_before_the_deadline_still_counts() {
    let at_the_deadline = async || {
        let end = Instant::now() + MOMENT;
        let response = async {
            sleep_until(end).await;
            7
        };
        Deadline::At(end).limit(response).await
    };
    let mut asked = at_the_deadline().await;
    // On a busy machine the deadline may pass before the request begins.
    while asked == Err(TimedOut::NotSent) {
        asked = at_the_deadline().await;
    }
    assert_eq!(asked, Ok(7));
}

#[tokio::test]
async fn an_api_request_for_a_plugin_times_out_at_the_deadline_of_the_plugin() {
    let begun = Instant::now();
    let asked = Deadline::At(begun + GRACE).limit(pending::<()>()).await;
    assert!(matches!(asked, Err(TimedOut::After(_))), "{asked:?}");
    assert!(begun.elapsed() >= GRACE && begun.elapsed() < LONG);
}

#[tokio::test]
async fn all_api_requests_for_one_plugin_request_share_one_deadline() {
    let asked = AtomicU32::new(0);
    let deadline = Deadline::At(Instant::now() + GRACE);
    let request = || {
        deadline.limit(async {
            asked.fetch_add(1, Ordering::Relaxed);
            pending::<()>().await;
        })
    };
    let _ = request().await;
    assert_eq!(request().await, Err(TimedOut::NotSent));
    let asked = asked.load(Ordering::Relaxed);
    assert_eq!(asked, 1, "a request without time left is not sent");
}

#[tokio::test]
async fn background_work_does_not_time_out_early() {
    let request = async {
        later().await;
        7
    };
    assert_eq!(Deadline::background().limit(request).await, Ok(7));
    let work = BackgroundWork::default();
    assert_eq!(work.deadline().limit(later()).await, Ok(()));
    assert!(!work.is_interrupted());
}

#[tokio::test]
async fn background_work_has_one_grace_period_once_a_plugin_waits() {
    let work = BackgroundWork::default();
    let deadline = work.deadline();
    let begun = Instant::now();
    let requests = async {
        let first = deadline.limit(pending::<()>()).await;
        (first, deadline.limit(later()).await)
    };
    let interrupt = async {
        sleep(MOMENT).await;
        work.interrupt();
        let first = deadline.end();
        sleep(MOMENT).await;
        work.interrupt();
        assert_eq!(
            deadline.end(),
            first,
            "the second plugin request does not extend it"
        );
    };
    let ((first, second), ()) = tokio::join!(requests, interrupt);
    assert!(matches!(first, Err(TimedOut::After(_))), "{first:?}");
    assert_eq!(second, Err(TimedOut::NotSent));
    assert!(work.is_interrupted());
    let took = begun.elapsed();
    assert!(took >= GRACE && took < LONG, "{took:?}");
}

#[tokio::test]
async fn a_healthy_api_server_is_used_while_a_plugin_waits() {
    let work = BackgroundWork::default();
    work.interrupt();
    assert_eq!(work.deadline().limit(later()).await, Ok(()));
}

#[tokio::test]
async fn a_stopping_controller_waits_a_moment_for_requests_in_flight() {
    let stop = CancellationToken::new();
    let deadline = Deadline::until_stopped(stop.clone());
    stop.cancel();
    assert_eq!(deadline.limit(later()).await, Ok(()));
    let begun = Instant::now();
    let timed_out = deadline.limit(pending::<()>()).await;
    assert!(matches!(timed_out, Err(TimedOut::After(_))), "{timed_out:?}");
    assert!(begun.elapsed() < LONG);
}
