// SPDX-License-Identifier: Apache-2.0
//! What agents ask when nothing happens: there may be ten thousand of them.

use agents::{Member, Site};
use cluster::audit::Mark;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_at_rest_asks_next_to_nothing() {
    let site = Site::new().await;
    let flags = ["--mirror", "1h", "--observe", "3s", "--idle", "1h"];
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(Member::running(&site.server, name, &flags).await);
    }
    site.simple("rail0", "10.1.0.0/24").await;
    for node in &nodes {
        node.wait_active_blocks("rail0", 1).await;
    }
    // First statuses and first looks.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let keeper: Vec<String> = site
        .server
        .requests_since(Mark::BEGINNING)
        .into_iter()
        .filter(|request| request.verb == "update" && request.uri.contains("/leases/"))
        .filter_map(|request| request.node().map(str::to_owned))
        .collect();
    let mark = site.server.mark();
    tokio::time::sleep(Duration::from_secs(20)).await;
    for name in ["a", "b", "c"]
        .into_iter()
        .filter(|name| !keeper.iter().any(|keeper| keeper == name))
    {
        let asked: Vec<String> = site
            .server
            .requests_since(mark)
            .into_iter()
            .filter(|request| request.node() == Some(name) && request.verb != "watch")
            .map(|request| format!("{} {}", request.verb, request.uri))
            .collect();
        // A look at the Lease now and then, and at its Node once a minute.
        assert!(
            asked.len() <= 8,
            "{name} asks {} times in 20 s: {asked:#?}",
            asked.len()
        );
        assert!(
            asked.iter().all(|asked| asked.starts_with("get ")),
            "{name} asks for more than single objects: {asked:#?}"
        );
    }
}
