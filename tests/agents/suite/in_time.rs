// SPDX-License-Identifier: Apache-2.0
//! The helpers of this suite on a busy machine: they repeat an ADD whose time was too short, and no other ADD.

use agents::member::OUT_OF_TIME;
use agents::pools::per_address;
use agents::{Attachment, Member, Site};
use apiserver::install::until;
use apiserver::{Fault, Proxy};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// Applies `fault` to the first `count` CREATEs of an address from now on.
fn disturb_creates(proxy: &Proxy, mut count: u32, fault: Fault) {
    proxy.decide(move |method, path| {
        if method != "POST" || !path.ends_with("/ipaddresses") || count == 0 {
            return Fault::None;
        }
        count -= 1;
        fault
    });
}

/// The number of ADDs that the agent refused because the API server did not answer.
fn unanswered(node: &Member) -> u64 {
    node.number("rdmanet_plugin_requests_total{pool=\"each\",verb=\"allocate\",code=\"119\"}")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_add_of_the_suite_is_repeated_only_while_its_time_is_too_short() {
    let site = Site::new().await;
    let (node, proxy) = site.behind_proxy("a", &[]).await;
    node.start();
    site.pool("each", per_address("10.1.0.0/24")).await;
    until("the pool is here", async || node.file("each").is_object()).await;
    let hangs = Fault::Delay(Duration::from_secs(120));

    disturb_creates(&proxy, 1, hangs);
    node.add("each", &Attachment::of("one"));
    // The plugin refuses an address of its own node without the agent.
    let other = Member::running(&site.server, "b", &[]).await;
    let address = other.add_soon("each", &Attachment::of("elsewhere")).await;
    disturb_creates(&proxy, 1, hangs);
    let two = Attachment::of("two").asking(&address);
    node.refused("each", &two, &[111], &["default/elsewhere"]);
    let before = unanswered(&node);
    assert!(before >= 2, "{before} ADDs ran out of time");

    // A broken connection is no lack of time.
    disturb_creates(&proxy, u32::MAX, Fault::LoseRequest);
    let three = Attachment::of("three");
    let added = catch_unwind(AssertUnwindSafe(|| node.add("each", &three)));
    let panic = added.unwrap_err();
    let answer = panic.downcast_ref::<String>().unwrap().lines().next().unwrap();
    assert!(answer.contains("119"), "{answer}");
    let is_out_of_time = OUT_OF_TIME.iter().any(|(piece, _)| answer.contains(piece));
    assert!(!is_out_of_time, "the ADD was repeated until the limit: {answer}");
}

#[test]
fn the_errors_of_an_add_that_is_repeated_are_those_of_the_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (piece, file) in OUT_OF_TIME {
        let source = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(source.contains(piece), "{file} has no {piece:?}");
    }
}
