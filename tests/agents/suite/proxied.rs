// SPDX-License-Identifier: Apache-2.0
//! An HTTP proxy that the agent's environment names.

use agents::{Attachment, Member, Site};
use apiserver::Gateway;
use apiserver::install::{until, until_within};
use std::time::Duration;

/// Three runs of one agent: the proxy is exempt by `NO_PROXY`, refuses, and forwards.
pub(crate) async fn the_agent_takes_its_proxy_from_the_environment(site: &Site) {
    let gateway = Gateway::start().await;
    gateway.refuse(Some("403 Forbidden"));
    // The API server under another name, so that `NO_PROXY` applies to one of them only.
    let url = gateway.url().replace("127.0.0.1", "localhost");
    let mut node = Member::new(&site.server, "proxied", &["--report-interval", "1h"]).await;
    node.set_environment(&[("HTTPS_PROXY", &url), ("NO_PROXY", "10.0.0.0/8,127.0.0.1")]);
    node.start();
    node.wait_active("rail0").await;
    assert_eq!(gateway.asked(), [""; 0]);
    node.stop();

    node.set_environment(&[("HTTPS_PROXY", &url), ("NO_PROXY", "localhost")]);
    node.start();
    let refused = format!(
        "the proxy {url}/ rejects CONNECT 127.0.0.1:{}: 403 Forbidden",
        site.server.port()
    );
    let warned = || {
        node.log()
            .lines()
            .any(|line| line.contains("WARN") && line.contains(&refused))
    };
    until("the agent has logged why it gets no response", async || warned()).await;

    gateway.refuse(None);
    site.simple("proxied", "10.77.0.0/24").await;
    node.wait_active("proxied").await;
    let asked = format!("CONNECT 127.0.0.1:{} HTTP/1.1", site.server.port());
    assert!(
        gateway.asked().iter().all(|line| *line == asked),
        "{:?}",
        gateway.asked()
    );
}

/// A firewall or a router may forget a connection: it drops the packets and reports that to neither end. The client closes a
/// connection without an answer after 45 s (`api/src/client.rs`).
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_replaces_connections_that_have_gone_silent() {
    let site = Site::new().await;
    let gateway = Gateway::start().await;
    let mut node = Member::new(&site.server, "a", &[]).await;
    let url = gateway.url();
    node.set_environment(&[("HTTPS_PROXY", &url), ("NO_PROXY", "localhost")]);
    node.start();
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    gateway.silence();
    site.simple("rail1", "10.2.0.0/24").await;
    // The addresses of a block need no connection.
    node.add("rail0", &Attachment::of("one"));
    let limit = Duration::from_secs(180);
    until_within(limit, "the agent has a block of the later pool", async || {
        !node.blocks("rail1", "active").is_empty()
    })
    .await;
    node.add("rail1", &Attachment::of("one"));
}
