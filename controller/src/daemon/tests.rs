// SPDX-License-Identifier: Apache-2.0
//! What keeps the controller from its start.

use super::*;
use api::testing::silent_clients;
use clap::Parser;

/// Agents have this flag too and start with any value of it, because they do not act on it.
#[tokio::test]
async fn a_controller_does_not_start_with_a_quarantine_in_use_that_is_too_short() {
    let flags = [
        "controller",
        "--identity",
        "c",
        "--listen",
        "127.0.0.1:0",
        "--quarantine-in-use",
        "5m",
    ];
    let stop = CancellationToken::new();
    stop.cancel();
    let refused = run(Config::parse_from(flags), silent_clients(), stop).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "--quarantine-in-use 5m is too short: it must not be shorter than --quarantine; set 10m or more"
    );
}
